#pragma once
// Kernels of one draw of a model, where a rule would else give their mean. Draws 2 i and 2 i + 1 take opposite numbers: what they are
// off by cancels to the first order.
#include "stepzero/core/kernel.hpp"
#include "stepzero/ops/moments.hpp"

namespace stepzero {

// The lower triangular root of a Wishart matrix of so many degrees of freedom, in place of normals (Bartlett).
void to_bartlett(Tensor<float>& normals, double degrees);

// factor X X'. In double: tokens that point the same way differ by less than floats leave of it.
Kernel gram_in_double(View<const float> x, double factor);

// The Gram kernel of so many Gaussian channels whose law is K.
Kernel gram_of_channels(const Kernel& K, Index channels, const Draws& draws);

// The Gram kernel of a x + b f for given Gram kernels of x and f, where f came through a matrix of its own and points anywhere.
Kernel gram_of_sum(const Kernel& x, const Kernel& f, double a, double b, Index channels, const Draws& draws);

}  // namespace stepzero
