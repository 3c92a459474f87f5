#pragma once
// What       y_t = W x_t + b for a random W that is never made: only what the T tokens see of it is drawn. Also the
//            embedding whose table has only the rows that occur.
// Shapes     x (T, n); y (T, m); b (m); W (m, n), entries iid N(u, s^2). L (T, r) and B (n, r), r = rank of X; C (T, q),
//            q = rank of dY; Z (r, m) and N (q, n), entries iid N(0, 1), functions of (seed, name, element).
// Forward    X = L B',  B' B = I                                            (1)
//            Y = s L Z + u X 1 1' + 1 b'                                    (2)
// Backward   dY dY' = C C'                                                  (3)
//            E = s C N                                                      (4)
//            dX = E + (s dY Z' - E B) B' + u dY 1 1'                        (5)
//            ||dW||^2 = <X X', dY dY'>                                      (6)
// Tied       a row w_v of W that occurs among the inputs is explicit; Z and (3) to (6) speak of the others:
//            y_tv = <x_t, w_v>                                              (7)
//            dX += dy_v w_v',  dw_v = X' dy_v,  dy_v = column v of dY       (8)
// Embedding  y_t = E[id_t],  dE_v = sum over t with id_t = v of dy_t        (9)
// Push       that of linear.hpp and embedding.hpp: moments need no draw
// Pull       likewise
// Assumes    W Gaussian and used once: (Y, dX, ||dW||) then have the joint distribution that a real W gives, at any width.
//            Uniform and truncated entries follow it up to O(1/n)
// Derived in docs/derivations/weightless.md
#include <algorithm>
#include <limits>
#include <variant>

#include "stepzero/core/random.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/products.hpp"
#include "stepzero/kernels/row_space.hpp"
#include "stepzero/kernels/rows.hpp"
#include "stepzero/ops/embedding.hpp"
#include "stepzero/ops/linear.hpp"

namespace stepzero {

// A stand-in has the value doors of the op it stands for. Both also get the row space of its first input; the door up returns the
// squared norms of the gradients of its first parameters, which are not stored.
template <class T>
concept StandIn =
    requires(const T& op, const Down<float>& df, const Down<double>& dd, const Up<float>& uf, const Up<double>& ud, const RowSpace& space) {
      { op.forward(df, space) } -> std::same_as<void>;
      { op.forward(dd, space) } -> std::same_as<void>;
      { op.backward(uf, space) } -> std::same_as<std::vector<double>>;
      { op.backward(ud, space) } -> std::same_as<std::vector<double>>;
    };

// The gradient of these rows of W alone.
template <class S>
void row_gradients(View<const S> x, View<const S> dy, std::span<const Index> rows, const Into<S>& dw) {
  if (!dw.wanted()) return;
  Tensor<S> columns(std::ssize(rows), dy.rows);
  for (Index k = 0; k < columns.rows(); ++k) {
    for (Index t = 0; t < dy.rows; ++t) columns(k, t) = dy(t, rows[static_cast<std::size_t>(k)]);
  }
  wide_product(View<const S>(columns), x, dw.add, dw.d);  // (8)
}

struct WeightlessLinear;
template <class S>
struct FirstPass;  // ops/weightless_step.hpp

template <class S>
void meet_again(const WeightlessLinear& w, const Down<S>& p, FirstPass<S>& first);
template <class S>
void remember(const WeightlessLinear& w, const Up<S>& p, const RowSpace& space, const RowSpace& down, FirstPass<S>& to);

// The first `columns` columns of a (rows, T) matrix of doubles, times a factor, as S.
template <class S>
Tensor<S> narrow(View<const double> from, Index columns, double factor) {
  Tensor<S> to(from.rows, columns);
  for (Index t = 0; t < from.rows; ++t) {
    for (Index k = 0; k < columns; ++k) to(t, k) = static_cast<S>(factor * from(t, k));
  }
  return to;
}

struct WeightlessLinear {
  Index in = 0;
  Index out = 0;
  bool bias = false;
  Index pieces = 1;              // of W and b, as in Linear
  double s = 0;                  // standard deviation of the entries of W
  double u = 0;                  // their mean
  Stream seen = {};              // of Z
  Stream unseen = {};            // of N
  Stream fresh = {};             // of what neither door has seen, when the matrix is met again
  std::vector<Index> rows = {};  // explicit rows of W, ascending; theta[0] holds them
  bool project = true;           // false: (5) without - E B, a mistake the tests must see
  bool recall = true;            // false: met again, what the way up saw is forgotten, another
  bool renew = true;             // false: met again, there is nothing new to see, another
  // Backward leaves here what both doors saw; forward meets the matrix again, after its update, where `again` says so.
  std::variant<FirstPass<float>*, FirstPass<double>*> first = {};
  bool again = false;

  template <class S>
  [[nodiscard]] FirstPass<S>* first_pass() const {
    const auto* found = std::get_if<FirstPass<S>*>(&first);
    return found == nullptr ? nullptr : *found;
  }

  template <class S>
  void forward(const Down<S>& p, const RowSpace& space) const {
    if (again) return meet_again(*this, p, *first_pass<S>());
    if (!space.finite) return fill_nan(p.y);
    const Index r = s == 0 ? 0 : space.rank;
    const Tensor<S> l = narrow<S>(space.left(), r, s);  // (1)
    for_column_chunks(out, [&](Index, Index c0, Index c1) {
      const Tensor<S> z = draw<S>(seen, r, space.tokens, c0, c1);
      gemm(Trans::no, Trans::no, S(1), l.view(), z.view(), S(0), p.y.columns(c0, c1 - c0));  // (2)
    });
    if (u != 0) add_row_sums(p.x[0], {}, p.y);
    if (!rows.empty()) put_columns(inner_products(p.x[0], p.theta[0]), p.y);  // (7)
    if (bias) add_bias(p.theta.subspan(pieces), p.y);
  }

  template <class S>
  std::vector<double> backward(const Up<S>& p, const RowSpace& space) const {
    if (bias) sum_tokens(p.dy, p.dtheta.subspan(pieces));
    const RowSpace down = factor(gram(p.dy, rows), p.dy.rows);  // (3)
    if (FirstPass<S>* to = first_pass<S>()) remember(*this, p, space, down, *to);
    if (!space.finite || !down.finite) {
      if (p.dx[0].wanted()) fill_nan(p.dx[0].d);
      if (p.dtheta[0].wanted()) fill_nan(p.dtheta[0].d);
      return {std::numeric_limits<double>::quiet_NaN()};
    }
    if (p.dx[0].wanted()) input_gradient(p, space, down);
    if (!rows.empty()) explicit_gradients(p);
    const auto square = [&](const auto& gram) { return View<const double>(gram.data(), space.tokens, space.tokens); };
    return {frobenius(square(space.gram), square(down.gram))};  // (6)
  }

  // The columns [c0, c1) of a matrix with `count` rows. A chunk is one run of its stream.
  template <class S>
  Tensor<S> draw(const Stream& stream, Index count, Index tokens, Index c0, Index c1) const {
    Tensor<S> z(count, c1 - c0);
    fill(Distribution::normal(1), stream, static_cast<std::uint64_t>(c0 * tokens),
         std::span<S>(z.data(), static_cast<std::size_t>(z.size())));
    return z;
  }

  // Z, without the explicit rows of W.
  template <class S>
  Tensor<S> draw_seen(const Stream& stream, Index count, Index tokens, Index c0, Index c1) const {
    Tensor<S> z = draw<S>(stream, count, tokens, c0, c1);
    for (auto it = std::ranges::lower_bound(rows, c0); it != rows.end() && *it < c1; ++it) {
      for (Index k = 0; k < count; ++k) z(k, *it - c0) = S(0);
    }
    return z;
  }

  // Y += u X 1 1', without the columns of X in `skip`.
  template <class S>
  void add_row_sums(View<const S> x, std::span<const Index> skip, View<S> y) const {
    parallel_for(x.rows, [&](Index t) {
      S sum = row_sum<S>(x.cols, [&](Index i) { return x(t, i); });
      for (const Index v : skip) sum -= x(t, v);
      for (Index c = 0; c < y.cols; ++c) y(t, c) += S(u) * sum;
    });
  }

  template <class S>
  static void fill_nan(View<S> y) {
    for (Index t = 0; t < y.rows; ++t) std::fill_n(y.row(t), y.cols, std::numeric_limits<S>::quiet_NaN());
  }

 private:
  template <class S>
  void input_gradient(const Up<S>& p, const RowSpace& space, const RowSpace& down) const {
    const Into<S>& dx = p.dx[0];
    const Index tokens = space.tokens;
    const Index r = s == 0 ? 0 : space.rank;
    const Index q = s == 0 ? 0 : down.rank;
    Accumulator dyz(tokens, tokens, column_pieces(out));
    for_column_chunks(out, [&](Index piece, Index c0, Index c1) {
      const Tensor<S> z = draw_seen<S>(seen, r, tokens, c0, c1);
      Tensor<S> part(tokens, r);
      gemm(Trans::no, Trans::yes, S(s), p.dy.columns(c0, c1 - c0), View<const S>(z), S(0), part.view());
      dyz.add(piece, View<const S>(part));
    });
    const Tensor<S> c = narrow<S>(down.left(), q, s);
    Accumulator ex(tokens, tokens, column_pieces(in));
    for_column_chunks(in, [&](Index piece, Index c0, Index c1) {
      const Tensor<S> n = draw<S>(unseen, q, tokens, c0, c1);
      Tensor<S> e(tokens, c1 - c0), part(tokens, tokens);
      gemm(Trans::no, Trans::no, S(1), c.view(), n.view(), S(0), e.view());  // (4)
      gemm(Trans::no, Trans::yes, S(1), View<const S>(e), p.x[0].columns(c0, c1 - c0), S(0), part.view());
      ex.add(piece, View<const S>(part));
      for (Index t = 0; t < tokens; ++t) {
        for (Index i = c0; i < c1; ++i) store(dx, t, i, e(t, i - c0));
      }
    });
    const View<double> a = dyz.total();
    const View<double> eb = ex.total();
    if (project) {
      space.project(eb);
      for (Index t = 0; t < tokens; ++t) {
        for (Index k = 0; k < space.rank; ++k) a(t, k) -= eb(t, k);
      }
    }
    space.lift(a);
    const Tensor<S> m = narrow<S>(a, tokens, 1);
    wide_product(m.view(), p.x[0], true, dx.d);  // (5)
    if (u != 0) add_row_sums(p.dy, rows, dx.d);
  }

  // What the explicit rows of a tied table add.
  template <class S>
  void explicit_gradients(const Up<S>& p) const {
    if (p.dx[0].wanted()) {
      Tensor<S> dy(p.dy.rows, static_cast<Index>(rows.size()));
      for (Index t = 0; t < dy.rows(); ++t) {
        for (Index k = 0; k < dy.cols(); ++k) dy(t, k) = p.dy(t, rows[static_cast<std::size_t>(k)]);
      }
      wide_product(View<const S>(dy), p.theta[0], true, p.dx[0].d);  // (8)
    }
    row_gradients(p.x[0], p.dy, rows, p.dtheta[0]);
  }

  template <class S>
  void put_columns(const std::vector<double>& values, View<S> y) const {
    for (Index t = 0; t < y.rows; ++t) {
      for (std::size_t k = 0; k < rows.size(); ++k) y(t, rows[k]) = static_cast<S>(values[static_cast<std::size_t>(t) * rows.size() + k]);
    }
  }
};
static_assert(StandIn<WeightlessLinear>);

inline WeightlessLinear stand_in(const Linear& op, std::vector<WeightlessLinear> matrices) {
  WeightlessLinear w = std::move(matrices.front());
  w.bias = op.bias;
  w.pieces = op.pieces;
  return w;
}

// The table is theta[0] with one row for each id that occurs; `index` says which, token by token.
struct SeenEmbedding {
  Index width = 0;
  std::vector<Index> index = {};
  Index padding = TokenEmbedding::none;
  bool encoder = false;

  template <class S>
  void forward(const Down<S>& p, const RowSpace&) const {
    for (Index t = 0; t < p.y.rows; ++t) std::copy_n(p.theta[0].row(index[static_cast<std::size_t>(t)]), width, p.y.row(t));  // (9)
  }

  template <class S>
  std::vector<double> backward(const Up<S>& p, const RowSpace&) const {
    const auto& id = p.batch.ids_for(encoder);
    scatter_rows(p.dy, p.dtheta[0], [&](Index t) {
      return id[t] == padding ? TokenEmbedding::none : index[static_cast<std::size_t>(t)];  // (9)
    });
    return {};
  }
};
static_assert(StandIn<SeenEmbedding>);

}  // namespace stepzero

#include "stepzero/ops/weightless_step.hpp"
