#pragma once
// (T, T) matrices that are copied, and need not be symmetric: what a change of a wire is made of.
#include <vector>

#include "stepzero/core/kernel.hpp"
#include "stepzero/kernels/product/gemm.hpp"

namespace stepzero {

class Square {
 public:
  Square() = default;
  explicit Square(Index n) : n_(n), a_(static_cast<std::size_t>(n * n), 0.0) {}

  static Square of(const Kernel& K);
  static Square one(Index n);
  template <class F>
  static Square from(Index n, const F& f) {
    Square m(n);
    for (Index t = 0; t < n; ++t) {
      for (Index s = 0; s < n; ++s) m(t, s) = f(t, s);
    }
    return m;
  }

  [[nodiscard]] bool empty() const { return n_ == 0; }
  [[nodiscard]] Index tokens() const { return n_; }
  double& operator()(Index t, Index s) { return a_[static_cast<std::size_t>(t * n_ + s)]; }
  double operator()(Index t, Index s) const { return a_[static_cast<std::size_t>(t * n_ + s)]; }
  [[nodiscard]] View<const double> view() const { return {a_.data(), n_, n_}; }
  [[nodiscard]] View<double> view() { return {a_.data(), n_, n_}; }

  [[nodiscard]] double trace() const;
  [[nodiscard]] Square transposed() const;
  // (m + m') / 2
  [[nodiscard]] Square symmetric() const;
  Square& operator+=(const Square& b);
  friend Square operator+(Square a, const Square& b) { return a += b; }
  friend Square operator-(Square a, const Square& b);
  friend Square operator*(double c, Square a);
  friend Square operator*(const Square& a, const Square& b);
  // sum_ts a_ts b_ts
  friend double inner(const Square& a, const Square& b);

 private:
  Index n_ = 0;
  std::vector<double> a_;
};

Square operator-(Square a, const Square& b);
Square operator*(double c, Square a);
Square operator*(const Square& a, const Square& b);
double inner(const Square& a, const Square& b);

// A X A'
Square between(const Square& a, const Square& x);
// a_ts b_ts
Square by_entry(const Square& a, const Square& b);

// L with L L' = K; what is negative by rounding counts as 0.
Square root_of(const Square& K);
// The inverse on the directions that are more than rounding.
Square inverse_of(const Square& K);

// K as a kernel, symmetric.
Kernel to_kernel(const Square& K);

}  // namespace stepzero
