#pragma once
// The space that a few rows span in many channels, and products with many columns whose bits do not depend on the
// number of threads. A Gaussian matrix is known to its inputs only through this space (ops/weightless.hpp).
//
// X (T, n), T small. With d_t = |x_t|, Cholesky with pivoting of the correlations X X' / (d_t d_s), in double, gives
//
//     X = L B',   L (T, r),  B (n, r),  B'B = I                                                    (1)
//
// B is never made: the rows of L at the pivots are lower triangular, L_p, and B' = L_p^-1 X_p, so A B' = (A L_p^-1) X_p
// and A B = (A X_p') L_p^-T are triangular solves with T x T matrices in double.                    (2)
// A row within an angle of about 1e-6 of the span of the others (a repeated token, a zero row) adds no direction:
// floats could not tell it from noise. Products of floats are exact in double, so a Gram matrix keeps half the digits
// of a double where an orthogonalisation in float would have none.
#include <functional>
#include <span>
#include <vector>

#include "stepzero/core/view.hpp"

namespace stepzero {

struct RowSpace {
  Index tokens = 0;
  Index rank = 0;
  bool finite = true;         // false: X held NaN or Inf, and everything made from it is NaN
  std::vector<double> gram;   // (T, T) X X'
  std::vector<double> lower;  // (T, T) L, of which the first `rank` columns are used
  std::vector<Index> pivots;  // rows of X that span it, in the order of L's columns

  [[nodiscard]] bool empty() const { return tokens == 0; }
  [[nodiscard]] const double* row(Index t) const { return lower.data() + t * tokens; }
  [[nodiscard]] View<const double> left() const { return {lower.data(), tokens, tokens}; }

  // Row by row, A (rows, T) = <a, x_s> for all s -> the first `rank` columns become A B.              (2)
  void project(View<double> a) const;
  // Row by row, A (rows, T), of which the first `rank` columns count -> coefficients M with M X = A B'.  (2)
  void lift(View<double> a) const;
};

// Columns are cut into at most 16 pieces, a piece into chunks of at most `chunk` columns that stay in the cache;
// both depend on n alone. body(piece, c0, c1) sees the chunks of one piece in order and runs BLAS in one thread.
inline constexpr Index chunk = 512;
Index column_pieces(Index n);
void for_column_chunks(Index n, const std::function<void(Index piece, Index c0, Index c1)>& body);

// X X' without the columns listed in `skip` (ascending).
template <class S>
std::vector<double> gram(View<const S> x, std::span<const Index> skip = {});

RowSpace factor(std::vector<double> gram, Index tokens);

template <class S>
RowSpace row_space(View<const S> x) {
  return factor(gram(x), x.rows);
}

// Sums of (rows, cols) products over the chunks of one product's inner index: one accumulator a piece, added in order.
class Accumulator {
 public:
  Accumulator(Index rows, Index cols, Index pieces) : rows_(rows), cols_(cols), memory_(static_cast<std::size_t>(rows * cols * pieces)) {}
  // Adds the (rows, cols) matrix `part`, in the turn of `piece`.
  template <class S>
  void add(Index piece, View<const S> part) {
    double* to = memory_.data() + piece * rows_ * cols_;
    for (Index r = 0; r < part.rows; ++r) {
      const S* from = part.row(r);
      for (Index c = 0; c < part.cols; ++c) to[r * cols_ + c] += static_cast<double>(from[c]);
    }
  }
  // The sum over the pieces, (rows, cols).
  View<double> total();

 private:
  Index rows_, cols_;
  std::vector<double> memory_;
};

// A B' (A.rows, B.rows) for A and B of many columns.
template <class S>
std::vector<double> inner_products(View<const S> a, View<const S> b);

// C (+)= A B for B and C of many columns.
template <class S>
void wide_product(View<const S> a, View<const S> b, bool add, View<S> c);

}  // namespace stepzero
