#pragma once
// What       A state that decays and takes in each token, by how much every token says itself (Mamba, Mamba 2).
// Shapes     x, y (T, heads d); r (T, heads); B, C (T, groups N); l (heads, N), or one for all N; D, b (heads). Below, one head of one
//            sequence and the group of B, C that it reads; the state S_t is (d, N), S_0 = 0.
// Forward    e_t = softplus(r_t + b), kept within limits;  w_tn = exp(-e_t exp(l_n))                        (1)
//            S_t = S_t-1 diag(w_t) + e_t x_t B_t'                           (2)
//            y_t = S_t C_t + D x_t                                          (3)
// Backward   g_t = diag(w_t+1) of g_t+1 + dy_t C_t', the gradient of S_t    (4)
//            dC_t = S_t' dy_t,  dB_t = e_t g_t' x_t,  dx_t = e_t g_t B_t + D dy_t,  dD = sum_t <dy_t, x_t>  (5)
//            de_t = <g_t, x_t B_t'> - <g_t, S_t-1 diag(w_t exp(l))>,  dr_t = db_t = softplus'(r_t + b) de_t  (6)
//            dl_n = -sum_t e_t w_tn exp(l_n) <g_t, S_t-1>_n                 (7)
// Push       L = E[M K_x M'],  M_ts = C_t' (prod of w between) e_s B_s + D [t = s], over drawn r, B, C      (8)
// Pull       H_x = E[M' G M];  those of r, B, C and of l, D, b from drawn x and dy through the doors above  (9)
// Assumes    r, B, C Gaussian given their kernels, x and dy independent of them; sampled
// Derived in docs/derivations/scan.md
#include <cmath>

#include "stepzero/kernels/vector_math.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Scan {
  static constexpr const char* kind = "scan";
  static constexpr Grade grade = Grade::sampled;
  static constexpr Remake remake = Remake::never;
  static constexpr bool samples = true;
  Index heads = 1;
  Index head_dim = 1;  // d
  Index states = 1;    // N
  Index groups = 1;
  bool each = true;  // a decay for each of the N
  double least = 0;  // limits of e
  double most = 1e30;

  [[nodiscard]] int inputs() const { return 4; }
  [[nodiscard]] Index channels() const { return heads * head_dim; }
  [[nodiscard]] Index keep() const { return 0; }  // states are made again on the way up
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const {
    return {{each ? heads : 1, each ? states : heads, 1, each ? states : heads}, {1, heads, 1, heads}, {1, heads, 1, heads}};
  }

  template <class S>
  void forward(const Down<S>& p) const {
    const Index length = p.y.rows / p.batch.sequences;
    parallel_for(p.batch.sequences * heads, [&](Index item) {
      const Index h = item % heads, start = item / heads * length;
      std::vector<S> state(static_cast<std::size_t>(head_dim * states), S(0)), w(static_cast<std::size_t>(states));
      const std::vector<S> rate = rates(p.theta[0], h);
      for (Index t = start; t < start + length; ++t) {
        const S e = step(p.x[1](t, h) + p.theta[2](0, h)).value;
        decays(e, rate, w);  // (1)
        for (Index i = 0; i < head_dim; ++i) {
          const S x = p.x[0](t, h * head_dim + i);
          p.y(t, h * head_dim + i) = advance(&state[static_cast<std::size_t>(i * states)], w, e * x, p.x[2].row(t) + group(h) * states,
                                             p.x[3].row(t) + group(h) * states) +
                                     p.theta[1](0, h) * x;  // (3)
        }
      }
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    const Index length = p.dy.rows / p.batch.sequences, parts = blocks(), width = groups * states;
    // Heads of a group share B and C: blocks of heads fill gradients of their own, which are then summed in fixed order.
    Tensor<S> db(p.dy.rows * parts, width), dc(p.dy.rows * parts, width);
    clear(db.view()), clear(dc.view());
    Tensor<S> dl(p.batch.sequences, heads * (each ? states : 1)), dd(p.batch.sequences, heads), dbias(p.batch.sequences, heads);
    clear(dl.view()), clear(dd.view()), clear(dbias.view());
    parallel_for(p.batch.sequences * parts, [&](Index item) {
      const Index b = item / parts, part = item % parts, own = (heads + parts - 1) / parts;
      for (Index h = part * own; h < std::min(heads, (part + 1) * own); ++h) {
        const Index at = (part * p.batch.sequences + b) * length;
        const Sums<S> to{db.view().slice(at, length), dc.view().slice(at, length), dl.view().row(b) + h * (each ? states : 1),
                         dd.view().row(b) + h, dbias.view().row(b) + h};
        backward_head(p, b, h, to);
      }
    });
    sum_blocks(View<const S>(db), parts, p.dx[2]);
    sum_blocks(View<const S>(dc), parts, p.dx[3]);
    const View<const S> of_params[] = {View<const S>(dl), View<const S>(dd), View<const S>(dbias)};
    for (Index k = 0; k < 3; ++k) sum_sequences(of_params[k], p.dtheta[k]);
  }

  // Floating-point operations of a draw of a head, down and up; about.
  [[nodiscard]] double draw_cost(const Batch& batch, double /*variance*/) const {
    const double t = static_cast<double>(batch.tokens());
    return 4 * t * t * t + 100 * t * static_cast<double>(states * head_dim);
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const;
  [[nodiscard]] Pulled pull(const PullDoor& p) const;

  // e and its derivative by r
  template <class S>
  struct Step {
    S value, slope;
  };
  template <class S>
  [[nodiscard]] Step<S> step(S r) const {
    using std::log;
    const bool large = value_of(r) > 20;
    const S e = large ? r : log(S(1) + exp(r));
    if (value_of(e) < least) return {S(least), S(0)};
    if (value_of(e) > most) return {S(most), S(0)};
    return {e, large ? S(1) : S(1) / (S(1) + exp(S(0) - r))};
  }

 private:
  [[nodiscard]] Index group(Index h) const { return h / (heads / groups); }
  [[nodiscard]] Index blocks() const { return std::min<Index>(heads, 16); }

  // exp(l_n)
  template <class S>
  [[nodiscard]] std::vector<S> rates(View<const S> l, Index h) const {
    std::vector<S> rate;
    for (Index n = 0; n < states; ++n) rate.push_back(exp(each ? l(h, n) : l(0, h)));
    return rate;
  }
  template <class S>
  void decays(S e, const std::vector<S>& rate, std::vector<S>& w) const {
    for (Index n = 0; n < states; ++n) {
      const auto i = static_cast<std::size_t>(n);
      w[i] = n > 0 && !each ? w[0] : exp(S(0) - e * rate[i]);
    }
  }
  // One channel's states one token on; what C reads of them.
  template <class S>
  [[nodiscard]] S advance(S* state, const std::vector<S>& w, S in, const S* B, const S* C) const {
    S read = S(0);
    for (Index n = 0; n < states; ++n) {
      state[n] = state[n] * w[static_cast<std::size_t>(n)] + in * B[n];  // (2)
      read += state[n] * C[n];
    }
    return read;
  }

  // Where the gradients of a head are added: rows of its sequence, and its own numbers.
  template <class S>
  struct Sums {
    View<S> B, C;
    S *l, *D, *bias;
  };

  template <class S>
  void backward_head(const Up<S>& p, Index b, Index h, const Sums<S>& to) const {
    const Index length = p.dy.rows / p.batch.sequences, start = b * length, size = head_dim * states, at = group(h) * states;
    const std::vector<S> rate = rates(p.theta[0], h);
    std::vector<S> w(static_cast<std::size_t>(states));
    Tensor<S> all(length + 1, size);  // S_t of every token, S_0 first
    std::fill_n(all.data(), size, S(0));
    for (Index t = 0; t < length; ++t) {
      const S e = step(p.x[1](start + t, h) + p.theta[2](0, h)).value;
      decays(e, rate, w);
      S* next = all.view().row(t + 1);
      std::copy_n(all.view().row(t), size, next);
      for (Index i = 0; i < head_dim; ++i)
        (void)advance(next + i * states, w, e * p.x[0](start + t, h * head_dim + i), p.x[2].row(start + t) + at,
                      p.x[3].row(start + t) + at);
    }
    std::vector<S> g(static_cast<std::size_t>(size), S(0));
    for (Index t = length; t-- > 0;) {
      const Step<S> e = step(p.x[1](start + t, h) + p.theta[2](0, h));
      decays(e.value, rate, w);
      const S *B = p.x[2].row(start + t) + at, *C = p.x[3].row(start + t) + at, *now = all.view().row(t + 1), *before = all.view().row(t);
      S de = S(0);
      for (Index i = 0; i < head_dim; ++i) {
        const Index c = h * head_dim + i;
        const S x = p.x[0](start + t, c), dy = p.dy(start + t, c);
        S* own = &g[static_cast<std::size_t>(i * states)];
        S into = S(0);
        for (Index n = 0; n < states; ++n) {
          const auto k = static_cast<std::size_t>(n);
          own[n] += dy * C[n];                          // (4)
          to.C(t, at + n) += dy * now[i * states + n];  // (5)
          to.B(t, at + n) += e.value * own[n] * x;      // (5)
          into += own[n] * B[n];
          const S faded = own[n] * before[i * states + n] * w[k] * rate[k];
          de -= faded;
          to.l[each ? n : 0] -= e.value * faded;  // (7)
          own[n] *= w[k];
        }
        de += into * x;
        if (p.dx[0].wanted()) store(p.dx[0], start + t, c, e.value * into + p.theta[1](0, h) * dy);  // (5)
        *to.D += dy * x;
      }
      const S dr = e.slope * de;  // (6)
      if (p.dx[1].wanted()) store(p.dx[1], start + t, h, dr);
      *to.bias += dr;
    }
  }

  template <class S>
  void sum_blocks(View<const S> own, Index parts, const Into<S>& into) const {
    if (!into.wanted()) return;
    const Index rows = own.rows / parts;
    for (Index t = 0; t < rows; ++t) {
      for (Index c = 0; c < own.cols; ++c) {
        S sum = S(0);
        for (Index k = 0; k < parts; ++k) sum += own(k * rows + t, c);
        store(into, t, c, sum);
      }
    }
  }
  template <class S>
  static void sum_sequences(View<const S> own, const Into<S>& into) {
    if (!into.wanted()) return;
    for (Index i = 0; i < own.cols; ++i) {
      S sum = S(0);
      for (Index b = 0; b < own.rows; ++b) sum += own(b, i);
      store(into, i / into.d.cols, i % into.d.cols, sum);
    }
  }
};
static_assert(Op<Scan>);

}  // namespace stepzero
