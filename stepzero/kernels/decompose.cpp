#include "stepzero/kernels/decompose.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/row_combinations.hpp"
#include "stepzero/kernels/tridiagonal.hpp"

namespace stepzero::kernels {

namespace {

// Rows that make a piece of work worth a thread's while, some hundred microseconds.
Index pieces(Index flops_a_row) { return std::max<Index>(1, (Index{1} << 20) / flops_a_row); }

void normalise(double* row, std::size_t n) {
  const double size = std::sqrt(dot(row, row, n));
  for (std::size_t i = 0; i < n; ++i) row[i] /= size;
}

// m' m, its lower triangle. A panel of its rows stays in the cache while all rows pass by.
void columns_against_columns(View<const float> m, View<double> out) {
  constexpr Index panel = 32;
  const Index n = m.rows;
  std::vector<double> columns(static_cast<std::size_t>(n * n));
  const auto column = [&](Index i) { return &columns[static_cast<std::size_t>(i * n)]; };
  for (Index r = 0; r < n; ++r) {
    for (Index c = 0; c < n; ++c) column(c)[r] = static_cast<double>(m.row(r)[c]);
  }
  parallel_ranges(n, panel, [&](Index begin, Index end) {
    for (Index j = 0; j < end; ++j) {
      for (Index i = std::max(begin, j); i < end; ++i) out.row(i)[j] = dot(column(i), column(j), static_cast<std::size_t>(n));
    }
  });
}

// Row i of unit length. One that is nothing becomes a direction that the rows before it leave.
void complete(View<double> rows, Index i, bool something) {
  const auto n = static_cast<std::size_t>(rows.cols);
  for (Index turn = 0; !something && turn < 3; ++turn) {
    if (turn == 0) {
      std::fill_n(rows.row(i), n, 1.0);
      rows.row(i)[i] += static_cast<double>(rows.cols);
    }
    for (Index k = 0; k < i; ++k) subtract(rows.row(k), dot(rows.row(k), rows.row(i), n), rows.row(i), n);
    normalise(rows.row(i), n);
  }
  if (something) normalise(rows.row(i), n);
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

Svd svd(View<const float> m, Index count) {
  const Index n = m.rows;
  const auto size = static_cast<std::size_t>(n);
  Matrix square(n, n);
  columns_against_columns(m, square.view());
  Leading leading = leading_eigen(square.view(), count);
  const View<double> v(leading.vectors.data(), count, n);
  std::vector<double> left(static_cast<std::size_t>(count) * size);
  const View<double> u(left.data(), count, n);
  parallel_ranges(n, 16, [&](Index begin, Index end) {
    std::vector<double> row(size);
    for (Index r = begin; r < end; ++r) {
      std::copy_n(m.row(r), n, row.begin());
      for (Index i = 0; i < count; ++i) u.row(i)[r] = dot(row.data(), v.row(i), size);
    }
  });
  Svd out;
  for (Index i = 0; i < count; ++i) {
    const double s = std::sqrt(dot(u.row(i), u.row(i), size));
    out.s.push_back(static_cast<float>(s));
    complete(u, i, s > 1e-7 * static_cast<double>(out.s.front()));
  }
  out.u.assign(left.begin(), left.end());
  out.v.assign(leading.vectors.begin(), leading.vectors.end());
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
    row[j] *= inverse;
    for (Index i = j + 1; i < n; ++i) {
      // What is left of i bounds its product with the direction. A K that is no Gram matrix wants more; what wants far more is error alone.
      const double most = std::sqrt(std::max(a(i, i), 0.0)), wanted = row[i] * inverse;
      row[i] = std::abs(wanted) > 4 * most ? 0 : std::clamp(wanted, -most, most);
    }
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
