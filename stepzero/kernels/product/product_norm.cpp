#include "stepzero/kernels/product/product_norm.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/rows.hpp"

namespace stepzero {

namespace {

// Columns are taken `wide` at a time, which stay in the second cache; at most so many sums run side by side. Both by n alone.
constexpr Index most_wide = 512, most_sums = 16, unit = 16;
// Rows of the lower triangle that one product makes: two thirds of the square at 256 tokens.
constexpr Index rows_at_once = 96;

struct Cut {
  Index n, wide, each;  // each: columns of one sum

  explicit Cut(Index columns) : n(columns) {
    const Index pairs = std::max<Index>(1, (n + 2 * most_wide - 1) / (2 * most_wide));  // even: most machines have as many cores
    wide = ((n + 2 * pairs - 1) / (2 * pairs) + unit - 1) / unit * unit;
    const Index parts = (n + wide - 1) / wide;
    each = (parts + most_sums - 1) / most_sums * wide;
  }
  [[nodiscard]] Index sums() const { return (n + each - 1) / each; }
};

// Columns of X times `factor`, without their means.
template <class S>
void centre(View<const S> x, S factor, View<S> z, std::vector<S>& mean) {
  std::fill_n(mean.begin(), z.cols, S(0));
  S* const m = mean.data();
  Index t = 0;
  for (; t + 4 <= x.rows; t += 4) {
    const S *r0 = x.row(t), *r1 = x.row(t + 1), *r2 = x.row(t + 2), *r3 = x.row(t + 3);
    for (Index c = 0; c < z.cols; ++c) m[c] += factor * ((r0[c] + r1[c]) + (r2[c] + r3[c]));
  }
  for (; t < x.rows; ++t) {
    for (Index c = 0; c < z.cols; ++c) m[c] += factor * x(t, c);
  }
  for (Index c = 0; c < z.cols; ++c) m[c] /= static_cast<S>(x.rows);
  for (t = 0; t < x.rows; ++t) {
    const S* from = x.row(t);
    S* to = z.row(t);
    for (Index c = 0; c < z.cols; ++c) to[c] = factor * from[c] - m[c];
  }
}

// What one thread works in.
template <class S>
struct Room {
  std::vector<S> columns, square, mean;
};

// Adds what (2) wants to know of a few columns.
template <class S>
class Adding {
 public:
  Adding(Room<S>& room, Index tokens, Index wide, CentredRows& sum) : room_(room), square_(nullptr, 0, 0), sum_(sum) {
    room.columns.resize(static_cast<std::size_t>(tokens * wide));
    room.square.resize(static_cast<std::size_t>(tokens * tokens));
    room.mean.resize(static_cast<std::size_t>(wide));
    square_ = {room.square.data(), tokens, tokens};
  }

  // columns [c0, c0 + x.cols) of the whole
  void add(View<const S> x, Index c0, std::span<const Index> skip) {
    multiply(x, c0, skip, S(1));
    // squares of what is far from 1 leave the range of floats
    double size = mean_square_;
    for (Index t = 0; t < x.rows; ++t) size = std::max(size, static_cast<double>(square_(t, t)));
    constexpr int most = 60;
    const int power = size > std::ldexp(1.0, most) || size < std::ldexp(1.0, -most) ? power_of(x) : 0;
    if (power != 0) multiply(x, c0, skip, std::ldexp(S(1), -power));
    const double grow = std::ldexp(1.0, 2 * power);
    const View<const S> z(room_.columns.data(), x.rows, x.cols);
    for (Index t = 0; t < x.rows; ++t) {
      double* to = sum_.gram.data() + t * x.rows;
      const S* from = square_.row(t);
      for (Index s = 0; s <= t; ++s) to[s] += grow * static_cast<double>(from[s]);
      sum_.along[static_cast<std::size_t>(t)] +=
          grow * static_cast<double>(dot_row(z.row(t), static_cast<const S*>(room_.mean.data()), z.cols));
    }
    sum_.mean_square += grow * mean_square_;
  }

 private:
  void multiply(View<const S> x, Index c0, std::span<const Index> skip, S factor) {
    const View<S> z(room_.columns.data(), x.rows, x.cols);
    centre(x, factor, z, room_.mean);
    for (auto it = std::ranges::lower_bound(skip, c0); it != skip.end() && *it < c0 + x.cols; ++it) {
      for (Index t = 0; t < x.rows; ++t) z(t, *it - c0) = S(0);
      room_.mean[static_cast<std::size_t>(*it - c0)] = S(0);
    }
    mean_square_ = 0;
    for (Index c = 0; c < x.cols; ++c) {
      const auto m = static_cast<double>(room_.mean[static_cast<std::size_t>(c)]);
      mean_square_ += m * m;
    }
    const View<const S> all = z;
    for (Index t0 = 0; t0 < x.rows; t0 += rows_at_once) {
      const Index rows = std::min(rows_at_once, x.rows - t0);
      gemm(Trans::no, Trans::yes, S(1), all.slice(t0, rows), all.slice(0, t0 + rows), S(0), square_.block(t0, rows, 0, t0 + rows));
    }
  }

  // of the largest number; 0 where there is none
  static int power_of(View<const S> x) {
    S most = S(0);
    for (Index t = 0; t < x.rows; ++t) {
      for (Index c = 0; c < x.cols; ++c) most = std::max(most, std::abs(x(t, c)));
    }
    return most > S(0) && std::isfinite(most) ? std::clamp(std::ilogb(most), -120, 120) : 0;
  }

  Room<S>& room_;
  View<S> square_;
  CentredRows& sum_;
  double mean_square_ = 0;
};

}  // namespace

template <class S>
CentredRows centred_rows(View<const S> x, std::span<const Index> skip) {
  const Cut cut(x.cols);
  const auto size = static_cast<std::size_t>(x.rows);
  std::vector<CentredRows> sums(static_cast<std::size_t>(cut.sums()));
  parallel_for(cut.sums(), [&](Index i) {
    CentredRows& sum = sums[static_cast<std::size_t>(i)];
    sum = {x.rows, std::vector<double>(size * size), std::vector<double>(size), 0};
    thread_local Room<S> room;
    Adding<S> adding(room, x.rows, cut.wide, sum);
    for (Index c0 = i * cut.each; c0 < std::min(cut.n, (i + 1) * cut.each); c0 += cut.wide) {
      adding.add(x.columns(c0, std::min(cut.wide, cut.n - c0)), c0, skip);
    }
  });
  CentredRows& total = sums.front();
  for (std::size_t i = 1; i < sums.size(); ++i) {
    std::ranges::transform(total.gram, sums[i].gram, total.gram.begin(), std::plus<>());
    std::ranges::transform(total.along, sums[i].along, total.along.begin(), std::plus<>());
    total.mean_square += sums[i].mean_square;
  }
  return std::move(total);
}

double product_squares(const CentredRows& x, const CentredRows& d) {
  const auto tokens = static_cast<std::size_t>(x.tokens);
  const auto t_count = static_cast<double>(x.tokens);
  double below = 0, diagonal = 0, along = 0;
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t s = 0; s < t; ++s) below += x.gram[t * tokens + s] * d.gram[t * tokens + s];
    diagonal += x.gram[t * tokens + t] * d.gram[t * tokens + t];
    along += x.along[t] * d.along[t];
  }
  const double squares = t_count * t_count * x.mean_square * d.mean_square + 2 * t_count * along + 2 * below + diagonal;  // (2)
  return squares < 0 ? 0 : squares;  // rounding of what is 0; NaN stays
}

template CentredRows centred_rows(View<const float>, std::span<const Index>);
template CentredRows centred_rows(View<const double>, std::span<const Index>);

}  // namespace stepzero
