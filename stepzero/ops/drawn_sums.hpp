#pragma once
// For rules that draw: how many draws they make, and sums over them.
#include <algorithm>
#include <array>

#include "stepzero/core/kernel.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/running.hpp"
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/products.hpp"
#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {

// At most `most` draws, `together` of them at a time in parallel: body(i, slot) makes one, then done(n) says whether n suffice.
template <class Body, class Done>
void draw_until_sure(Index most, Index together, const Body& body, const Done& done) {
  for (Index n = 0; n < most; n += together) {
    parallel_for(together, [&](Index slot) { body(n + slot, slot); });
    if (done(n + together) && n > 0) return;  // the first standard error is too uncertain to stop at
  }
}

// A few numbers of every draw.
template <std::size_t N>
struct Seen {
  std::array<Running, N> numbers;
  std::array<Running, N> pairs;  // means of two draws, whose kernels differ from their mean in opposite directions
  std::array<double, N> last{};

  void add(const std::array<double, N>& x) {
    const bool second = numbers[0].count > 2 * pairs[0].count;
    for (std::size_t i = 0; i < N; ++i) {
      numbers[i].add(x[i]);
      if (second) pairs[i].add((last[i] + x[i]) / 2);
    }
    last = x;
  }
  [[nodiscard]] double mean(std::size_t i) const { return numbers[i].mean; }
  [[nodiscard]] double variance(std::size_t i) const { return numbers[i].variance(); }
  [[nodiscard]] double error(std::size_t i) const { return pairs[i].error(); }
};

// The powers p of y ~ exp(p x) over the draws of (x, y), by regression.
template <std::size_t N>
struct Power {
  Running by;
  std::array<double, N> sum{}, crossed{};

  void add(double x, const std::array<double, N>& y) {
    by.add(x);
    for (std::size_t i = 0; i < N; ++i) {
      sum[i] += y[i];
      crossed[i] += x * y[i];
    }
  }
  [[nodiscard]] double operator()(std::size_t i) const {
    return by.variance() > 1e-8 && sum[i] > 0 ? (crossed[i] - by.mean * sum[i]) / sum[i] * by.count / (by.count - 1) / by.variance() : 0;
  }
};

// out = X X'
inline void gram(View<const float> x, Tensor<float>& out) { gemm(Trans::no, Trans::yes, 1.0F, x, x, 0.0F, out.view()); }
inline Tensor<float> gram(const Tensor<float>& x) { return product(Trans::no, Trans::yes, x, x); }

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

}  // namespace stepzero
