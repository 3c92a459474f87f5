#pragma once
// Gram matrices of one draw of a model, where a rule gives the mean kernel. Draws 2 i and 2 i + 1 take opposite numbers, so that their
// deviations cancel to first order.
#include "stepzero/core/kernel.hpp"
#include "stepzero/ops/moments.hpp"

namespace stepzero {

// Normals in, the lower triangular root of a Wishart matrix out (Bartlett). degrees: of freedom.
void to_bartlett(Tensor<float>& normals, double degrees);

// factor X X', summed in double: tokens that nearly coincide differ by less than the rounding of floats.
Kernel gram_in_double(View<const float> x, double factor);

// The Gram matrix of Gaussian channels of law K.
Kernel gram_of_channels(const Kernel& K, Index channels, const Draws& draws);

// The Gram matrix of a x + b f, given those of x and f. f came through a matrix of its own, so its direction is random.
Kernel gram_of_sum(const Kernel& x, const Kernel& f, double a, double b, Index channels, const Draws& draws);

}  // namespace stepzero
