#include "stepzero/kernels/decompose.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <utility>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/row_rotations.hpp"

namespace stepzero::kernels {

namespace {

// Rows that make a piece of work worth a thread's while, some hundred microseconds.
Index pieces(Index flops_a_row) { return std::max<Index>(1, (Index{1} << 20) / flops_a_row); }

void normalise(double* row, std::size_t n) {
  const double size = std::sqrt(dot(row, row, n));
  for (std::size_t i = 0; i < n; ++i) row[i] /= size;
}

// One pair of rows made orthogonal; false if they were.
bool make_orthogonal(float* a, float* b, float* ua, float* ub, std::size_t n) {
  constexpr float close_enough = 1e-6F;
  const float aa = dot(a, a, n);
  const float bb = dot(b, b, n);
  const float ab = dot(a, b, n);
  if (std::abs(ab) <= close_enough * std::sqrt(aa * bb)) return false;
  const float zeta = (bb - aa) / (2 * ab);
  const float t = std::copysign(1 / (std::abs(zeta) + std::sqrt(1 + zeta * zeta)), zeta);
  const float c = 1 / std::sqrt(1 + t * t);
  rotate(a, b, c, c * t, n);
  rotate(ua, ub, c, c * t, n);
  return true;
}

}  // namespace

void orthonormalise_rows(View<double> a) {
  constexpr Index panel = 32;  // rows that stay in the cache while every later row passes by
  const auto n = static_cast<std::size_t>(a.cols);
  for (Index first = 0; first < a.rows; first += panel) {
    const Index end = std::min(first + panel, a.rows);
    const auto clear = [&](Index j, Index to) {
      for (Index k = first; k < to; ++k) subtract(a.row(k), dot(a.row(k), a.row(j), n), a.row(j), n);
    };
    for (Index j = first; j < end; ++j) {
      clear(j, j);
      normalise(a.row(j), n);
    }
    parallel_ranges(a.rows - end, pieces(4 * panel * a.cols), [&](Index from, Index to) {
      for (Index j = from; j < to; ++j) clear(end + j, end);
    });
  }
}

Svd svd(View<const float> m) {
  const Index n = m.rows;
  const auto size = static_cast<std::size_t>(n);
  std::vector<float> rows(m.data, m.data + n * n);
  std::vector<float> turned(rows.size(), 0.0F);  // the product of all rotations
  for (std::size_t i = 0; i < size; ++i) turned[i * size + i] = 1;
  // A tournament: in n - 1 rounds everyone meets everyone, and the pairs of a round have nothing in common.
  const Index players = n + n % 2;
  const auto player = [&](Index round, Index seat) { return seat == 0 ? 0 : 1 + (seat - 1 + round) % (players - 1); };
  constexpr int most_sweeps = 40;
  std::atomic<bool> moved = true;
  for (int sweep = 0; sweep < most_sweeps && moved; ++sweep) {
    moved = false;
    for (Index round = 0; round + 1 < players; ++round) {
      parallel_ranges(players / 2, pieces(18 * n), [&](Index from, Index to) {
        for (Index k = from; k < to; ++k) {
          const Index i = std::min(player(round, k), player(round, players - 1 - k));
          const Index j = std::max(player(round, k), player(round, players - 1 - k));
          if (j >= n) continue;
          if (make_orthogonal(&rows[static_cast<std::size_t>(i * n)], &rows[static_cast<std::size_t>(j * n)],
                              &turned[static_cast<std::size_t>(i * n)], &turned[static_cast<std::size_t>(j * n)], size))
            moved = true;
        }
      });
    }
  }
  std::vector<float> sizes(size);
  for (std::size_t i = 0; i < size; ++i) sizes[i] = std::sqrt(dot(&rows[i * size], &rows[i * size], size));
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t x, std::size_t y) { return std::pair(-sizes[x], x) < std::pair(-sizes[y], y); });
  Svd out;
  for (const std::size_t i : order) {
    out.s.push_back(sizes[i]);
    out.u.insert(out.u.end(), &turned[i * size], &turned[i * size] + size);
    for (std::size_t c = 0; c < size; ++c) out.v.push_back(sizes[i] > 0 ? rows[i * size + c] / sizes[i] : 0);
  }
  return out;
}

Tensor<float> root(const Kernel& K, double scale) {
  const Index n = K.tokens();
  Matrix a(n, n);
  std::vector<double> diagonal(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) {
    diagonal[static_cast<std::size_t>(i)] = K(i, i);
    for (Index j = i; j < n; ++j) a(i, j) = K(i, j);
  }
  for (Index j = 0; j < n; ++j) {
    double* row = a.view().row(j);
    if (!(row[j] > 1e-10 * diagonal[static_cast<std::size_t>(j)])) {
      std::fill(row + j, row + n, 0.0);
      continue;
    }
    const double inverse = 1 / std::sqrt(row[j]);
    for (Index i = j; i < n; ++i) row[i] *= inverse;
    for (Index i = j + 1; i < n; ++i) {
      subtract(row + i, row[i], a.view().row(i) + i, static_cast<std::size_t>(n - i));
    }
  }
  Tensor<float> u(n, n);
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) u(i, j) = j < i ? 0.0F : static_cast<float>(a(i, j) * scale);
  }
  return u;
}

}  // namespace stepzero::kernels
