#pragma once
// The norm of a product that nobody makes. With X (T, n) and D (T, m), of few rows,
//
//     ||X' D||^2 = <X X', D D'>                                                                          (1)
//
// costs T^2 (n + m) instead of 2 T n m, and no (n, m) matrix: X D of a layer are what it read and the gradient of what it made,
// X' D the gradient of its weights. Rows that are much alike would cancel in (1), the more the more so. So the mean of each column is
// taken out first, X = 1 m' + Z, D = 1 e' + E, and with Z' 1 = E' 1 = 0
//
//     ||X' D||^2 = T^2 |m|^2 |e|^2 + 2 T sum_t <z_t, m> <e_t, e> + <Z Z', E E'>                          (2)
//
// Z Z' is made of floats in pieces whose sum is of doubles; columns that are very large or very small are scaled by a power of two.
#include <span>
#include <vector>

#include "stepzero/core/view.hpp"

namespace stepzero {

// What (2) wants to know of one side.
struct CentredRows {
  Index tokens = 0;
  std::vector<double> gram;   // (T, T) Z Z', of which the lower triangle counts
  std::vector<double> along;  // <z_t, m>
  double mean_square = 0;     // |m|^2
};

// Without the columns listed in `skip` (ascending).
template <class S>
CentredRows centred_rows(View<const S> x, std::span<const Index> skip = {});

// ||X' D||^2
double product_squares(const CentredRows& x, const CentredRows& d);

// Whether (1) is the cheaper way, for the gradient of an (n, m) matrix.
inline bool norm_is_cheaper(Index tokens, Index n, Index m) {
  constexpr Index most_tokens = 512;  // sums of (T, T) doubles, one for each of a few pieces
  return tokens <= most_tokens && tokens * (n + m) <= n * m;
}

}  // namespace stepzero
