#include "stepzero/kernels/row_space.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/rows.hpp"

namespace stepzero {

namespace {

constexpr Index most_pieces = 16;
constexpr double smallest_pivot = 1e-12;  // sin^2 of the angle between a row and the span of the others

Index chunks_of(Index n) { return (n + chunk - 1) / chunk; }
Index chunks_in_piece(Index n) { return std::max<Index>(1, (chunks_of(n) + most_pieces - 1) / most_pieces); }

}  // namespace

Index column_pieces(Index n) { return (chunks_of(n) + chunks_in_piece(n) - 1) / chunks_in_piece(n); }

void for_column_chunks(Index n, const std::function<void(Index piece, Index c0, Index c1)>& body) {
  const Index pieces = column_pieces(n);
  const Index step = chunks_in_piece(n) * chunk;
  // At least two turns, one of which may be idle: inside a parallel loop the BLAS runs in one thread, so that its
  // blocking, and with it the bits, are the same for any number of threads.
  parallel_for(std::max<Index>(pieces, 2), [&](Index piece) {
    const Index end = std::min(n, (piece + 1) * step);
    for (Index c0 = piece * step; c0 < end; c0 += chunk) body(piece, c0, std::min(end, c0 + chunk));
  });
}

View<double> Accumulator::total() {
  const Index size = rows_ * cols_;
  for (std::size_t at = static_cast<std::size_t>(size); at < memory_.size(); at += static_cast<std::size_t>(size)) {
    for (Index i = 0; i < size; ++i) memory_[static_cast<std::size_t>(i)] += memory_[at + static_cast<std::size_t>(i)];
  }
  return {memory_.data(), rows_, cols_};
}

template <class S>
std::vector<double> gram(View<const S> x, std::span<const Index> skip) {
  const Index tokens = x.rows;
  Accumulator sum(tokens, tokens, column_pieces(x.cols));
  for_column_chunks(x.cols, [&](Index piece, Index c0, Index c1) {
    thread_local std::vector<double> memory, product;
    memory.resize(static_cast<std::size_t>(tokens * chunk));
    product.assign(static_cast<std::size_t>(tokens * tokens), 0.0);
    const View<double> part(memory.data(), tokens, c1 - c0);
    for (Index t = 0; t < tokens; ++t) std::copy(x.row(t) + c0, x.row(t) + c1, part.row(t));
    for (auto it = std::ranges::lower_bound(skip, c0); it != skip.end() && *it < c1; ++it) {
      for (Index t = 0; t < tokens; ++t) part(t, *it - c0) = 0;
    }
    const View<double> products(product.data(), tokens, tokens);
    gram_product(part, products);
    sum.add(piece, View<const double>(products));
  });
  const View<double> total = sum.total();
  for (Index t = 0; t < tokens; ++t) {
    for (Index s = 0; s < t; ++s) total(s, t) = total(t, s);
  }
  return {total.data, total.data + total.size()};
}

RowSpace factor(std::vector<double> gram, Index tokens) {
  RowSpace s;
  s.tokens = tokens;
  s.gram = std::move(gram);
  s.lower.assign(static_cast<std::size_t>(tokens * tokens), 0.0);
  const auto size = static_cast<std::size_t>(tokens);
  std::vector<double> norm(size), left(size);  // |x_t|; sin^2 of its angle to the span so far
  for (std::size_t t = 0; t < size; ++t) {
    const double square = s.gram[t * size + t];
    s.finite = s.finite && std::isfinite(square);
    norm[t] = std::sqrt(square);
    left[t] = square > 0 ? 1.0 : 0.0;
  }
  if (!s.finite) return s;
  for (; s.rank < tokens; ++s.rank) {
    const auto p = static_cast<std::size_t>(std::ranges::max_element(left) - left.begin());
    if (!(left[p] > smallest_pivot)) break;
    const double* top = s.row(static_cast<Index>(p));
    const double inverse = 1 / std::sqrt(left[p]);
    for (std::size_t t = 0; t < size; ++t) {
      if (!(left[t] > 0)) continue;
      double* row = s.lower.data() + t * size;
      const double along =
          t == p ? std::sqrt(left[p]) : (s.gram[t * size + p] / (norm[t] * norm[p]) - dot_row<double>(row, top, s.rank)) * inverse;
      row[s.rank] = along;
    }
    for (std::size_t t = 0; t < size; ++t) left[t] -= s.lower[t * size + s.rank] * s.lower[t * size + s.rank];
    left[p] = 0;
    s.pivots.push_back(static_cast<Index>(p));
  }
  for (std::size_t t = 0; t < size; ++t) {
    for (Index k = 0; k < s.rank; ++k) s.lower[t * size + k] *= norm[t];
  }
  return s;
}

void RowSpace::project(View<double> a) const {
  parallel_ranges(a.rows, 8, [&](Index r0, Index r1) {
    std::vector<double> b(static_cast<std::size_t>(rank));
    for (Index r = r0; r < r1; ++r) {
      for (Index j = 0; j < rank; ++j) {
        const Index p = pivots[static_cast<std::size_t>(j)];
        b[static_cast<std::size_t>(j)] = (a(r, p) - dot_row<double>(row(p), b.data(), j)) / row(p)[j];
      }
      std::ranges::copy(b, a.row(r));
    }
  });
}

void RowSpace::lift(View<double> a) const {
  parallel_ranges(a.rows, 8, [&](Index r0, Index r1) {
    std::vector<double> b(static_cast<std::size_t>(rank));
    for (Index r = r0; r < r1; ++r) {
      std::copy_n(a.row(r), rank, b.begin());
      std::fill_n(a.row(r), tokens, 0.0);
      for (Index j = rank; j-- > 0;) {
        const Index p = pivots[static_cast<std::size_t>(j)];
        const double m = b[static_cast<std::size_t>(j)] / row(p)[j];
        for (Index i = 0; i < j; ++i) b[static_cast<std::size_t>(i)] -= m * row(p)[i];
        a(r, p) = m;
      }
    }
  });
}

template <class S>
std::vector<double> inner_products(View<const S> a, View<const S> b) {
  Accumulator sum(a.rows, b.rows, column_pieces(a.cols));
  for_column_chunks(a.cols, [&](Index piece, Index c0, Index c1) {
    Tensor<S> part(a.rows, b.rows);
    gemm(Trans::no, Trans::yes, S(1), a.columns(c0, c1 - c0), b.columns(c0, c1 - c0), S(0), part.view());
    sum.add(piece, View<const S>(part));
  });
  const View<double> total = sum.total();
  return {total.data, total.data + total.size()};
}

template <class S>
void wide_product(View<const S> a, View<const S> b, bool add, View<S> c) {
  for_column_chunks(b.cols, [&](Index, Index c0, Index c1) {
    gemm(Trans::no, Trans::no, S(1), a, b.columns(c0, c1 - c0), S(add), c.columns(c0, c1 - c0));
  });
}

template std::vector<double> gram(View<const float>, std::span<const Index>);
template std::vector<double> gram(View<const double>, std::span<const Index>);
template std::vector<double> inner_products(View<const float>, View<const float>);
template std::vector<double> inner_products(View<const double>, View<const double>);
template void wide_product(View<const float>, View<const float>, bool, View<float>);
template void wide_product(View<const double>, View<const double>, bool, View<double>);

}  // namespace stepzero
