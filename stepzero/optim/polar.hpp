#pragma once
// The polar factor of a matrix: G = U s V' becomes U V'. One thread computes it, so that its bits do not depend on how many there are.
#include "stepzero/core/view.hpp"

namespace stepzero {

// Exact, in double; singular values below 1e-6 of the largest are dropped: they are rounding noise of the gradient, and U V' would
// make it as large as the rest.
template <class S>
Tensor<S> polar_factor(View<const S> g);

// Its approximation by steps of the polynomial x -> 3.4445 x - 4.7750 x^3 + 2.0315 x^5 (Jordan et al. 2024), which brings singular
// values between 1e-3 and 1 of the norm to 0.7 .. 1.2 within five.
template <class S>
Tensor<S> newton_schulz_factor(View<const S> g, int steps);

}  // namespace stepzero
