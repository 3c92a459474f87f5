#include "stepzero/ops/drawn_channels.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "stepzero/kernels/decompose.hpp"
#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {

namespace {

using Square = Tensor<float>;

// The rows of U that are not empty, for U' U = K: as many as K has rank. That of few taps over many pixels is small.
Square factor(const Kernel& K) {
  const Square u = kernels::root(K, 1);
  std::vector<Index> there;
  for (Index i = 0; i < u.rows(); ++i) {
    if (u(i, i) > 0) there.push_back(i);
  }
  Square out(static_cast<Index>(there.size()), u.cols());
  for (Index i = 0; i < out.rows(); ++i) std::copy_n(u.view().row(there[static_cast<std::size_t>(i)]), u.cols(), out.view().row(i));
  return out;
}

// U^-1 B for an upper triangular U whose diagonal is nowhere 0.
Square solve(const Square& U, Square B) {
  for (Index i = U.rows(); i-- > 0;) {
    float* row = B.view().row(i);
    for (Index k = i + 1; k < U.rows(); ++k) {
      const float u = U(i, k);
      const float* from = B.view().row(k);
      for (Index c = 0; c < B.cols(); ++c) row[c] -= u * from[c];
    }
    for (Index c = 0; c < B.cols(); ++c) row[c] /= U(i, i);
  }
  return B;
}

}  // namespace

Channels::Channels(const Kernel& K, std::uint64_t place) : factor_(factor(K)), place_(place) {}

Tensor<float> Channels::block(Index number) const {
  const Index rank = factor_.rows();
  const Tensor<float> z = node_normals(place_, "channels", number, std::max<Index>(1024, 2 * rank), rank);
  const Square gram = product(Trans::yes, Trans::no, z, z);
  Matrix own(rank, rank);
  for (Index i = 0; i < own.size(); ++i) own.data()[i] = static_cast<double>(gram.data()[i]) / static_cast<double>(z.rows());
  Square root(rank, factor_.cols());
  std::copy_n(factor_.data(), factor_.size(), root.data());
  return product(Trans::no, Trans::no, z, solve(kernels::root(Kernel(std::move(own)), 1), std::move(root)));
}

}  // namespace stepzero
