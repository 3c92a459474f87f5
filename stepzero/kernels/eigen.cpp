#include "stepzero/kernels/eigen.hpp"

#include <utility>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/product/libraries.hpp"

namespace stepzero::kernels {

Eigen eigen(Matrix symmetric) {
  const auto n = static_cast<blasint>(symmetric.rows());
  Eigen out{std::vector<double>(static_cast<std::size_t>(n)), std::move(symmetric)};
  const blasint whole_size = 3 + 5 * n, work_size = 1 + 6 * n + 2 * n * n;
  std::vector<double> work(static_cast<std::size_t>(work_size));
  std::vector<blasint> whole(static_cast<std::size_t>(whole_size));
  blasint info = 0;
  const Alone alone;  // most of its steps are too small to share, and threads that wait for each other cost more
  // its columns are our rows
  openblas().dsyevd("V", "U", &n, out.vectors.data(), &n, out.values.data(), work.data(), &work_size, whole.data(), &whole_size, &info);
  STEPZERO_CHECK(info == 0);
  return out;
}

}  // namespace stepzero::kernels
