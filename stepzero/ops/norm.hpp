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
// Push       q_t = c (K_tt - [LayerNorm] mean_t^2),  c = 1 - flat/d (LayerNorm) or 1;  k_ts likewise       (7)
//            L_ts = E[(u+g)^2] k_ts / sqrt((q_t + eps)(q_s + eps)) (1 - (1 - rho^2) shrink/2) lift + E[b^2],  rho as in (9)   (8)
// Pull       H_ts = E[(u+g)^2] G_ts / sqrt((q_t + eps)(q_s + eps)) (1 - along (c_t + c_s - c_t c_s rho^2)/d
//            - [LayerNorm] flat/d),  c_t = q_t / (q_t + eps),  rho = k_ts / sqrt(q_t q_s)           (9)
//            E||dg||^2 = sum_ts G_ts k_ts / sqrt((q_t + eps)(q_s + eps)),  E||db||^2 = sum_ts G_ts          (10)
// Assumes    dy isotropic, but for its parts along the token and along ones, and independent of x; channels alike
// Derived in docs/derivations/norm.md
#include <cmath>

#include "stepzero/kernels/rows.hpp"
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
    const Moment& x = *p.x[0];
    const Index tokens = p.batch.tokens();
    const Kernel C = centred_kernel(x);
    const std::vector<double> r = inverse_size(C, eps), size = inverse_size(C, 0);
    const double g = gain_square(p.theta);
    const Law b = bias ? p.theta[first_bias()] : Law{};
    const double shift = b.second_moment();
    Moment y;
    const double shrink = x.shrink(width), lift = x.lift();
    y.K = Kernel::from_rows(tokens, [&](Index t, double* __restrict row) {
      const Kernel::Row k = C.row(t);
      const double r_t = g * r[t], own_size = size[t];
      const double *r_s = r.data(), *size_s = size.data();
      const auto entry = [=](Index s, const auto& lifted) {
        const double rho = k[s] * own_size * size_s[s];
        return k[s] * r_t * r_s[s] * (1 - std::max(1 - rho * rho, 0.0) / 2 * shrink) * lifted(rho) + shift;  // (8)
      };
      if (lift == 1) {
        for (Index s = 0; s < t; ++s) row[s] = entry(s, [](double) { return 1.0; });
      } else {
        for (Index s = 0; s < t; ++s) row[s] = entry(s, [=](double rho) { return std::min(lift, 1 / std::max(std::abs(rho), 1e-9)); });
      }
      row[t] = k[t] * r_t * r_s[t] + shift;
    });
    y.mean.resize(static_cast<std::size_t>(tokens), 0.0);
    y.own.resize(static_cast<std::size_t>(tokens), 0.0);
    const double g1 = offset() + (gain ? p.theta[0].mean : 1);
    for (Index t = 0; t < tokens; ++t) {
      y.mean[t] = (centred ? 0 : g1 * x.mean_at(t) * r[t]) + b.mean;
      y.own[t] = g1 * x.own_at(t) * r[t];
    }
    y.noise = x.noise;
    y.jitter = x.jitter;  // a branch begins: it is no longer fresh
    // what all tokens share is divided out, and varies on its own
    const double same = x.K.sameness();
    y.swing = x.swing + same * (x.drift + x.sampling * same / static_cast<double>(width));
    y.along = 0;
    y.sampling = 0;
    y.flat = centred ? 0 : x.flat;
    if (groups > 1) {
      y.before_heads = x.before_heads.value_or(x.K);
      y.unit_heads = true;
    }
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const Moment& x = *p.x[0];
    const Index tokens = p.batch.tokens();
    const Kernel C = centred_kernel(x);
    const std::vector<double> r = inverse_size(C, eps);
    const double g = gain_square(p.theta);
    const double d = static_cast<double>(width);
    Pulled up;
    std::vector<double> own(static_cast<std::size_t>(tokens));  // c_t of (9)
    for (Index t = 0; t < tokens; ++t) own[t] = C(t, t) * r[t] * r[t];
    const Kernel dy = across(p);
    const Kernel G = Kernel::from_rows(tokens, [&](Index t, double* __restrict row) {
      const Kernel::Row c = C.row(t), up_t = dy.row(t);
      const double *r_s = r.data(), *own_s = own.data();
      const double along = p.dy.along, flat = centred ? p.dy.flat : 0, r_t = r[t], own_t = own[t], sampling = x.sampling / d;
      const auto entry = [=](Index s, double varies) {
        const double k = c[s] * r_t * r_s[s];  // c_t c_s rho^2 = k^2
        const double lost = along * (own_t + own_s[s] - k * k) + flat;
        // 1/|x| of one draw is larger than 1/|x| of the mean: E (u_t u_s)^(-1/2) for u = |x|^2 / E|x|^2
        const double jensen = 1 + varies + sampling * (3 + k * k) / 4;
        return g * up_t[s] * r_t * r_s[s] * (1 - std::min(lost, d) / d) * jensen;  // (9)
      };
      for (Index s = 0; s < t; ++s) row[s] = entry(s, (3 * x.token_drift + x.drift) / 4);
      row[t] = entry(t, x.token_drift);
    });
    up.dx.push_back({.G = G,
                     .along = 0,
                     .flat = centred ? 0 : p.dy.flat,
                     .damp = 1,
                     .stretch = x.thins,
                     .level = x.level(),
                     .weight_gain = p.dy.weight_gain});
    double dg = 0;
    for (Index t = 0; t < tokens; ++t) {
      dg += r[t] *
            in_eight(0, tokens, [c = C.row(t), g_t = p.dy.G.row(t), r_s = r.data()](Index s) { return g_t[s] * c[s] * r_s[s]; });  // (10)
    }
    double radial = 0, swapped = 0;
    for (const double r_t : p.dy.radial) radial += r_t;
    for (Index t = 0; p.dy.shared && t < tokens; ++t) {
      radial += (*p.dy.shared)(t, t);
      for (Index s = 0; s < tokens; ++s) swapped += (*p.dy.shared)(t, s) * (*p.dy.shared)(s, t);
    }
    dg += (radial * radial + swapped) / (d * static_cast<double>(groups));  // a gradient along the token pulls every gain the same way
    // one gain for all groups sums their independent gradients: the same total
    const double share = 1 / static_cast<double>(sets());
    if (gain) up.dtheta.assign(static_cast<std::size_t>(sets()), dg * share);
    if (bias) up.dtheta.insert(up.dtheta.end(), static_cast<std::size_t>(sets()), p.dy.G.sum() * share);
    return up;
  }

 private:
  // the kernel once the mean over channels is gone
  [[nodiscard]] Kernel centred_kernel(const Moment& x) const {
    if (!centred) return x.K;
    const double rest = 1 - x.flat / static_cast<double>(width);
    if (x.mean.empty()) return x.K.scaled(rest);
    return Kernel::from(x.K.tokens(), [&](Index t, Index s) { return (x.K(t, s) - x.mean[t] * x.mean[s]) * rest; });  // (7)
  }
  // G of what is left of the gradients across their own tokens, d_t - a_t y_t: the norm absorbs the rest
  [[nodiscard]] Kernel across(const PullDoor& p) const {
    if (p.dy.radial.empty()) return p.dy.G;
    const Kernel& K = p.y.K;
    const double n = static_cast<double>(channels());
    const auto shared = [&](Index t, Index s) { return p.dy.shared ? (*p.dy.shared)(t, s) : 0; };
    std::vector<double> a, caused;  // a_t, and what of it the products with the head caused
    for (Index t = 0; t < K.tokens(); ++t) {
      const double size = K(t, t) > 0 ? 1 / (n * K(t, t)) : 0;
      caused.push_back(p.dy.radial[t] * size);
      a.push_back(caused.back() + shared(t, t) * size);
    }
    return Kernel::from(K.tokens(), [&](Index t, Index s) {
      return p.dy.G(t, s) - a[s] * shared(t, s) - a[t] * shared(s, t) + n * K(t, s) * (a[t] * a[s] - a[s] * caused[t] - a[t] * caused[s]);
    });
  }
  [[nodiscard]] static std::vector<double> inverse_size(const Kernel& C, double more) {
    std::vector<double> r(static_cast<std::size_t>(C.tokens()));
    for (Index t = 0; t < C.tokens(); ++t) r[t] = C(t, t) + more > 0 ? 1 / std::sqrt(C(t, t) + more) : 0;
    return r;
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

  // Columns are cut over the threads, so that each element is summed in the order of tokens and groups.
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
