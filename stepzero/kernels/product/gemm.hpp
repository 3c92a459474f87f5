#pragma once
// Matrix products behind one small interface.
//
//     C = alpha op(A) op(B) + beta C,      op(X) = X or X';      beta = 0 never reads C
//
// float runs on oneDNN or on kernels of our own, double on OpenBLAS, any other scalar (Dual) on the loops below, which are also
// the reference the others are tested against.
#include <vector>

#include "stepzero/core/view.hpp"

namespace stepzero {

enum class Trans : bool { no, yes };

template <class S>
void gemm_reference(Trans ta, Trans tb, S alpha, View<const S> a, View<const S> b, S beta, View<S> c) {
  const Index inner = ta == Trans::no ? a.cols : a.rows;
  for (Index i = 0; i < c.rows; ++i) {
    for (Index j = 0; j < c.cols; ++j) {
      S sum = S(0);
      for (Index k = 0; k < inner; ++k) {
        sum += (ta == Trans::no ? a(i, k) : a(k, i)) * (tb == Trans::no ? b(k, j) : b(j, k));
      }
      c(i, j) = beta == S(0) ? alpha * sum : alpha * sum + beta * c(i, j);
    }
  }
}

template <class S>
void gemm(Trans ta, Trans tb, S alpha, View<const S> a, View<const S> b, S beta, View<S> c) {
  gemm_reference(ta, tb, alpha, a, b, beta, c);
}

template <>
void gemm(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c);
template <>
void gemm(Trans ta, Trans tb, double alpha, View<const double> a, View<const double> b, double beta, View<double> c);

// The lower triangle of C = A A', at half the price; what lies above the diagonal is not touched.
void gram_product(View<const double> a, View<double> c);

// What the benchmark wants to know of a pass: every float product it asked for, and how long it took.
// Products inside a parallel loop (the heads of an attention) are not logged.
struct GemmRecord {
  Trans ta, tb;
  Index rows, cols, inner;
  double seconds;
};
void set_gemm_log(std::vector<GemmRecord>* log);  // nullptr: off

}  // namespace stepzero
