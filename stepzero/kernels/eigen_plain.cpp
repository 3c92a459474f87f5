// eigen.cpp of the portable build: the decomposition that svd has, with all its vectors.
#include <algorithm>

#include "stepzero/kernels/eigen.hpp"
#include "stepzero/kernels/tridiagonal.hpp"

namespace stepzero::kernels {

Eigen eigen(Matrix symmetric) {
  const Index n = symmetric.rows();
  const Leading found = leading_eigen(symmetric.view(), n);
  Eigen out{{found.values.rbegin(), found.values.rend()}, Matrix(n, n)};
  for (Index i = 0; i < n; ++i) std::copy_n(&found.vectors[static_cast<std::size_t>((n - 1 - i) * n)], n, out.vectors.view().row(i));
  return out;
}

}  // namespace stepzero::kernels
