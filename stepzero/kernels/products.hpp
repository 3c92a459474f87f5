#pragma once
// Three products of two matrices of one shape, each the sum of the one before it:
//
//     Hadamard    (A o B)_rc = A_rc B_rc                                  a matrix
//     row-wise    (A (-) B)_r = sum_c A_rc B_rc                           a vector, one number a row
//     Frobenius   <A, B> = sum_r (A (-) B)_r = sum_rc (A o B)_rc          a number
//
// The last is the inner product of backpropagation: a change dW of the weights changes the loss by <dL/dW, dW>.
#include <algorithm>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/view.hpp"
#include "stepzero/kernels/rows.hpp"

namespace stepzero {

// y = a o b, or y += when add
template <class S>
void hadamard(View<const S> a, View<const S> b, View<S> y, bool add = false) {
  parallel_ranges(a.rows, std::max<Index>(1, 16384 / std::max<Index>(a.cols, 1)), [&](Index r0, Index r1) {
    for (Index r = r0; r < r1; ++r) {
      const S* from_a = a.row(r);
      const S* from_b = b.row(r);
      S* to = y.row(r);
      if (add) {
        for (Index c = 0; c < a.cols; ++c) to[c] += from_a[c] * from_b[c];
      } else {
        for (Index c = 0; c < a.cols; ++c) to[c] = from_a[c] * from_b[c];
      }
    }
  });
}

// y_r = <a_r, b_r>
template <class S>
void row_dots(View<const S> a, View<const S> b, S* y) {
  for (Index r = 0; r < a.rows; ++r) y[r] = dot_row(a.row(r), b.row(r), a.cols);
}

template <class S>
S frobenius(View<const S> a, View<const S> b) {
  if (a.contiguous() && b.contiguous()) return dot_row(a.data, b.data, a.size());
  return row_sum<S>(a.rows, [&](Index r) { return dot_row(a.row(r), b.row(r), a.cols); });
}

}  // namespace stepzero
