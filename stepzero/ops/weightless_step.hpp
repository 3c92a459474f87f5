#pragma once
// A matrix that is never made, met again after its first update.
//
// Both doors have seen it (ops/weightless.hpp): X W' = s L Z, and dY W, dY = C F' with F' F = I, F' W0 = s N. The rest is as random as
// before. An update made of its gradient, W <- (1 - eta lambda) W - eta U, then meets other inputs:
//
//     X~ W' = s A Z + s P N' F' + s L_P (Z2 - Z2 F F'),   A = X~ B,  P = X~ - A B',  P P' = L_P L_P',  Z2 standard normal     (10)
//     Y~    = (1 - eta lambda) X~ W' - eta X~ U' + 1 b'                                                                     (11)
//     X~ U' = (X~ X' k) dY        SGD: k a number; Muon: polar(g) = F polar(C' L) B', g = dY' X                              (12)
//     X~ U'  by blocks of g       U a function of each number of g: AdamW g / (|g| + eps), Lion sign g                       (13)
//
// Where the tokens are those of before, only their change D = X~ - X goes through (10): Y is known, and small steps lose no digits.
//
//     Y~ - Y = [D W'] - [eta (X U' + lambda Y)] - [eta (D U' + lambda D W')]      carried, direct, both                      (14)
//
// Explicit rows of a tied table have been updated as what they are; their columns are inner products.
// Derived in docs/derivations/weightless.md
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "stepzero/ops/weightless.hpp"

namespace stepzero {

// What an optimizer makes of the gradient of one matrix. `core` is that of (12), in the joint spaces of all blocks of its tensor.
template <class S>
struct MatrixUpdate {
  double rate = 0, decay = 0;
  double times = 0;                                 // SGD: U = times g
  std::function<void(S* g, Index n)> by_element{};  // (13): g becomes U
  std::shared_ptr<const RowSpace> left{}, right{};  // Muon: those of dY and X
  Tensor<double> core{};                            // (rank of left, rank of right), row-major, of U
};

// Sums over the numbers of an output or of a matrix.
struct StepSums {
  double direct = 0, carried = 0, with_bias = 0;  // squares, over tokens and channels: by the matrix alone, and with its bias
  double entries = 0;
  double update_squares = 0;  // of U
  double along = 0;           // <g, U>
  bool swept = false;         // the last two are there
};

template <class S>
struct FirstPass {
  Tensor<S> x, y, dy, bias, rows;  // bias: of all pieces; rows: the explicit ones; both before the update
  RowSpace space, down;
  bool same_tokens = false;
  MatrixUpdate<S> update;
  StepSums sums;
};

namespace met_again {

template <class S>
Tensor<S> copy(View<const S> from) {
  Tensor<S> to(from.rows, from.cols);
  for (Index r = 0; r < from.rows; ++r) std::copy_n(from.row(r), from.cols, to.view().row(r));
  return to;
}

template <class S>
Tensor<S> zeros(Index rows, Index cols) {
  Tensor<S> to(rows, cols);
  std::fill_n(to.data(), to.size(), S(0));
  return to;
}

inline View<double> square(std::vector<double>& a, Index rows, Index cols) { return {a.data(), rows, cols}; }

// X~ W' without the mean of W: (10)
template <class S>
void old_matrix(const WeightlessLinear& w, View<const S> x, const FirstPass<S>& first, View<S> y) {
  const Index rows = x.rows, tokens = first.space.tokens;
  const Index r = w.s == 0 ? 0 : first.space.rank, q = w.s == 0 || !w.recall ? 0 : first.down.rank;
  std::vector<double> along = inner_products(x, View<const S>(first.x));
  const View<double> a = square(along, rows, tokens);
  first.space.project(a);
  const Tensor<S> az = narrow<S>(a, r, w.s);
  for_column_chunks(w.out, [&](Index, Index c0, Index c1) {
    const Tensor<S> z = w.draw_seen<S>(w.seen, r, tokens, c0, c1);
    gemm(Trans::no, Trans::no, S(1), az.view(), z.view(), S(0), y.columns(c0, c1 - c0));
  });
  if (w.s == 0) return;
  Tensor<S> p = copy(x);
  first.space.lift(a);
  const Tensor<S> m = narrow<S>(a, tokens, -1);
  wide_product(m.view(), View<const S>(first.x), true, p.view());
  const RowSpace rest = factor(gram(View<const S>(p)), rows);
  // what multiplies dY: P N' of what the way up saw, and - L_P Z2 F of the new part
  Accumulator pn(rows, tokens, column_pieces(w.in));
  for_column_chunks(w.in, [&](Index piece, Index c0, Index c1) {
    const Tensor<S> n = w.draw<S>(w.unseen, q, tokens, c0, c1);
    Tensor<S> part(rows, q);
    gemm(Trans::no, Trans::yes, S(w.s), View<const S>(p).columns(c0, c1 - c0), n.view(), S(0), part.view());
    pn.add(piece, View<const S>(part));
  });
  const Index fresh = w.renew ? rest.rank : 0;
  const Tensor<S> l = narrow<S>(rest.left(), fresh, w.s);
  Accumulator zd(rows, tokens, column_pieces(w.out));
  for_column_chunks(w.out, [&](Index piece, Index c0, Index c1) {
    const Tensor<S> z = w.draw_seen<S>(w.fresh, fresh, rows, c0, c1);
    gemm(Trans::no, Trans::no, S(1), l.view(), z.view(), S(1), y.columns(c0, c1 - c0));
    Tensor<S> part(fresh, tokens);
    gemm(Trans::no, Trans::yes, S(1), z.view(), View<const S>(first.dy).columns(c0, c1 - c0), S(0), part.view());
    zd.add(piece, View<const S>(part));
  });
  if (q == 0) return;
  const View<double> on_f = pn.total(), zf = zd.total();
  first.down.project(zf);
  for (Index t = 0; t < rows; ++t) {
    for (Index k = 0; k < q; ++k) {
      double sum = 0;
      for (Index j = 0; j < fresh; ++j) sum += rest.row(t)[j] * zf(j, k);
      on_f(t, k) -= w.s * sum;
    }
  }
  first.down.lift(on_f);
  const Tensor<S> c = narrow<S>(on_f, tokens, 1);
  wide_product(c.view(), View<const S>(first.dy), true, y);
}

// X~ U' of an update of low rank: (12)
template <class S>
void low_rank(const FirstPass<S>& first, View<const S> x, View<S> xu) {
  const MatrixUpdate<S>& u = first.update;
  const Index tokens = first.space.tokens;
  std::vector<double> inner = inner_products(x, View<const S>(first.x));
  const View<double> a = square(inner, x.rows, tokens);
  if (u.left) {
    u.right->project(a);
    for (Index t = 0; t < x.rows; ++t) {
      std::vector<double> b(static_cast<std::size_t>(u.core.rows()), 0.0);
      for (Index i = 0; i < u.core.rows(); ++i)
        b[static_cast<std::size_t>(i)] = dot_row<double>(u.core.view().row(i), a.row(t), u.core.cols());
      std::ranges::copy(b, a.row(t));
    }
    u.left->lift(a);
  }
  const Tensor<S> c = narrow<S>(a, tokens, u.left ? 1 : u.times);
  wide_product(c.view(), View<const S>(first.dy), false, xu);
}

// X~ U' of an update by elements, and the sums of U: (13). A piece is some rows of W.
template <class S>
void by_blocks(const WeightlessLinear& w, FirstPass<S>& first, View<const S> x, View<S> xu) {
  constexpr Index rows = 512, columns = 256;  // half a megabyte stays in the cache
  const Index pieces = (w.out + rows - 1) / rows;
  std::vector<StepSums> parts(static_cast<std::size_t>(pieces));
  parallel_for(std::max<Index>(pieces, 2), [&](Index piece) {  // two turns at least: see for_column_chunks
    if (piece >= pieces) return;
    const Index i0 = piece * rows, m = std::min(rows, w.out - i0);
    Tensor<S> d = copy(View<const S>(first.dy).columns(i0, m));
    for (auto it = std::ranges::lower_bound(w.rows, i0); it != w.rows.end() && *it < i0 + m; ++it) {
      for (Index t = 0; t < d.rows(); ++t) d(t, *it - i0) = S(0);
    }
    Tensor<S> block(m, columns), gradient(1, columns);
    StepSums& sum = parts[static_cast<std::size_t>(piece)];
    for (Index j0 = 0; j0 < w.in; j0 += columns) {
      const Index n = std::min(columns, w.in - j0);
      const View<S> u(block.data(), m, n);  // at first of the gradient itself
      gemm(Trans::yes, Trans::no, S(1), View<const S>(d), View<const S>(first.x).columns(j0, n), S(0), u);
      for (Index i = 0; i < m; ++i) {
        std::copy_n(u.row(i), n, gradient.data());
        first.update.by_element(u.row(i), n);
        sum.update_squares += static_cast<double>(dot_row<S>(u.row(i), u.row(i), n));
        sum.along += static_cast<double>(dot_row<S>(gradient.data(), u.row(i), n));
      }
      if (x.rows > 0) gemm(Trans::no, Trans::yes, S(1), x.columns(j0, n), View<const S>(u), S(j0 > 0), xu.columns(i0, m));
    }
  });
  for (const StepSums& part : parts) {
    first.sums.update_squares += part.update_squares;
    first.sums.along += part.along;
  }
}

// The sums of U where it has low rank. The explicit rows are not in them.
template <class S>
void sums_of_low_rank(FirstPass<S>& first) {
  const MatrixUpdate<S>& u = first.update;
  const Index tokens = first.space.tokens;
  if (!u.left) {
    const double squares =
        frobenius(View<const double>(first.space.gram.data(), tokens, tokens), View<const double>(first.down.gram.data(), tokens, tokens));
    first.sums.update_squares = u.times * u.times * squares;
    first.sums.along = u.times * squares;
    return;
  }
  // of this block: U_b = dY_b' K X with K = C^-T core L^-1, so that both are sums over pairs of tokens
  Tensor<double> k = zeros<double>(tokens, tokens);
  for (Index i = 0; i < u.core.rows(); ++i) std::copy_n(u.core.view().row(i), u.core.cols(), k.view().row(i));
  u.right->lift(k.view());
  Tensor<double> turned(tokens, tokens);
  for (Index i = 0; i < tokens; ++i) {
    for (Index j = 0; j < tokens; ++j) turned(j, i) = k(i, j);
  }
  u.left->lift(turned.view());  // turned' = K
  const View<const double> xx(first.space.gram.data(), tokens, tokens), dd(first.down.gram.data(), tokens, tokens);
  Tensor<double> kx(tokens, tokens), dk(tokens, tokens);
  gemm_reference<double>(Trans::yes, Trans::no, 1, turned.view(), xx, 0, kx.view());  // K X X'
  gemm_reference<double>(Trans::no, Trans::yes, 1, dd, turned.view(), 0, dk.view());  // dY dY' K
  for (Index i = 0; i < tokens; ++i) {
    for (Index j = 0; j < tokens; ++j) first.sums.update_squares += dk(i, j) * kx(i, j);  // <D'KX, D'KX> = <DD' K, K XX'>
    for (Index j = 0; j < tokens; ++j) first.sums.along += dd(i, j) * kx(j, i);           // <D'X, D'KX> = tr(DD' K XX')
  }
}

template <class S>
void products(const WeightlessLinear& w, FirstPass<S>& first, View<const S> x, View<S> xu) {
  const bool swept = std::exchange(first.sums.swept, true);
  if (first.x.rows() == 0) return clear(xu);  // an expert that no token chose
  if (first.update.by_element) {
    StepSums before = first.sums;
    by_blocks(w, first, x, xu);
    if (swept) first.sums = before;
    return;
  }
  if (x.rows > 0) low_rank(first, x, xu);
  if (!swept) sums_of_low_rank(first);
}

}  // namespace met_again

template <class S>
void remember(const WeightlessLinear& w, const Up<S>& p, const RowSpace& space, const RowSpace& down, FirstPass<S>& to) {
  using met_again::copy;
  to = {};
  to.x = copy(p.x[0]);
  to.dy = copy(p.dy);
  to.space = space;
  to.down = down;
  to.same_tokens = !p.y.empty();
  if (to.same_tokens) to.y = copy(p.y);
  if (!w.rows.empty()) to.rows = copy(p.theta[0]);
  if (!w.bias) return;
  to.bias = met_again::zeros<S>(1, w.out);
  add_bias(p.theta.subspan(static_cast<std::size_t>(w.pieces)), to.bias.view());
}

// The sums of U, where the matrix is not met again.
template <class S>
void sweep(const WeightlessLinear& w, FirstPass<S>& first) {
  if (!first.sums.swept) met_again::products(w, first, View<const S>(first.x.data(), 0, w.in), View<S>());
}

namespace met_again {

// Columns of the explicit rows: <D, w> carried, <X, w~ - w> direct, <D, w~ - w> both.
template <class S>
void explicit_columns(const WeightlessLinear& w, const Down<S>& p, const FirstPass<S>& first, View<const S> d, View<S> carried,
                      View<S> direct, View<S> both) {
  if (w.rows.empty()) return;
  const Index count = std::ssize(w.rows), tokens = d.rows;
  Tensor<S> change = copy(p.theta[0]);
  for (Index i = 0; i < change.size(); ++i) change.data()[i] -= first.rows.data()[i];
  const auto put = [&](View<const S> x, View<const S> table, View<S> to) {
    const std::vector<double> values = inner_products(x, table);
    for (Index t = 0; t < tokens; ++t) {
      for (Index k = 0; k < count; ++k)
        to(t, w.rows[static_cast<std::size_t>(k)]) = static_cast<S>(values[static_cast<std::size_t>(t * count + k)]);
    }
  };
  put(d, first.rows.view(), carried);
  put(View<const S>(first.x), View<const S>(change), direct);
  put(d, View<const S>(change), both);
}

// The tokens are those of before: (14)
template <class S>
void change_of(const WeightlessLinear& w, const Down<S>& p, FirstPass<S>& first) {
  const Index tokens = p.y.rows;
  const S rate = S(first.update.rate), decay = S(first.update.rate * first.update.decay);
  Tensor<S> both_inputs(2 * tokens, w.in);
  const View<S> x = both_inputs.view().slice(0, tokens), d = both_inputs.view().slice(tokens, tokens);
  for (Index t = 0; t < tokens; ++t) {
    for (Index i = 0; i < w.in; ++i) {
      x(t, i) = first.x(t, i);
      d(t, i) = p.x[0](t, i) - first.x(t, i);
    }
  }
  Tensor<S> xu(2 * tokens, w.out), carried(tokens, w.out);
  products(w, first, View<const S>(both_inputs), xu.view());
  old_matrix(w, View<const S>(d), first, carried.view());
  if (w.u != 0) w.add_row_sums(View<const S>(d), {}, carried.view());
  const View<S> direct = xu.view().slice(0, tokens), both = xu.view().slice(tokens, tokens);
  for (Index t = 0; t < tokens; ++t) {
    for (Index c = 0; c < w.out; ++c) {
      const S old = first.y(t, c) - (w.bias ? first.bias(0, c) : S(0));
      direct(t, c) = -rate * direct(t, c) - decay * old;
      both(t, c) = -rate * both(t, c) - decay * carried(t, c);
    }
  }
  explicit_columns(w, p, first, View<const S>(d), carried.view(), direct, both);
  Tensor<S> bias = zeros<S>(1, w.out);
  if (w.bias) add_bias(p.theta.subspan(static_cast<std::size_t>(w.pieces)), bias.view());
  for (Index c = 0; w.bias && c < w.out; ++c) bias(0, c) -= first.bias(0, c);
  StepSums& sums = first.sums;
  sums.entries = static_cast<double>(tokens * w.out);
  for (Index t = 0; t < tokens; ++t) {
    for (Index c = 0; c < w.out; ++c) {
      const double own = static_cast<double>(direct(t, c)), by_input = static_cast<double>(carried(t, c)),
                   all = own + static_cast<double>(bias(0, c));
      sums.direct += own * own;
      sums.with_bias += all * all;
      sums.carried += by_input * by_input;
      p.y(t, c) = static_cast<S>(static_cast<double>(first.y(t, c)) + (by_input + all + static_cast<double>(both(t, c))));
    }
  }
}

// Other tokens: (11)
template <class S>
void output_of(const WeightlessLinear& w, const Down<S>& p, FirstPass<S>& first) {
  const S rate = S(first.update.rate), kept = S(1 - first.update.rate * first.update.decay);
  Tensor<S> xu(p.y.rows, w.out);
  products(w, first, p.x[0], xu.view());
  old_matrix(w, p.x[0], first, p.y);
  if (w.u != 0) w.add_row_sums(p.x[0], {}, p.y);
  for (Index t = 0; t < p.y.rows; ++t) {
    for (Index c = 0; c < w.out; ++c) p.y(t, c) = kept * p.y(t, c) - rate * xu(t, c);
  }
  const std::vector<double> known = w.rows.empty() ? std::vector<double>() : inner_products(p.x[0], p.theta[0]);
  for (Index t = 0; t < p.y.rows; ++t) {
    for (std::size_t k = 0; k < w.rows.size(); ++k)
      p.y(t, w.rows[k]) = static_cast<S>(known[static_cast<std::size_t>(t) * w.rows.size() + k]);
  }
  if (w.bias) add_bias(p.theta.subspan(static_cast<std::size_t>(w.pieces)), p.y);
}

}  // namespace met_again

template <class S>
void meet_again(const WeightlessLinear& w, const Down<S>& p, FirstPass<S>& first) {
  if (!first.space.finite || !first.down.finite || !std::isfinite(static_cast<double>(p.x[0](0, 0)))) return w.fill_nan(p.y);
  first.same_tokens ? met_again::change_of(w, p, first) : met_again::output_of(w, p, first);
}

}  // namespace stepzero
