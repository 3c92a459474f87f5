#pragma once
// What       Every token goes through the few gated feed-forwards that its router chose, and gets their weighted sum.
// Shapes     x, y (T, n); r (T, E), the router's logits; of expert e W, V (f, n) and U (n, f); c (E), a correction of the
//            choice or none. C_t is the set of k experts that token t goes to.
// Forward    s_t = softmax(r_t) or sigmoid(r_t)                             (1)
//            C_t = the k largest s_te + c_e, all experts or those of the best groups                         (2)
//            g_te = a s_te / sum_C s_te', or a s_te, e in C_t               (3)
//            h_te = f(W_e x_t) o V_e x_t                                    (4)
//            y_t = sum_C U_e (g_te h_te)                                    (5)
// Backward   q_te = U_e' dy_t,  dU_e = sum_t dy_t (g_te h_te)'              (6)
//            dg_te = <h_te, q_te>,  dh_te = g_te q_te                       (7)
//            du_te = f'(u_te) o v_te o dh_te,  dv_te = f(u_te) o dh_te,  u = W_e x, v = V_e x               (8)
//            dx_t = sum_C W_e' du_te + V_e' dv_te,  dW_e = sum_t du_te x_t',  dV_e = sum_t dv_te x_t'       (9)
//            dr_t = s_t o (ds_t - <s_t, ds_t>), or s_t o (1 - s_t) o ds_t;  ds_t from dg_t; c has no gradient              (10)
// Kept       for each token: C_t, g_t, u and v of its experts.
// Push       L = M o D,  M_ts = E sum_e g_te g_se,  D the kernel of one gated feed-forward                   (11)
// Pull       H: that of one gated feed-forward, of M o G; each expert has 1/E of E||dW||^2                   (12)
//            R = E[dr dr'], dg of one expert a Gaussian field over the tokens with covariance D o G          (13)
//            gates are drawn from the kernel of r until they suffice: ops/experts_moments.cpp
// Assumes    experts drawn alike and independent; r Gaussian given its kernel; dy independent of all of them
// Derived in docs/derivations/experts.md
#include <variant>

#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/products.hpp"
#include "stepzero/kernels/rows.hpp"
#include "stepzero/ops/elementwise.hpp"
#include "stepzero/ops/experts_routing.hpp"

namespace stepzero {

template <class... Phi>
using ActivationList = std::variant<Elementwise<Phi>...>;
using AnyActivation = PhiList<ActivationList>;

// The products with the experts' matrices, which a pass has in memory.
template <class S>
struct MadeProducts {
  std::span<const View<const S>> theta;
  std::span<const Into<S>> dtheta = {};

  void down(Index k, View<const S> x, View<S> y) const { gemm(Trans::no, Trans::yes, S(1), x, theta[k], S(0), y); }
  void up(Index k, View<const S> x, View<const S> dy, const Into<S>& dx) const {
    gemm(Trans::no, Trans::no, S(1), dy, theta[k], dx.beta(), dx.d);
    if (dtheta[k].wanted()) gemm(Trans::yes, Trans::no, S(1), dy, x, dtheta[k].beta(), dtheta[k].d);
  }
  void nothing(Index k) const { clear(dtheta[k]); }  // no token chose the expert
};

struct Experts {
  static constexpr const char* kind = "experts";
  static constexpr Grade grade = Grade::approximate;
  static constexpr Index parts = 3;  // parameters of an expert: W, V, U
  Index width = 0;
  Index ffn = 0;
  Routing routing = {};
  AnyActivation act = {};

  [[nodiscard]] int inputs() const { return 2; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return routing.chosen * (2 + 2 * ffn); }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const {
    std::vector<ParamShape> list;
    for (Index e = 0; e < routing.experts; ++e) {
      list.insert(list.end(), {{ffn, width, width, ffn}, {ffn, width, width, ffn}, {width, ffn, ffn, width}});
    }
    if (routing.corrected) list.push_back({1, routing.experts, 1, routing.experts});
    return list;
  }

  [[nodiscard]] Index lazy_matrices(Index tokens) const { return std::min(width, ffn) >= tokens ? parts * routing.experts : 0; }

  template <class S>
  void forward(const Down<S>& p) const {
    down(p, MadeProducts<S>{p.theta});
  }

  template <class S>
  void backward(const Up<S>& p) const {
    up(p, MadeProducts<S>{p.theta, p.dtheta});
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const;
  [[nodiscard]] Pulled pull(const PullDoor& p) const;

  // The doors, whoever makes the products: parameter `parts` e + i is W, V or U of expert e.
  template <class S, class Products>
  void down(const Down<S>& p, const Products& product) const {
    const S* correction = routing.corrected ? p.theta.back().row(0) : nullptr;
    parallel_ranges(p.y.rows, row_grain(routing.experts), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        routing.choose(p.x[1].row(t), correction, p.keep.row(t), p.keep.row(t) + routing.chosen);  // (1) (2) (3)
        std::fill_n(p.y.row(t), width, S(0));
      }
    });
    const auto places = places_of(View<const S>(p.keep));
    for (Index e = 0; e < routing.experts; ++e) {
      const auto& own = places[static_cast<std::size_t>(e)];
      const Index rows = std::ssize(own);
      if (rows == 0) continue;
      const Tensor<S> x = gather(p.x[0], own);
      Tensor<S> u(rows, ffn), v(rows, ffn), f(rows, ffn), h(rows, ffn), out(rows, width);
      product.down(parts * e, x.view(), u.view());
      product.down(parts * e + 1, x.view(), v.view());
      hidden(u, v, f, h);  // (4)
      for (Index i = 0; i < rows; ++i) {
        const Place at = own[static_cast<std::size_t>(i)];
        std::copy_n(u.view().row(i), ffn, kept(p.keep, at, 0));
        std::copy_n(v.view().row(i), ffn, kept(p.keep, at, 1));
        scale_row(h.view().row(i), gate(View<const S>(p.keep), at), ffn);
      }
      product.down(parts * e + 2, h.view(), out.view());
      scatter(View<const S>(out), own, p.y);  // (5)
    }
  }

  template <class S, class Products>
  void up(const Up<S>& p, const Products& product) const {
    Tensor<S> dg(p.dy.rows, routing.chosen);
    clear(p.dx[0]);
    const auto places = places_of(p.keep);
    for (Index e = 0; e < routing.experts; ++e) {
      const auto& own = places[static_cast<std::size_t>(e)];
      const Index rows = std::ssize(own);
      for (Index part = 0; rows == 0 && part < parts; ++part) product.nothing(parts * e + part);
      if (rows == 0) continue;
      const Tensor<S> x = gather(p.x[0], own), dy = gather(p.dy, own);
      Tensor<S> u(rows, ffn), v(rows, ffn), f(rows, ffn), h(rows, ffn), gh(rows, ffn), q(rows, ffn), dx(rows, width);
      for (Index i = 0; i < rows; ++i) {
        const Place at = own[static_cast<std::size_t>(i)];
        std::copy_n(kept(p.keep, at, 0), ffn, u.view().row(i));
        std::copy_n(kept(p.keep, at, 1), ffn, v.view().row(i));
      }
      hidden(u, v, f, h);
      for (Index i = 0; i < rows; ++i) {
        std::copy_n(h.view().row(i), ffn, gh.view().row(i));
        scale_row(gh.view().row(i), gate(p.keep, own[static_cast<std::size_t>(i)]), ffn);
      }
      product.up(parts * e + 2, gh.view(), dy.view(), Into<S>{q.view()});  // (6)
      for (Index i = 0; i < rows; ++i) {
        const Place at = own[static_cast<std::size_t>(i)];
        dg(at.token, at.slot) = dot_row(h.view().row(i), q.view().row(i), ffn);
        scale_row(q.view().row(i), gate(p.keep, at), ffn);  // (7)
      }
      hadamard(View<const S>(q), View<const S>(v), h.view(), false);
      slope(u, h);
      hadamard(View<const S>(q), View<const S>(f), v.view(), false);  // (8)
      product.up(parts * e, x.view(), h.view(), Into<S>{dx.view()});
      product.up(parts * e + 1, x.view(), v.view(), Into<S>{dx.view(), true});
      if (p.dx[0].wanted()) scatter(View<const S>(dx), own, p.dx[0].d);  // (9)
    }
    if (p.dx[1].wanted()) router_gradient(p, View<const S>(dg));
    if (routing.corrected) clear(p.dtheta.back());
  }

 private:
  // A token at its expert: the slot-th of its own.
  struct Place {
    Index token, slot;
  };

  template <class S>
  [[nodiscard]] std::vector<std::vector<Place>> places_of(View<const S> keep_) const {
    std::vector<std::vector<Place>> places(static_cast<std::size_t>(routing.experts));
    for (Index t = 0; t < keep_.rows; ++t) {
      for (Index j = 0; j < routing.chosen; ++j) places[Routing::expert(keep_(t, j))].push_back({t, j});
    }
    return places;
  }
  template <class S>
  [[nodiscard]] S gate(View<const S> keep_, Place at) const {
    return keep_(at.token, routing.chosen + at.slot);
  }
  // u (which = 0) or v (1) of a token at its expert
  template <class S>
  [[nodiscard]] S* kept(View<S> keep_, Place at, Index which) const {
    return keep_.row(at.token) + 2 * routing.chosen + (2 * at.slot + which) * ffn;
  }

  template <class S>
  static Tensor<S> gather(View<const S> from, const std::vector<Place>& places) {
    Tensor<S> to(std::ssize(places), from.cols);
    for (Index i = 0; i < to.rows(); ++i) std::copy_n(from.row(places[static_cast<std::size_t>(i)].token), from.cols, to.view().row(i));
    return to;
  }
  template <class S>
  static void scatter(View<const S> from, const std::vector<Place>& places, View<S> to) {
    for (Index i = 0; i < from.rows; ++i) {
      S* row = to.row(places[static_cast<std::size_t>(i)].token);
      for (Index c = 0; c < from.cols; ++c) row[c] += from(i, c);
    }
  }
  template <class S>
  static void scale_row(S* row, S factor, Index n) {
    for (Index i = 0; i < n; ++i) row[i] *= factor;
  }

  // f = f(u), h = f o v
  template <class S>
  void hidden(const Tensor<S>& u, const Tensor<S>& v, Tensor<S>& f, Tensor<S>& h) const {
    std::visit([&]<class Phi>(const Elementwise<Phi>&) { apply_row<Phi>(u.data(), f.data(), u.size()); }, act);
    hadamard(View<const S>(f), View<const S>(v), h.view(), false);
  }
  // d = f'(u) o d
  template <class S>
  void slope(const Tensor<S>& u, Tensor<S>& d) const {
    std::visit([&]<class Phi>(const Elementwise<Phi>&) { apply_slope_row<Phi>(u.data(), d.data(), d.data(), u.size(), false); }, act);
  }

  template <class S>
  void router_gradient(const Up<S>& p, View<const S> dg) const {
    parallel_ranges(dg.rows, row_grain(routing.experts), [&](Index t0, Index t1) {
      std::vector<S> dr(static_cast<std::size_t>(routing.experts));
      for (Index t = t0; t < t1; ++t) {
        routing.backward(p.x[1].row(t), p.keep.row(t), dg.row(t), dr.data());  // (10)
        for (Index e = 0; e < routing.experts; ++e) store(p.dx[1], t, e, dr[static_cast<std::size_t>(e)]);
      }
    });
  }
};
static_assert(Op<Experts>);

}  // namespace stepzero
