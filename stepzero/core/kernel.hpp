#pragma once
// A Gram kernel: a symmetric (T, T) matrix over all tokens of the batch. Many wires share one up to a factor
// (a product with a random matrix only scales it), so a kernel is a shared matrix with a scale and a shift.
#include <memory>
#include <utility>
#include <vector>

#include "stepzero/core/view.hpp"

namespace stepzero {

using Matrix = Tensor<double>;

class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(Matrix matrix) : matrix_(std::make_shared<const Matrix>(std::move(matrix))) {}

  // f(t, s) for s <= t, mirrored
  template <class F>
  static Kernel from(Index tokens, const F& f) {
    Matrix m(tokens, tokens);
    for (Index t = 0; t < tokens; ++t) {
      for (Index s = 0; s <= t; ++s) m(t, s) = m(s, t) = f(t, s);
    }
    return Kernel(std::move(m));
  }

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
    double total = 0;
    for (Index t = 0; t < tokens(); ++t) {
      for (Index s = 0; s < tokens(); ++s) total += (*this)(t, s);
    }
    return total;
  }
  // sum_ts a_ts b_ts
  friend double frobenius(const Kernel& a, const Kernel& b) {
    double total = 0;
    for (Index t = 0; t < a.tokens(); ++t) {
      for (Index s = 0; s < a.tokens(); ++s) total += a(t, s) * b(t, s);
    }
    return total;
  }

 private:
  std::shared_ptr<const Matrix> matrix_;
  double scale_ = 1;
  double shift_ = 0;
};

}  // namespace stepzero
