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

// The sum of f from `begin` to before `end` in eight strands, which the compiler can put side by side.
template <class F>
double in_eight(Index begin, Index end, const F& f) {
  double strand[8] = {};
  Index i = begin;
  for (; i + 8 <= end; i += 8) {
    for (Index k = 0; k < 8; ++k) strand[k] += f(i + k);
  }
  for (; i < end; ++i) strand[0] += f(i);
  return ((strand[0] + strand[1]) + (strand[2] + strand[3])) + ((strand[4] + strand[5]) + (strand[6] + strand[7]));
}

class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(Matrix matrix) : shared_(std::make_shared<const Shared>(std::move(matrix))) {}

  // f(t, s) for s <= t, mirrored; f is called from several threads
  template <class F>
  static Kernel from(Index tokens, const F& f) {
    return from_rows(tokens, [&](Index t, double* __restrict row) {  // what f reads is not what it writes: loops are wide
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

  // the two share one matrix and differ by a factor at most
  [[nodiscard]] bool same_up_to_scale(const Kernel& other) const { return shared_ == other.shared_ && shift_ == 0 && other.shift_ == 0; }
  [[nodiscard]] bool empty() const { return shared_ == nullptr; }
  [[nodiscard]] Index tokens() const { return shared_->matrix.rows(); }
  double operator()(Index t, Index s) const { return scale_ * shared_->matrix(t, s) + shift_; }

  // One row, for loops over all of it.
  struct Row {
    const double* entries;
    double scale, shift;
    double operator[](Index s) const { return scale * entries[s] + shift; }
  };
  [[nodiscard]] Row row(Index t) const { return {shared_->matrix.view().row(t), scale_, shift_}; }

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

  [[nodiscard]] double trace() const { return scale_ * shared_->trace + shift_ * static_cast<double>(tokens()); }
  [[nodiscard]] double sum() const { return scale_ * shared_->sum + shift_ * static_cast<double>(tokens() * tokens()); }
  // the cosine of two different tokens, in the mean by size
  [[nodiscard]] double mean_cosine() const {
    const double size = trace(), others = static_cast<double>(tokens() - 1);
    return size > 0 && others > 0 ? (sum() - size) / (others * size) : 0;
  }
  // sum_ts K_ts^2 / (sum_t K_tt)^2: 1 where all tokens are one, 1/T where they share nothing
  [[nodiscard]] double sameness() const {
    const double size = trace();
    const double squares = scale_ * scale_ * shared_->squares + shift_ * (scale_ * shared_->sum + sum());
    return size > 0 ? squares / (size * size) : 1;
  }
  // sum_ts a_ts b_ts
  friend double frobenius(const Kernel& a, const Kernel& b) {
    const Row x = a.row(0), y = b.row(0);  // rows follow each other
    return in_eight(0, a.shared_->matrix.size(), [=](Index i) { return x[i] * y[i]; });
  }

 private:
  // The entries, and the sums of them that every wire is asked for.
  struct Shared {
    Matrix matrix;
    double trace = 0, sum = 0, squares = 0;

    explicit Shared(Matrix entries) : matrix(std::move(entries)) {
      for (Index t = 0; t < matrix.rows(); ++t) {
        const double* const row = matrix.view().row(t);  // up to t: the rest is the same again
        trace += row[t];
        sum += 2 * in_eight(0, t, [=](Index s) { return row[s]; }) + row[t];
        squares += 2 * in_eight(0, t, [=](Index s) { return row[s] * row[s]; }) + row[t] * row[t];
      }
    }
  };
  std::shared_ptr<const Shared> shared_;
  double scale_ = 1;
  double shift_ = 0;
};

}  // namespace stepzero
