#pragma once
// A Gram kernel: a symmetric (T, T) matrix over all tokens of the batch. Many wires share one up to a factor
// (a product with a random matrix only scales it), so a kernel is a shared matrix with a scale and a shift.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/view.hpp"

namespace stepzero {

using Matrix = Tensor<double>;

class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(Matrix matrix) : matrix_(std::make_shared<const Matrix>(std::move(matrix))) {}

  // f(t, s) for s <= t, mirrored; f is called from several threads
  template <class F>
  static Kernel from(Index tokens, const F& f) {
    return from_rows(tokens, [&](Index t, double* row) {
      for (Index s = 0; s <= t; ++s) row[s] = f(t, s);
    });
  }

  // f(t, row) fills row t up to t; the rest is mirrored
  template <class F>
  static Kernel from_rows(Index tokens, const F& f) {
    constexpr Index tile = 16;
    Matrix m(tokens, tokens);
    const auto fill = [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) f(t, m.view().row(t));
    };
    const auto mirror = [&](Index t0, Index t1) {
      for (Index s0 = t0; s0 < tokens; s0 += tile) {
        for (Index t = t0; t < t1; ++t) {
          for (Index s = std::max(s0, t + 1); s < std::min(s0 + tile, tokens); ++s) m(t, s) = m(s, t);
        }
      }
    };
    if (tokens < 256) {  // threads cost more than they save
      fill(0, tokens);
      for (Index t = 0; t < tokens; t += tile) mirror(t, std::min(t + tile, tokens));
    } else {
      parallel_ranges(tokens, tile, fill);
      parallel_ranges(tokens, tile, mirror);
    }
    return Kernel(std::move(m));
  }

  // the other one times a number
  [[nodiscard]] bool same_up_to_scale(const Kernel& other) const { return matrix_ == other.matrix_ && shift_ == 0 && other.shift_ == 0; }
  [[nodiscard]] bool empty() const { return matrix_ == nullptr; }
  [[nodiscard]] Index tokens() const { return matrix_->rows(); }
  double operator()(Index t, Index s) const { return scale_ * (*matrix_)(t, s) + shift_; }

  [[nodiscard]] Kernel scaled(double a) const {
    Kernel k = *this;
    k.scale_ *= a;
    k.shift_ *= a;
    return k;
  }
  [[nodiscard]] Kernel shifted(double b) const {
    Kernel k = *this;
    k.shift_ += b;
    return k;
  }
  friend Kernel operator+(const Kernel& a, const Kernel& b) {
    return from(a.tokens(), [&](Index t, Index s) { return a(t, s) + b(t, s); });
  }

  [[nodiscard]] double trace() const {
    double sum = 0;
    for (Index t = 0; t < tokens(); ++t) sum += (*this)(t, t);
    return sum;
  }
  [[nodiscard]] double sum() const {
    return scale_ * in_eight(matrix_->size(), [m = matrix_->data()](Index i) { return m[i]; }) +
           shift_ * static_cast<double>(matrix_->size());
  }
  // sum_ts K_ts^2 / (sum_t K_tt)^2: 1 where all tokens are one, 1/T where they share nothing
  [[nodiscard]] double sameness() const {
    const double size = trace();
    return size > 0 ? frobenius(*this, *this) / (size * size) : 1;
  }
  // sum_ts a_ts b_ts
  friend double frobenius(const Kernel& a, const Kernel& b) {
    return in_eight(a.matrix_->size(), [&, x = a.matrix_->data(), y = b.matrix_->data()](Index i) {
      return (a.scale_ * x[i] + a.shift_) * (b.scale_ * y[i] + b.shift_);
    });
  }

 private:
  // A sum in eight strands, which the compiler can put side by side.
  template <class F>
  static double in_eight(Index n, const F& f) {
    double strand[8] = {};
    Index i = 0;
    for (; i + 8 <= n; i += 8) {
      for (Index k = 0; k < 8; ++k) strand[k] += f(i + k);
    }
    for (; i < n; ++i) strand[0] += f(i);
    return ((strand[0] + strand[1]) + (strand[2] + strand[3])) + ((strand[4] + strand[5]) + (strand[6] + strand[7]));
  }

  std::shared_ptr<const Matrix> matrix_;
  double scale_ = 1;
  double shift_ = 0;
};

}  // namespace stepzero
