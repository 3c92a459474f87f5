#pragma once
// The largest eigenvalues of a symmetric matrix and their vectors, with the same bits on every SIMD level and for any number of
// threads: no library's order of sums, nothing but +, -, *, / and square roots.
//
//   A = Q T Q'     reflections of Householder, one a row, from the last row up; T is tridiagonal       4/3 n^3 flops
//   eigenvalues    of T by implicit shifts (QL)                                                       some 30 n^2
//   vectors        of T by inverse iteration, those of near eigenvalues made orthogonal               some 50 n each
//   z -> Q z       the reflections again                                                              2 n^2 each
#include <vector>

#include "stepzero/core/view.hpp"

namespace stepzero::kernels {

struct Leading {
  std::vector<double> values;   // the largest first
  std::vector<double> vectors;  // row i belongs to value i
};

// `a`: symmetric, only its lower triangle is read; it is overwritten.
Leading leading_eigen(View<double> a, Index count);

}  // namespace stepzero::kernels
