#pragma once
// Mean and variance of a random number, and what products make of them: the rule behind every moment door.
//
// Product    X, Y independent:      Var(X Y) = E[X]^2 Var(Y) + E[Y]^2 Var(X) + Var(X) Var(Y)                        (1)
// Sum        C_ij = sum_k A_ik B_kj over n independent terms:    E C = n E[A] E[B],  Var C = n Var(A_ik B_kj)      (2)
#include <cstdint>

namespace stepzero {

// What a scheme makes of a parameter's entries.
struct Law {
  double mean = 0;
  double variance = 0;
  bool token_table = false;    // the embedding itself, used as a tied head
  double ramp = 0;             // not drawn: ln 1, ln 2, ... up to the logarithm of this, again and again; 0: drawn
  double least = 0, most = 0;  // the inverse softplus of numbers uniform in the logarithm between these; 0: it is not
  [[nodiscard]] double second_moment() const { return mean * mean + variance; }
};

inline Law product(const Law& x, const Law& y) {
  return {x.mean * y.mean, x.mean * x.mean * y.variance + y.mean * y.mean * x.variance + x.variance * y.variance};  // (1)
}

// An entry of a product of two matrices with n numbers in between.
inline Law sum_of_products(std::int64_t n, const Law& a, const Law& b) {
  const Law term = product(a, b);
  return {static_cast<double>(n) * term.mean, static_cast<double>(n) * term.variance};  // (2)
}

}  // namespace stepzero
