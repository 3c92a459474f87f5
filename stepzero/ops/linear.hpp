#pragma once
// What       y_t = W x_t + b: every token through one matrix.
// Shapes     x (T, n); y (T, m); W stored (m, n), or (n, m) as in GPT-2's Conv1D; b (m).
//            W and b may come in pieces of equal height, one parameter each: the blocks of a tensor that holds the
//            queries, keys and values head by head.
// Forward    Y = X W' + 1 b'                                                (1)
// Backward   dX = dY W                                                      (2)
//            dW = dY' X                                                     (3)
//            db = dY' 1                                                     (4)
// Push       L_ts = n E[w^2] K_ts + E[b^2]                                  (5)
// Pull       H_ts = n E[w^2] G_ts + r_t r_s K_ts / (n K_tt K_ss),  r_t = E<dy_t, y_t> of a head             (6)
//            E||dW||^2 = n <K, G>,  E||db||^2 = sum_ts G_ts                 (7)
// Assumes    W independent of x and dy, entries of zero mean
// Derived in docs/derivations/linear.md
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/product/product_norm.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

enum class Storage : bool { out_in, in_out };

// db_c (+)= sum_t dy_tc, in the order of the tokens
template <class S>
void sum_tokens(View<const S> dy, const Into<S>& db) {
  if (!db.wanted()) return;
  parallel_ranges(dy.cols, 128, [&](Index c0, Index c1) {
    S* sum = db.d.row(0);
    if (!db.add) std::fill(sum + c0, sum + c1, S(0));
    Index t = 0;
    for (; t + 4 <= dy.rows; t += 4) {
      const S *r0 = dy.row(t), *r1 = dy.row(t + 1), *r2 = dy.row(t + 2), *r3 = dy.row(t + 3);
      for (Index c = c0; c < c1; ++c) sum[c] = sum[c] + r0[c] + r1[c] + r2[c] + r3[c];
    }
    for (; t < dy.rows; ++t) {
      const S* row = dy.row(t);
      for (Index c = c0; c < c1; ++c) sum[c] += row[c];
    }
  });
}

template <class S>
void add_bias(View<const S> bias, View<S> y) {
  parallel_ranges(y.rows, row_grain(y.cols), [&](Index t0, Index t1) {
    for (Index t = t0; t < t1; ++t) {
      S* row = y.row(t);
      const S* b = bias.row(0);
      for (Index c = 0; c < y.cols; ++c) row[c] += b[c];
    }
  });
}

// What a product with a fresh random matrix makes of a wire: its kernel scaled, nothing left of the token's own
// embedding, unless the matrix is that embedding.
inline Moment push_matrix(const Moment& x, double gain, double n, const Law& w, const Law& b) {
  Moment y{.K = x.K.scaled(gain).shifted(b.second_moment())};  // (5)
  if (b.mean != 0) y.mean.assign(static_cast<std::size_t>(y.K.tokens()), b.mean);
  if (w.token_table && !x.own.empty()) {
    y.own = x.own;
    for (double& a : y.own) a *= n * w.second_moment();
  }
  return y;
}

// <dx_t, x_t> = <dy_t, y_t>: the part of dy that the matrix itself caused comes back along x.
inline Kernel with_radial(const Kernel& G, const Kernel& K, double n, const std::vector<double>& radial) {
  return Kernel::from(K.tokens(), [&](Index t, Index s) {
    const double size = n * K(t, t) * K(s, s);
    return G(t, s) + (size > 0 ? radial[static_cast<std::size_t>(t)] * radial[static_cast<std::size_t>(s)] * K(t, s) / size : 0);
  });
}

// The same for a bias in pieces of equal length.
template <class S>
void sum_tokens(View<const S> dy, std::span<const Into<S>> db) {
  const Index own = dy.cols / std::ssize(db);
  for (Index i = 0; i < std::ssize(db); ++i) sum_tokens(dy.columns(i * own, own), db[i]);
}

template <class S>
void add_bias(std::span<const View<const S>> bias, View<S> y) {
  const Index own = y.cols / std::ssize(bias);
  for (Index i = 0; i < std::ssize(bias); ++i) add_bias(bias[i], y.columns(i * own, own));
}

struct Linear {
  static constexpr const char* kind = "linear";
  static constexpr Grade grade = Grade::exact;
  static constexpr Remake remake = Remake::always;  // it shares its input's
  static constexpr bool is_matrix = true;
  Index in = 0;
  Index out = 0;
  bool bias = false;
  Storage storage = Storage::out_in;
  Index pieces = 1;  // more than one: stored out_in

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return out; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.gaussian = true}; }
  [[nodiscard]] std::vector<ParamShape> params() const {
    const bool rows_out = storage == Storage::out_in;
    const Index own = out / pieces;
    std::vector<ParamShape> list(static_cast<std::size_t>(pieces), {rows_out ? own : in, rows_out ? in : own, in, out});
    if (bias) list.resize(static_cast<std::size_t>(2 * pieces), {1, own, in, out});
    return list;
  }

  // Its matrices need not be made where they have at least as many inputs as there are tokens.
  [[nodiscard]] Index lazy_matrices(Index tokens) const { return in >= tokens ? pieces : 0; }
  // Those whose gradient's norm is cheaper than the gradient.
  [[nodiscard]] Index matrices_by_norm(Index rows) const { return norm_is_cheaper(rows, in, out) ? pieces : 0; }

  template <class S>
  void forward(const Down<S>& p) const {
    for (Index i = 0; i < pieces; ++i) gemm(Trans::no, by_out(), S(1), p.x[0], p.theta[i], S(0), piece(p.y, i));  // (1)
    if (bias) add_bias(p.theta.subspan(pieces), p.y);
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (const auto& dx = p.dx[0]; dx.wanted()) {
      for (Index i = 0; i < pieces; ++i) {
        gemm(Trans::no, by_in(), S(1), piece(p.dy, i), p.theta[i], i == 0 ? dx.beta() : S(1), dx.d);  // (2)
      }
    }
    const bool rows_out = storage == Storage::out_in;
    for (Index i = 0; i < pieces; ++i) {
      const auto& dw = p.dtheta[i];
      const View<const S> dy = piece(p.dy, i);
      if (dw.wanted()) gemm(Trans::yes, Trans::no, S(1), rows_out ? dy : p.x[0], rows_out ? p.x[0] : dy, dw.beta(), dw.d);  // (3)
    }
    if (bias) sum_tokens(p.dy, p.dtheta.subspan(pieces));  // (4)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    return push_matrix(*p.x[0], gain(p.theta[0]), static_cast<double>(in), p.theta[0], bias ? p.theta[pieces] : Law{});  // (5)
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const double n = static_cast<double>(in);
    const double share = 1 / static_cast<double>(pieces);
    Adjoint dx{p.dy.G.scaled(gain(p.theta[0])), p.dy.tied};                // (6)
    if (dx.tied) dx.G = with_radial(dx.G, p.x[0]->K, n, dx.tied->radial);  // (6)
    Pulled up{{std::move(dx)}, {}};
    up.dtheta.assign(static_cast<std::size_t>(pieces), n * frobenius(p.x[0]->K, p.dy.G) * share);  // (7)
    if (bias) up.dtheta.resize(static_cast<std::size_t>(2 * pieces), p.dy.G.sum() * share);
    return up;
  }

 private:
  // n E[w^2]: the variance of a sum of products with numbers of mean 0 and variance 1
  [[nodiscard]] double gain(const Law& w) const { return sum_of_products(in, w, {.mean = 0, .variance = 1}).variance; }
  template <class S>
  [[nodiscard]] View<S> piece(View<S> y, Index i) const {
    return y.columns(i * (out / pieces), out / pieces);
  }
  [[nodiscard]] Trans by_out() const { return storage == Storage::out_in ? Trans::yes : Trans::no; }
  [[nodiscard]] Trans by_in() const { return storage == Storage::out_in ? Trans::no : Trans::yes; }
};
static_assert(Op<Linear>);

}  // namespace stepzero
