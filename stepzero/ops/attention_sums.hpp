#pragma once
// What an attention that samples heads adds up over them.
#include <array>
#include <cmath>
#include <vector>

#include "stepzero/core/kernel.hpp"
#include "stepzero/core/running.hpp"
#include "stepzero/kernels/gemm.hpp"
#include "stepzero/kernels/products.hpp"

namespace stepzero {

// A few numbers of every head.
template <std::size_t N>
struct Seen {
  std::array<Running, N> numbers;

  void add(const std::array<double, N>& x) {
    for (std::size_t i = 0; i < N; ++i) numbers[i].add(x[i]);
  }
  [[nodiscard]] double mean(std::size_t i) const { return numbers[i].mean; }
  [[nodiscard]] double variance(std::size_t i) const { return numbers[i].variance(); }
  [[nodiscard]] double error(std::size_t i) const { return numbers[i].error(); }
};

// out = X X'
inline void gram(const Tensor<float>& x, Tensor<float>& out) {
  gemm(Trans::no, Trans::yes, 1.0F, View<const float>(x), View<const float>(x), 0.0F, out.view());
}

inline void add(const Tensor<float>& x, Matrix& to) {
  for (Index i = 0; i < to.size(); ++i) to.data()[i] += static_cast<double>(x.data()[i]);
}

inline double trace(const Tensor<float>& x) {
  double sum = 0;
  for (Index t = 0; t < x.rows(); ++t) sum += static_cast<double>(x(t, t));
  return sum;
}

inline Matrix zeros(Index n) {
  Matrix m(n, n);
  std::fill_n(m.data(), m.size(), 0.0);
  return m;
}

inline Kernel mean_of(const Matrix& sum, double factor) {
  return Kernel::from(sum.rows(), [&](Index t, Index s) { return factor * (sum(t, s) + sum(s, t)) / 2; });
}

inline double total(const Tensor<float>& x) {
  double sum = 0;
  for (Index i = 0; i < x.size(); ++i) sum += static_cast<double>(x.data()[i]);
  return sum;
}

// sum_ts a_ts b_ts
inline double inner(const Tensor<float>& a, const Tensor<float>& b) {
  return static_cast<double>(frobenius(View<const float>(a), View<const float>(b)));
}

// A rotation leaves each token's size: what drawn gradients say of it is noise.
inline Kernel with_sizes(const Kernel& drawn, const Kernel& sizes) {
  std::vector<double> a;
  for (Index t = 0; t < drawn.tokens(); ++t) a.push_back(drawn(t, t) > 0 ? std::sqrt(sizes(t, t) / drawn(t, t)) : 0);
  return Kernel::from(drawn.tokens(), [&](Index t, Index s) { return drawn(t, s) * a[t] * a[s]; });
}

}  // namespace stepzero
