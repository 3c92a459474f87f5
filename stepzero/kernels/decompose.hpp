#pragma once
// Decompositions with the same bits for any number of threads and any SIMD level. Those of random matrices are not
// fast: they serve initialization, once a tensor.
#include <vector>

#include "stepzero/core/kernel.hpp"

namespace stepzero::kernels {

// Makes the rows orthonormal, first to last (Gram and Schmidt, modified); there are at most as many as columns.
void orthonormalise_rows(View<double> a);

// m = sum_i s_i u_i v_i', s descending: the first `count` of it. Square matrices. v are eigenvectors of m' m and u = m v / s, in double
// numbers: floats' accuracy down to singular values of a hundred-thousandth of the first. Signs are as they come: a rule would give the
// entries a mean.
struct Svd {
  std::vector<float> s;
  std::vector<float> u;  // row i is u_i
  std::vector<float> v;  // row i is v_i
};
Svd svd(View<const float> m, Index count);
inline Svd svd(View<const float> m) { return svd(m, m.rows); }

// U, upper triangular, with U' U = scale^2 K, for a K that may be singular: a direction that is not there gets an empty row. Of a K that is
// no Gram matrix by a little (entries off by rounding or a correction) the diagonal is kept, and products of tokens as far as their sizes
// allow.
Tensor<float> root(const Kernel& K, double scale);

}  // namespace stepzero::kernels
