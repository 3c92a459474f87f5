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
// Variants   the gate scales what an expert reads: y_t = sum_C expert_e(g_te x_t),  dg_te = <x_t, d(g_te x_t)>  (14)
//            u at most `most`, v within it, v + `offset` in the place of v, biases of both products             (15)
// Assumes    experts drawn alike and independent; r Gaussian given its kernel; dy independent of all of them
// Derived in docs/derivations/experts.md
#include <variant>

#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/products.hpp"
#include "stepzero/kernels/rows.hpp"
#include "stepzero/ops/elementwise.hpp"
#include "stepzero/ops/experts_routing.hpp"
#include "stepzero/ops/linear.hpp"

namespace stepzero {

template <class... Phi>
using ActivationList = std::variant<Elementwise<Phi>...>;
using AnyActivation = PhiList<ActivationList>;

// The products with the experts' matrices, which a pass has in memory.
template <class S>
struct MadeProducts {
  std::span<const View<const S>> theta;
  std::span<const Into<S>> dtheta = {};
  Storage storage = Storage::out_in;

  void down(Index k, View<const S> x, View<S> y) const { gemm(Trans::no, rows_out() ? Trans::yes : Trans::no, S(1), x, theta[k], S(0), y); }
  void up(Index k, View<const S> x, View<const S> dy, const Into<S>& dx) const {
    gemm(Trans::no, rows_out() ? Trans::no : Trans::yes, S(1), dy, theta[k], dx.beta(), dx.d);
    if (dtheta[k].wanted()) gemm(Trans::yes, Trans::no, S(1), rows_out() ? dy : x, rows_out() ? x : dy, dtheta[k].beta(), dtheta[k].d);
  }
  void nothing(Index k) const { clear(dtheta[k]); }  // no token chose the expert
  [[nodiscard]] bool rows_out() const { return storage == Storage::out_in; }
};

struct Experts {
  static constexpr const char* kind = "experts";
  static constexpr Grade grade = Grade::approximate;
  Index width = 0;
  Index ffn = 0;
  Routing routing = {};
  AnyActivation act = {};
  Storage storage = Storage::out_in;
  bool fused = false;        // W and V of an expert are one matrix
  bool interleaved = false;  // ... whose even channels are W's
  bool bias = false;         // of fused experts
  double most = 0;           // 0: no limit
  double offset = 0;
  bool scales_input = false;

  [[nodiscard]] int inputs() const { return 2; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return routing.chosen * (2 + 2 * ffn); }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const {
    std::vector<ParamShape> list;
    const auto matrix = [&](Index in, Index out) {
      list.push_back(storage == Storage::out_in ? ParamShape{out, in, in, out} : ParamShape{in, out, in, out});
    };
    for (Index e = 0; e < routing.experts; ++e) {
      if (!fused) matrix(width, ffn);
      matrix(width, fused ? 2 * ffn : ffn);
      matrix(ffn, width);
    }
    for (Index e = 0; bias && e < routing.experts; ++e) list.insert(list.end(), {{1, 2 * ffn, width, ffn}, {1, width, ffn, width}});
    if (routing.corrected) list.push_back({1, routing.experts, 1, routing.experts});
    return list;
  }

  // Matrices of an expert: W, V, U, or W and V in one and U.
  [[nodiscard]] Index matrices() const { return fused ? 2 : 3; }
  [[nodiscard]] const char* not_predicted() const { return scales_input ? "experts whose inputs are scaled by their gates" : nullptr; }

  [[nodiscard]] Index lazy_matrices(Index tokens) const { return std::min(width, ffn) >= tokens ? matrices() * routing.experts : 0; }

  template <class S>
  void forward(const Down<S>& p) const {
    down(p, MadeProducts<S>{p.theta, {}, storage});
  }

  template <class S>
  void backward(const Up<S>& p) const {
    up(p, MadeProducts<S>{p.theta, p.dtheta, storage});
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const;
  [[nodiscard]] Pulled pull(const PullDoor& p) const;

  // The doors, whoever makes the products: parameter matrices() e + i is W, V or U of expert e.
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
      Tensor<S> x = gather(p.x[0], own);
      if (scales_input) scale_by_gates(View<const S>(p.keep), own, x);  // (14)
      Tensor<S> u(rows, ffn), v(rows, ffn), f(rows, ffn), h(rows, ffn), out(rows, width);
      into_hidden(p.theta, product, e, x, u, v);
      hidden(u, v, f, h);  // (4)
      for (Index i = 0; i < rows; ++i) {
        const Place at = own[static_cast<std::size_t>(i)];
        std::copy_n(u.view().row(i), ffn, kept(p.keep, at, 0));
        std::copy_n(v.view().row(i), ffn, kept(p.keep, at, 1));
      }
      if (!scales_input) scale_by_gates(View<const S>(p.keep), own, h);
      product.down(matrices() * (e + 1) - 1, h.view(), out.view());
      for (Index i = 0; bias && i < rows; ++i) {
        const S* b = p.theta[bias_of(e, 1)].row(0);
        const S g = scales_input ? S(1) : gate(View<const S>(p.keep), own[static_cast<std::size_t>(i)]);
        for (Index c = 0; c < width; ++c) out(i, c) += g * b[c];  // (15)
      }
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
      for (Index part = 0; rows == 0 && part < matrices(); ++part) product.nothing(matrices() * e + part);
      for (Index which = 0; rows == 0 && bias && which < 2; ++which) clear(p.dtheta[bias_of(e, which)]);
      if (rows == 0) continue;
      const Tensor<S> plain = gather(p.x[0], own), dy = gather(p.dy, own);
      Tensor<S> x = gather(p.x[0], own);
      if (scales_input) scale_by_gates(p.keep, own, x);
      Tensor<S> u(rows, ffn), v(rows, ffn), f(rows, ffn), h(rows, ffn), gh(rows, ffn), q(rows, ffn), dx(rows, width);
      for (Index i = 0; i < rows; ++i) {
        const Place at = own[static_cast<std::size_t>(i)];
        std::copy_n(kept(p.keep, at, 0), ffn, u.view().row(i));
        std::copy_n(kept(p.keep, at, 1), ffn, v.view().row(i));
      }
      hidden(u, v, f, h);
      std::copy_n(h.data(), h.size(), gh.data());
      if (!scales_input) scale_by_gates(p.keep, own, gh);
      product.up(matrices() * (e + 1) - 1, gh.view(), dy.view(), Into<S>{q.view()});  // (6)
      if (bias) sum_bias(p, dy, own, e, dg);
      for (Index i = 0; !scales_input && i < rows; ++i) {
        const Place at = own[static_cast<std::size_t>(i)];
        const S along = dot_row(h.view().row(i), q.view().row(i), ffn);
        dg(at.token, at.slot) = bias ? dg(at.token, at.slot) + along : along;
        scale_row(q.view().row(i), gate(p.keep, at), ffn);  // (7)
      }
      through_hidden(u, v, f, q, h);  // (8)
      out_of_hidden(p.dtheta, product, e, x, h, v, dx);
      for (Index i = 0; scales_input && i < rows; ++i) {
        const Place at = own[static_cast<std::size_t>(i)];
        dg(at.token, at.slot) = dot_row(plain.view().row(i), dx.view().row(i), width);  // (14)
        scale_row(dx.view().row(i), gate(p.keep, at), width);
      }
      if (p.dx[0].wanted()) scatter(View<const S>(dx), own, p.dx[0].d);
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

  [[nodiscard]] std::size_t bias_of(Index e, Index which) const {
    return static_cast<std::size_t>(matrices() * routing.experts + 2 * e + which);
  }
  template <class S>
  void scale_by_gates(View<const S> keep_, const std::vector<Place>& own, Tensor<S>& rows) const {
    for (Index i = 0; i < rows.rows(); ++i) scale_row(rows.view().row(i), gate(keep_, own[static_cast<std::size_t>(i)]), rows.cols());
  }

  // u = W x, v = V x. Of one matrix for both, u and v are its halves, or its channels in turns.
  template <class S, class Products>
  void into_hidden(std::span<const View<const S>> theta, const Products& product, Index e, const Tensor<S>& x, Tensor<S>& u,
                   Tensor<S>& v) const {
    if (!fused) {
      product.down(matrices() * e, x.view(), u.view());
      return product.down(matrices() * e + 1, x.view(), v.view());
    }
    Tensor<S> both(x.rows(), 2 * ffn);
    product.down(matrices() * e, x.view(), both.view());
    if (bias) add_bias(theta[bias_of(e, 0)], both.view());  // (15)
    for (Index i = 0; i < x.rows(); ++i) {
      for (Index c = 0; c < ffn; ++c) {
        u(i, c) = both(i, interleaved ? 2 * c : c);
        v(i, c) = both(i, interleaved ? 2 * c + 1 : ffn + c);
      }
    }
  }
  // dx, and the gradients of W and V, from du and dv
  template <class S, class Products>
  void out_of_hidden(std::span<const Into<S>> dtheta, const Products& product, Index e, const Tensor<S>& x, const Tensor<S>& du,
                     const Tensor<S>& dv, Tensor<S>& dx) const {
    if (!fused) {
      product.up(matrices() * e, x.view(), du.view(), Into<S>{dx.view()});
      return product.up(matrices() * e + 1, x.view(), dv.view(), Into<S>{dx.view(), true});  // (9)
    }
    Tensor<S> both(x.rows(), 2 * ffn);
    for (Index i = 0; i < x.rows(); ++i) {
      for (Index c = 0; c < ffn; ++c) {
        both(i, interleaved ? 2 * c : c) = du(i, c);
        both(i, interleaved ? 2 * c + 1 : ffn + c) = dv(i, c);
      }
    }
    if (bias) sum_tokens(View<const S>(both), dtheta[bias_of(e, 0)]);
    product.up(matrices() * e, x.view(), both.view(), Into<S>{dx.view()});
  }
  // The gradient of the last product's bias, and its part of that of the gate.
  template <class S>
  void sum_bias(const Up<S>& p, const Tensor<S>& dy, const std::vector<Place>& own, Index e, Tensor<S>& dg) const {
    const S* b = p.theta[bias_of(e, 1)].row(0);
    const Into<S>& db = p.dtheta[bias_of(e, 1)];
    clear(db);
    for (Index i = 0; i < dy.rows(); ++i) {
      const Place at = own[static_cast<std::size_t>(i)];
      const S g = scales_input ? S(1) : gate(p.keep, at);
      dg(at.token, at.slot) = dot_row(b, dy.view().row(i), width);
      for (Index c = 0; db.wanted() && c < width; ++c) db.d(0, c) += g * dy(i, c);
    }
  }

  // f = f(u), h = f o v
  template <class S>
  void hidden(const Tensor<S>& u, const Tensor<S>& v, Tensor<S>& f, Tensor<S>& h) const {
    if (most == 0 && offset == 0) {
      std::visit([&]<class Phi>(const Elementwise<Phi>&) { apply_row<Phi>(u.data(), f.data(), u.size()); }, act);
      return hadamard(View<const S>(f), View<const S>(v), h.view(), false);
    }
    const Tensor<S> a = limited(u, false);
    std::visit([&]<class Phi>(const Elementwise<Phi>&) { apply_row<Phi>(a.data(), f.data(), a.size()); }, act);
    const Tensor<S> b = limited(v, true);
    for (Index i = 0; i < h.size(); ++i) h.data()[i] = f.data()[i] * (b.data()[i] + S(offset));  // (15)
  }
  template <class S>
  [[nodiscard]] Tensor<S> limited(const Tensor<S>& x, bool below) const {
    Tensor<S> y(x.rows(), x.cols());
    for (Index i = 0; i < x.size(); ++i) {
      const double value = value_of(x.data()[i]);
      y.data()[i] = most > 0 && value > most ? S(most) : most > 0 && below && value < -most ? S(-most) : x.data()[i];
    }
    return y;
  }
  // From q = dh: du in the place of h, dv in that of v.
  template <class S>
  void through_hidden(const Tensor<S>& u, Tensor<S>& v, const Tensor<S>& f, const Tensor<S>& q, Tensor<S>& h) const {
    if (most == 0 && offset == 0) {
      hadamard(View<const S>(q), View<const S>(v), h.view(), false);
      slope(u, h);
      return hadamard(View<const S>(q), View<const S>(f), v.view(), false);
    }
    const Tensor<S> a = limited(u, false), b = limited(v, true);
    for (Index i = 0; i < h.size(); ++i) h.data()[i] = q.data()[i] * (b.data()[i] + S(offset));
    slope(a, h);
    for (Index i = 0; i < h.size(); ++i) {
      const bool u_free = most == 0 || !(value_of(u.data()[i]) > most), v_free = most == 0 || !(std::abs(value_of(v.data()[i])) > most);
      if (!u_free) h.data()[i] = S(0);
      v.data()[i] = v_free ? q.data()[i] * f.data()[i] : S(0);
    }
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
