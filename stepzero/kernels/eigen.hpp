#pragma once
// Eigenvalues and eigenvectors of a symmetric matrix, by LAPACK.
#include <vector>

#include "stepzero/core/kernel.hpp"

namespace stepzero::kernels {

struct Eigen {
  std::vector<double> values;  // ascending
  Matrix vectors;              // row i belongs to value i
};
Eigen eigen(Matrix symmetric);

}  // namespace stepzero::kernels
