#pragma once
// A stream with feed-forward branches of unit gain added to it: x <- x + a W2 ReLU(W1 n(x)), n a norm with gain g or
// nothing. Simple enough to be known exactly at any width d (branches b = 1 .. B, variances of W1 and W2: 2/d and 1/F):
//     with a norm       E[x^2] = 1 + B a^2 g^2                                                                     (1)
//     without           E[x^2] = (1 + a^2)^B                                                                       (2)
//     gradient          |d_0|^2 / |d_B|^2 = prod_b (1 + a^2 g^2 c f_b / K_b),  K_b = E[x^2] before branch b,       (3)
//                       c = (1 - 1/d) / (1 - 2/d): what the norm takes out of the gradient, and E[1/x^2] over d;
//                       f_b = 1 + (5/F) b a^4 g^4 / K_b^2: the same over F, as the square of a ReLU of normals has a
//                       relative variance of 5; without a norm (2)
// For c = f = 1 the product (3) telescopes to E[x^2] of (1): the gradient grows towards the input as the stream towards the output.
#include "stepzero/claims/lab.hpp"

namespace stepzero::claims {

struct Branches {
  int count = 2;
  double scale = 1;  // a
  double gain = 1;   // g; 0: no norm
  Index width = 96;
  Index hidden = 128;

  [[nodiscard]] double forward() const;   // (1), (2)
  [[nodiscard]] double backward() const;  // (3), (2)
};

Running measure_forward(const Settings& settings, int draws, const Branches& b);   // E[x^2] at the end, where it was 1 at the start
Running measure_backward(const Settings& settings, int draws, const Branches& b);  // E[d^2] at the start, where it was 1 at the end

}  // namespace stepzero::claims
