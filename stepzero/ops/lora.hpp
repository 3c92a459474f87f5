#pragma once
// What       y_t = (W + c B A) x_t + b: a matrix with a trainable low-rank neighbour, c = alpha / rank or alpha / sqrt(rank).
// Shapes     x (T, n); y (T, m); A (r, n); B (m, r), in as many pieces as W has; H (T, r). W and b: those of linear.hpp.
// Forward    H = X A'                                                       (1)
//            Y = X W' + 1 b' + c H B'                                       (2)
// Backward   dH = c dY B                                                    (3)
//            dX = dY W + dH A                                               (4)
//            dW = dY' X,  dA = dH' X,  dB = c dY' H                         (5)
//            db = dY' 1                                                     (6)
// Push       L_ts = n (E[w^2] + c^2 r E[b^2] E[a^2]) K_ts + E[bias^2]       (7)
// Pull       H_ts = n (E[w^2] + c^2 r E[b^2] E[a^2]) G_ts                   (8)
//            E||dW||^2 = n <K, G>,  E||dA||^2 = c^2 r n E[b^2] <K, G>,  E||dB||^2 = c^2 r n E[a^2] <K, G>         (9)
// Assumes    W, A, B independent of each other, of x and of dy, entries of zero mean
// Derived in docs/derivations/lora.md
#include "stepzero/ops/linear.hpp"

namespace stepzero {

struct LoraLinear {
  static constexpr const char* kind = "lora_linear";
  static constexpr Grade grade = Grade::exact;
  static constexpr Remake remake = Remake::always;
  static constexpr bool is_matrix = true;
  Linear base = {};  // W and b: the first parameters; behind them A, and B in pieces
  Index rank = 1;
  double scale = 1;  // c

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return base.out; }
  [[nodiscard]] Index keep() const { return rank; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return base.channel_law(); }
  [[nodiscard]] std::vector<ParamShape> params() const {
    std::vector<ParamShape> list = base.params();
    list.push_back({rank, base.in, base.in, rank});
    list.resize(list.size() + static_cast<std::size_t>(base.pieces), {base.out / base.pieces, rank, rank, base.out});
    return list;
  }

  [[nodiscard]] Index lazy_matrices(Index tokens) const { return base.lazy_matrices(tokens); }
  [[nodiscard]] Index matrices_by_norm(Index rows) const { return base.matrices_by_norm(rows); }

  // Where the adapter's parameters begin among the node's.
  [[nodiscard]] std::size_t first() const { return static_cast<std::size_t>((base.bias ? 2 : 1) * base.pieces); }

  // What the low-rank neighbour adds to what the matrix has written.
  template <class S>
  void add_low_rank(const Down<S>& p) const {
    gemm(Trans::no, Trans::yes, S(1), p.x[0], p.theta[first()], S(0), p.keep);  // (1)
    for (Index i = 0; i < base.pieces; ++i)
      gemm(Trans::no, Trans::yes, S(scale), View<const S>(p.keep), up_matrix(p.theta, i), S(1), piece(p.y, i));  // (2)
  }

  // ... and to dX; and its own gradients.
  template <class S>
  void pull_low_rank(const Up<S>& p) const {
    Tensor<S> dh(p.dy.rows, rank);
    for (Index i = 0; i < base.pieces; ++i)
      gemm(Trans::no, Trans::no, S(scale), piece(p.dy, i), up_matrix(p.theta, i), S(i == 0 ? 0 : 1), dh.view());  // (3)
    const View<const S> dh_view = std::as_const(dh).view();
    if (const auto& dx = p.dx[0]; dx.wanted()) gemm(Trans::no, Trans::no, S(1), dh_view, p.theta[first()], S(1), dx.d);  // (4)
    product(S(1), dh_view, p.x[0], p.dtheta[first()]);                                                                   // (5)
    for (Index i = 0; i < base.pieces; ++i) product(S(scale), piece(p.dy, i), p.keep, up_matrix(p.dtheta, i));           // (5)
  }

  template <class S>
  void forward(const Down<S>& p) const {
    base.forward(Down<S>{p.batch, p.x, p.theta.first(first()), p.y, {}, p.first});
    add_low_rank(p);
  }

  template <class S>
  void backward(const Up<S>& p) const {
    base.backward(Up<S>{p.batch, p.x, p.theta.first(first()), p.y, {}, p.dy, p.dx, p.dtheta.first(first()), p.first});  // (4), (5), (6)
    pull_low_rank(p);
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    const Law bias = base.bias ? p.theta[static_cast<std::size_t>(base.pieces)] : Law{};
    return push_matrix(*p.x[0], gain(p.theta), static_cast<double>(base.in), p.theta[0], bias);  // (7)
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const double inner = static_cast<double>(base.in) * frobenius(p.x[0]->K, p.dy.G);
    const double low = scale * scale * static_cast<double>(rank) * inner, share = 1 / static_cast<double>(base.pieces);
    const auto pieces = static_cast<std::size_t>(base.pieces);
    Pulled up{{UpWire(p.dy.G.scaled(gain(p.theta)))}, std::vector<double>(pieces, inner * share)};  // (8), (9)
    if (base.bias) up.dtheta.resize(2 * pieces, p.dy.G.sum() * share);
    up.dtheta.push_back(low * up_matrix(p.theta, 0).second_moment());
    up.dtheta.resize(up.dtheta.size() + pieces, low * p.theta[first()].second_moment() * share);
    return up;
  }

  // The part of the output's square that comes through the low rank.
  [[nodiscard]] double low_share(std::span<const Law> theta) const {
    const double all = gain(theta);
    return all > 0 ? low_gain(theta) / all : 0;
  }

 private:
  [[nodiscard]] double low_gain(std::span<const Law> theta) const {
    const double low = scale * scale * static_cast<double>(rank);
    return static_cast<double>(base.in) * low * theta[first()].second_moment() * up_matrix(theta, 0).second_moment();
  }
  [[nodiscard]] double gain(std::span<const Law> theta) const {
    return static_cast<double>(base.in) * theta[0].second_moment() + low_gain(theta);
  }

  // Piece i of B, of its law or of its gradient.
  template <class T>
  [[nodiscard]] const T& up_matrix(std::span<const T> theta, Index i) const {
    return theta[first() + 1 + static_cast<std::size_t>(i)];
  }
  template <class S>
  [[nodiscard]] View<S> piece(View<S> y, Index i) const {
    return y.columns(i * (base.out / base.pieces), base.out / base.pieces);
  }

  template <class S>
  static void product(S a, View<const S> dy, View<const S> x, const Into<S>& dw) {
    if (dw.wanted()) gemm(Trans::yes, Trans::no, a, dy, x, dw.beta(), dw.d);
  }
};
static_assert(Op<LoraLinear>);

}  // namespace stepzero
