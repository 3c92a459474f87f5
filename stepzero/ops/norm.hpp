#pragma once
// What       Every token (or every head of it) is put on one sphere: LayerNorm after removing its mean, RMSNorm as it is.
// Shapes     x, y (T, groups * d); each group of d channels is normalised alone. g, b (d), or one for each group.
//            Below, x is one group: d numbers; <.> is the mean over them.
// Forward    m = <x> (LayerNorm) or 0 (RMSNorm)                             (1)
//            r = (<(x - m)^2> + eps)^(-1/2)                                 (2)
//            h = r (x - m),  y = (u + g) h + b                              (3)    u = 1 where the stored gain is gain - 1 (Gemma)
// Backward   e = (u + g) dy                                                 (4)
//            dx = r (e - <e> [LayerNorm] - h <e h>)                         (5)
//            dg = sum_t dy h,  db = sum_t dy                                (6)
// Push       k_ts = K_ts - [LayerNorm] mean_t mean_s                        (7)
//            L_ts = E[(u+g)^2] k_ts / sqrt((k_tt + eps)(k_ss + eps)) + E[b^2]                            (8)
// Pull       H_ts = E[(u+g)^2] G~_ts / sqrt((k_tt + eps)(k_ss + eps)),  G~ of what lies across the tokens       (9)
//            E||dg||^2 = sum_ts G_ts k_ts / sqrt((k_tt + eps)(k_ss + eps)) + |<dy, y>|^2 / d,  E||db||^2 = sum_ts G_ts          (10)
// Assumes    dy isotropic, but for what a head tied to the embeddings makes it know of x (G~, <dy, y>), and independent of x;
//            channels alike. What one draw of finite width has along a token and along ones: finite/norm.hpp
// Derived in docs/derivations/norm.md
#include <cmath>

#include "stepzero/kernels/rows.hpp"
#include "stepzero/ops/heads.hpp"
#include "stepzero/ops/linear.hpp"

namespace stepzero {

template <bool centred>
struct Norm {
  static constexpr const char* kind = centred ? "layer_norm" : "rms_norm";
  static constexpr Grade grade = Grade::large_width;
  Index width = 0;  // channels of one group
  double eps = 1e-5;
  bool gain = true;
  bool bias = centred;
  bool unit_offset = false;     // the stored gain is gain - 1
  Index groups = 1;             // heads, for a norm of queries and keys
  bool gain_per_group = false;  // one gain (and bias) for each group, a parameter each, rather than one for all

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return groups * width; }
  [[nodiscard]] Index keep() const { return 2 * groups; }  // m and r
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.wants_law = groups > 1}; }
  [[nodiscard]] std::vector<ParamShape> params() const {
    return std::vector<ParamShape>(static_cast<std::size_t>(((gain ? 1 : 0) + (bias ? 1 : 0)) * sets()), {1, width, 1, width});
  }

  template <class S>
  void forward(const Down<S>& p) const {
    parallel_ranges(p.y.rows, row_grain(channels()), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        for (Index k = 0; k < groups; ++k) forward_group(p, t, k);
      }
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (p.dx[0].wanted()) {
      parallel_ranges(p.dy.rows, row_grain(channels()), [&](Index t0, Index t1) {
        for (Index t = t0; t < t1; ++t) {
          for (Index k = 0; k < groups; ++k) backward_group(p, t, k);
        }
      });
    }
    for (Index k = 0; gain && k < sets(); ++k) sum_gain(p, p.dtheta[k], k);
    for (Index k = 0; bias && k < sets(); ++k) sum_bias(p, p.dtheta[first_bias() + k], k);
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    const Kernel k = centred_kernel(*p.x[0]);  // (7)
    const std::vector<double> r = inverse_sizes(k, eps);
    const double g = gain_square(p.theta), shift = bias_law(p.theta).second_moment();
    Moment y{.K = Kernel::from_rows(k.tokens(), [&, r = r.data()](Index t, double* __restrict row) {
               const Kernel::Row k_t = k.row(t);
               const double r_t = g * r[t];
               for (Index s = 0; s <= t; ++s) row[s] = k_t[s] * r_t * r[s] + shift;  // (8)
             })};
    const double g1 = offset() + (gain ? p.theta[0].mean : 1);
    for (Index t = 0; t < k.tokens(); ++t) {
      y.mean.push_back((centred ? 0 : g1 * p.x[0]->mean_at(t) * r[t]) + bias_law(p.theta).mean);
      y.own.push_back(g1 * p.x[0]->own_at(t) * r[t]);
    }
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const Kernel k = centred_kernel(*p.x[0]), G = across(p);
    const std::vector<double> r = inverse_sizes(k, eps);
    const double g = gain_square(p.theta);
    Pulled up{{UpWire(Kernel::from_rows(k.tokens(),
                                        [&, r = r.data()](Index t, double* __restrict row) {
                                          const Kernel::Row G_t = G.row(t);
                                          for (Index s = 0; s <= t; ++s) row[s] = g * G_t[s] * r[t] * r[s];  // (9)
                                        }))},
              {}};
    const double dg = gain_gradient(p, k, r);
    // one gain for all groups sums their independent gradients: the same total
    const double share = 1 / static_cast<double>(sets());
    if (gain) up.dtheta.assign(static_cast<std::size_t>(sets()), dg * share);
    if (bias) up.dtheta.insert(up.dtheta.end(), static_cast<std::size_t>(sets()), p.dy.G.sum() * share);
    return up;
  }

  // Heads are put on a sphere: for an attention that samples them.
  [[nodiscard]] std::any note(const PushDoor& p) const {
    if (groups == 1) return {};
    HeadNote heads = head_note(*p.x[0]);
    heads.unit = true;
    return heads;
  }

  // the kernel once the mean over channels is gone
  [[nodiscard]] static Kernel centred_kernel(const Moment& x) {
    if (!centred || x.mean.empty()) return x.K;
    return Kernel::from(x.K.tokens(), [&](Index t, Index s) { return x.K(t, s) - x.mean[t] * x.mean[s]; });  // (7)
  }
  [[nodiscard]] static std::vector<double> inverse_sizes(const Kernel& k, double more) {
    std::vector<double> r(static_cast<std::size_t>(k.tokens()));
    for (Index t = 0; t < k.tokens(); ++t) r[t] = k(t, t) + more > 0 ? 1 / std::sqrt(k(t, t) + more) : 0;
    return r;
  }
  [[nodiscard]] Law bias_law(std::span<const Law> theta) const { return bias ? theta[first_bias()] : Law{}; }

 private:
  // G~: the kernel of d_t - a_t y_t, the gradients without their parts along their own tokens, which the norm absorbs
  [[nodiscard]] Kernel across(const PullDoor& p) const {
    if (!p.dy.tied) return p.dy.G;
    const TiedHead& head = *p.dy.tied;
    const Kernel& K = p.y.K;
    const double n = static_cast<double>(channels());
    std::vector<double> a, caused;  // a_t, and its part from `radial` alone
    for (Index t = 0; t < K.tokens(); ++t) {
      const double size = K(t, t) > 0 ? 1 / (n * K(t, t)) : 0;
      caused.push_back(head.radial[t] * size);
      a.push_back(caused.back() + head.shared_at(t, t) * size);
    }
    return Kernel::from(K.tokens(), [&](Index t, Index s) {
      return p.dy.G(t, s) - a[s] * head.shared_at(t, s) - a[t] * head.shared_at(s, t) +
             n * K(t, s) * (a[t] * a[s] - a[s] * caused[t] - a[t] * caused[s]);
    });
  }
  // E||dg||^2. A gradient along the token pulls every gain the same way.
  [[nodiscard]] double gain_gradient(const PullDoor& p, const Kernel& k, const std::vector<double>& r) const {
    const Index tokens = k.tokens();
    double dg = 0, radial = 0, swapped = 0;
    for (Index t = 0; t < tokens; ++t) {
      dg += r[t] *
            in_eight(0, tokens, [c = k.row(t), g_t = p.dy.G.row(t), r_s = r.data()](Index s) { return g_t[s] * c[s] * r_s[s]; });  // (10)
    }
    if (!p.dy.tied) return dg;
    for (Index t = 0; t < tokens; ++t) {
      radial += p.dy.tied->radial[t] + p.dy.tied->shared_at(t, t);
      for (Index s = 0; s < tokens; ++s) swapped += p.dy.tied->shared_at(t, s) * p.dy.tied->shared_at(s, t);
    }
    return dg + (radial * radial + swapped) / static_cast<double>(channels());
  }
  [[nodiscard]] double gain_square(std::span<const Law> theta) const {
    if (!gain) return 1;
    const double m = offset() + theta[0].mean;
    return m * m + theta[0].variance;
  }

  // The gain of group k; a null pointer stands for ones.
  template <class P>
  [[nodiscard]] auto gain_of(const P& p, Index k) const {
    return gain ? p.theta[gain_per_group ? k : 0].row(0) : nullptr;
  }
  [[nodiscard]] Index sets() const { return gain_per_group ? groups : 1; }
  [[nodiscard]] Index first_bias() const { return gain ? sets() : 0; }
  [[nodiscard]] double offset() const { return unit_offset ? 1 : 0; }

  template <class S>
  void forward_group(const Down<S>& p, Index t, Index k) const {
    using std::sqrt;
    const S* x = p.x[0].row(t) + k * width;
    S* y = p.y.row(t) + k * width;
    const S n = S(static_cast<double>(width));
    const S m = centred ? row_sum<S>(width, [&](Index i) { return x[i]; }) / n : S(0);  // (1)
    const S square = row_sum<S>(width, [&](Index i) { return (x[i] - m) * (x[i] - m); }) / n;
    const S r = S(1) / sqrt(square + S(eps));  // (2)
    p.keep(t, 2 * k) = m;
    p.keep(t, 2 * k + 1) = r;
    const S* g = gain_of(p, k);
    const S u = S(offset());
    if (g == nullptr) {
      for (Index i = 0; i < width; ++i) y[i] = r * (x[i] - m);
    } else {
      for (Index i = 0; i < width; ++i) y[i] = (u + g[i]) * (r * (x[i] - m));  // (3)
    }
    if (bias) {
      const S* b = p.theta[first_bias() + (gain_per_group ? k : 0)].row(0);
      for (Index i = 0; i < width; ++i) y[i] += b[i];
    }
  }

  template <class S>
  void backward_group(const Up<S>& p, Index t, Index k) const {
    const S* x = p.x[0].row(t) + k * width;
    const S* dy = p.dy.row(t) + k * width;
    S* dx = p.dx[0].d.row(t) + k * width;
    const S m = p.keep(t, 2 * k);
    const S r = p.keep(t, 2 * k + 1);
    const S n = S(static_cast<double>(width));
    const S* g = gain_of(p, k);
    const S u = S(offset());
    const auto run = [&](const auto& e) {  // (4)
      const S e_mean = centred ? row_sum<S>(width, e) / n : S(0);
      const S eh_mean = row_sum<S>(width, [&](Index i) { return e(i) * (x[i] - m); }) * r / n;
      const auto d = [&](Index i) { return r * (e(i) - e_mean - r * (x[i] - m) * eh_mean); };  // (5)
      if (p.dx[0].add) {
        for (Index i = 0; i < width; ++i) dx[i] += d(i);
      } else {
        for (Index i = 0; i < width; ++i) dx[i] = d(i);
      }
    };
    if (g == nullptr) {
      run([&](Index i) { return dy[i]; });
    } else {
      run([&](Index i) { return (u + g[i]) * dy[i]; });
    }
  }

  // Threads divide the columns, so that each element is summed in the order of tokens and groups.
  // `set` is the group whose own gain or bias it is, where each has one.
  template <class S, class Term>
  void sum_columns(const Up<S>& p, const Into<S>& into, Index set, const Term& term) const {
    if (!into.wanted()) return;
    S* sum = into.d.row(0);
    if (!into.add) std::fill_n(sum, into.d.cols, S(0));
    parallel_ranges(width, 128, [&](Index i0, Index i1) {
      for (Index t = 0; t < p.dy.rows; ++t) {
        for (Index k = gain_per_group ? set : 0; k < (gain_per_group ? set + 1 : groups); ++k) term(t, k, sum, i0, i1);
      }
    });
  }

  template <class S>
  void sum_gain(const Up<S>& p, const Into<S>& into, Index set) const {
    sum_columns(p, into, set, [&](Index t, Index k, S* to, Index i0, Index i1) {
      const S* x = p.x[0].row(t) + k * width;
      const S* dy = p.dy.row(t) + k * width;
      const S m = p.keep(t, 2 * k);
      const S r = p.keep(t, 2 * k + 1);
      for (Index i = i0; i < i1; ++i) to[i] += dy[i] * (r * (x[i] - m));  // (6)
    });
  }

  template <class S>
  void sum_bias(const Up<S>& p, const Into<S>& into, Index set) const {
    sum_columns(p, into, set, [&](Index t, Index k, S* to, Index i0, Index i1) {
      const S* dy = p.dy.row(t) + k * width;
      for (Index i = i0; i < i1; ++i) to[i] += dy[i];  // (6)
    });
  }
};

using LayerNorm = Norm<true>;
using RmsNorm = Norm<false>;
static_assert(Op<LayerNorm>);
static_assert(Op<RmsNorm>);

}  // namespace stepzero
