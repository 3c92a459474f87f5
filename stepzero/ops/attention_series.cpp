// The moment doors of attention by a series in the score variance.
//
// Where the scores' variance is small the weights are nearly uniform, and with v = c^2 dk Kq_ts
//     E[A_tj A_sl] = exp(v Kk_jl r) / Z,   K_o = sum_p v^p/p! S_p / sum_p v^p/p! Z_p
// with S_p, Z_p sums of (Kk r)^p o Kv and (Kk r)^p over the keys of t times those of s (attention_sight.hpp). r is 1 without a rotation;
// with one Kq, Kk are the kernels before the turn, and r = r((t - s) - (j - l)) of attention_turn.hpp.
// Gradients of q and k take uniform weights and the first order of what bends them (tilts); q and k's share of the sampling noise of the
// kernels (Fluctuation::noise) adds
//     sum_jl (P_t Kv)_jj (P_s Kk)_ll r noise
// to tr(P_t Kv P_s (Kk r)), since k and v are made from the same draw of their input.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/ops/attention_moments.hpp"
#include "stepzero/ops/attention_sight.hpp"
#include "stepzero/ops/head_tools.hpp"
#include "stepzero/ops/heads.hpp"
#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {

namespace {

constexpr int most_powers = 5;  // scores have variance below 0.2: what the cut leaves is 3e-6

Matrix ones(Index n) {
  Matrix m(n, n);
  std::fill_n(m.data(), m.size(), 1.0);
  return m;
}

// m o K
Matrix times(const Matrix& m, const Kernel& K) {
  Matrix out(m.rows(), m.cols());
  const Kernel::Row k = K.row(0);  // rows follow each other
  for (Index i = 0; i < m.size(); ++i) out.data()[i] = m.data()[i] * k[i];
  return out;
}

Matrix times(const Kernel& K) { return times(ones(K.tokens()), K); }

// A matrix, of which the sums over what two tokens see are wanted, times so high a power of what a turn leaves.
struct Sum {
  Matrix of;
  int power;
};
std::vector<Kernel> sums_over(const Sight& sight, const std::vector<Sum>& list) {
  std::vector<Kernel> out(list.size());
  parallel_for(std::ssize(list), [&](Index i) {
    const Sum& sum = list[static_cast<std::size_t>(i)];
    out[static_cast<std::size_t>(i)] = sum.power > 0 ? sight.both(sum.of, sum.power) : sight.flat().both(sum.of);
  });
  return out;
}

// Of few tokens, threads cost more than they save.
std::unique_ptr<const Alone> alone_if_few(const Batch& batch) { return batch.tokens() < 256 ? std::make_unique<const Alone>() : nullptr; }

// The kernel that a side has before its heads turn.
Kernel before_turn(const DownWire& m) { return head_note(m).before; }

class Series {
 public:
  Series(const Attention& op, const Batch& batch, const DownWire& q, const DownWire& k, const DownWire& v)
      : op_(op),
        length_(batch.length),
        tokens_(batch.tokens()),
        turn_(head_note(q).rotary != nullptr ? std::make_shared<const Turn>(*head_note(q).rotary, batch.length) : nullptr),
        keys_(op, batch, turn_.get()),
        q_(before_turn(q)),
        k_(before_turn(k)),
        v_(v.K),
        swing_(std::exp(k.f.swing) - 1),
        noise_(k.shared_noise()),
        gain_(op.scale * op.scale * static_cast<double>(op.key_dim)) {
    double variance = 0;
    for (Index t = 0; t < tokens_; ++t) variance = std::max(variance, gain_ * q.K(t, t) * k.K(t, t));
    // until the first power that is left out is small
    for (double left = variance * variance / 2; powers_ < most_powers && left > 3e-4; left *= variance / ++powers_) {
    }
    // where values are keys up to a factor, and nothing turns, the sums of Kk^p o Kv are those of Kk^(p + 1)
    const bool alike = turn_ == nullptr && v_.same_up_to_scale(k_) && k_(0, 0) > 0;
    z_.push_back(Kernel::from(tokens_, [&](Index t, Index s) { return keys_.count(t) * keys_.count(s); }));
    std::vector<Matrix> of_keys;  // Kk^p
    of_keys.push_back(ones(tokens_));
    while (std::ssize(of_keys) < powers_ + alike) of_keys.push_back(times(of_keys.back(), k_));
    std::vector<Sum> list;
    for (int p = 0; !alike && p < powers_; ++p) list.push_back({times(of_keys[static_cast<std::size_t>(p)], v_), p});
    for (int p = 1; p < std::ssize(of_keys); ++p) list.push_back({std::move(of_keys[static_cast<std::size_t>(p)]), p});
    const std::vector<Kernel> all = sums_over(keys_, list);
    for (std::size_t i = 0; i < all.size(); ++i) (!alike && i < static_cast<std::size_t>(powers_) ? s_ : z_).push_back(all[i]);
    for (std::size_t p = 1; alike && p < z_.size(); ++p) s_.push_back(z_[p].scaled(v_(0, 0) / k_(0, 0)));
  }

  [[nodiscard]] Kernel output() const {
    return Kernel::from_rows(tokens_, [&](Index t, double* __restrict row) {
      const std::vector<double> top = sums(s_, t), bottom = sums(z_, t);
      for (Index s = 0; s <= t; ++s) row[s] = top[s] / bottom[s];  // (10)
    });
  }

  [[nodiscard]] AttentionSummary summary(Index heads) const {
    AttentionSummary out;
    double pairs = 0, squares = 0;
    const std::vector<double> key_spread = spread(k_, z_[1], turned(0));
    for (Index t = 0; t < tokens_; ++t) {
      const Sight::Range see = keys_.range(t);
      const double n = keys_.count(t);
      const double x = gain_ * q_(t, t);
      for (Index j = see.begin; j < see.end; ++j) squares += x * k_(j, j) * turned(0);
      pairs += n;
      // variance of the scores within the row, which is what bends the weights away from uniform
      const double within = x * key_spread[t];
      out.entropy += std::log(n) - within / 2;
      out.sum_squares += std::exp(within) / n;
    }
    // the pooled mean of one draw's scores is not quite 0: it goes off the variance
    const double pooled = gain_ * frobenius(q_, z_[1]);
    out.score_variance = squares / pairs - pooled / (pairs * pairs) / static_cast<double>(heads);
    out.entropy /= static_cast<double>(tokens_);
    out.sum_squares /= static_cast<double>(tokens_);
    return out;
  }

  // |Q K'|^2 of Gaussian heads: 2 both + 2 (a + b) / dk of its square a head, a and b the sameness of queries and of keys;
  // how far the weights are from uniform goes with it.
  [[nodiscard]] AttentionSummary spread_of(const AttentionSummary& mean, Index heads) const {
    const double a = q_.sameness(), b = k_.sameness();
    const double relative =
        std::sqrt((2 * same_scores(a * b) + 2 * (a + b) / static_cast<double>(op_.key_dim)) / static_cast<double>(heads));
    double uniform = 0, squares = 0;
    for (Index t = 0; t < tokens_; ++t) {
      uniform += std::log(keys_.count(t)) / static_cast<double>(tokens_);
      squares += 1 / keys_.count(t) / static_cast<double>(tokens_);
    }
    return {relative * mean.score_variance, 0, relative * (uniform - mean.entropy), relative * (mean.sum_squares - squares)};
  }

  [[nodiscard]] Pulled pull(const Kernel& G) const {
    Pulled up;
    const Sight queries = keys_.reversed();
    const Matrix y = keys_.means(v_);
    const std::vector<double> key_spread = spread(k_, z_[1], turned(0));
    const Kernel tilt = tilts(key_spread);
    const Matrix hv = own_part(v_, y), hk = own_part(k_, keys_.means(k_));
    const auto [gq, extra] =
        pull_query(G, tilt, traces(keys_, y, times(k_), s_[1], z_[1]), symmetric_product(keys_.places(hv), keys_.places(hk)));
    const Kernel gk = pull_key(G, y, tilt, queries, q_);
    const double plain = frobenius(k_, gk);
    up.dx.emplace_back(gq);
    up.dx.push_back({Adjoint{gk}, {.weight_gain = plain > 0 ? 1 + extra / plain : 1}});
    up.dx.emplace_back(pull_value(G, queries));
    const double level = weights_level(gq, gk);
    up.spread = {{.level = level}, {.level = level}, {}};
    if (turn_ != nullptr) add_turned(G, y, tilt, queries.flat(), hv, hk, up);
    for (UpWire* d : {&up.dx[0], &up.dx[1]}) {
      d->G = without_rounding(d->G);
      if (const auto* back = note_of<TurnedBack>(*d)) d->note = TurnedBack{without_rounding(back->G), {}};
    }
    return up;
  }

 private:
  // r of two scores whose tokens lie that far apart
  [[nodiscard]] double turned(Index p) const { return turn_ != nullptr ? turn_->score(p) : 1; }
  [[nodiscard]] Index distance(Index t, Index s) const { return t % length_ - s % length_; }

  // f(t - s) K_ts
  template <class F>
  [[nodiscard]] Kernel by_distance(const Kernel& K, const F& f) const {
    return Kernel::from(tokens_, [&](Index t, Index s) { return K(t, s) * f(distance(t, s)); });
  }

  // sum_tsjl (Kq_ts Kk_jl r)^2 in units of the square of sum_tj Kq_tt Kk_jj r(0); without a turn that is `flat`
  [[nodiscard]] double same_scores(double flat) const {
    if (turn_ == nullptr) return flat;
    const Index n = length_;
    std::vector<double> a(static_cast<std::size_t>(2 * n - 1), 0.0), b = a;  // squares by distance
    for (Index t = 0; t < tokens_; ++t) {
      for (Index s = 0; s < tokens_; ++s) {
        a[distance(t, s) + n - 1] += q_(t, s) * q_(t, s);
        b[distance(t, s) + n - 1] += k_(t, s) * k_(t, s);
      }
    }
    double sum = 0;
    for (Index i = 0; i < 2 * n - 1; ++i) {
      for (Index j = 0; j < 2 * n - 1; ++j) sum += a[i] * b[j] * turned(i - j) * turned(i - j);
    }
    const double size = q_.trace() * k_.trace() * turned(0);
    return size > 0 ? sum / (size * size) : 1;
  }

  // sum_p v^p/p! of the kernels, v = c^2 dk Kq_ts, for s up to t
  [[nodiscard]] std::vector<double> sums(const std::vector<Kernel>& kernels, Index t) const {
    std::vector<double> out(static_cast<std::size_t>(t) + 1, 0.0);
    for (int p = powers_; p-- > 0;) {
      const Kernel::Row v = q_.row(t), kernel = kernels[static_cast<std::size_t>(p)].row(t);
      const double factor = gain_ / (p + 1);
      for (Index s = 0; s <= t; ++s) out[s] = out[s] * (factor * v[s]) + kernel[s];
    }
    return out;
  }

  [[nodiscard]] Kernel pull_value(const Kernel& G, const Sight& queries) const {
    const Kernel z = Kernel::from_rows(tokens_, [&](Index t, double* __restrict row) {
      const std::vector<double> bottom = sums(z_, t);
      const Kernel::Row g = G.row(t);
      for (Index s = 0; s <= t; ++s) row[s] = g[s] / bottom[s];
    });
    std::vector<Sum> parts;
    parts.push_back({times(z), 0});
    for (int p = 1; p < powers_; ++p) parts.push_back({times(parts.back().of, q_.scaled(gain_ / p)), p});
    const std::vector<Kernel> h = sums_over(queries, parts);
    return Kernel::from_rows(tokens_, [&](Index j, double* __restrict row) {
      const Kernel::Row k = k_.row(j);
      std::fill_n(row, j + 1, 0.0);
      for (int p = powers_; p-- > 0;) {
        const Kernel::Row coefficient = h[static_cast<std::size_t>(p)].row(j);
        for (Index l = 0; l <= j; ++l) row[l] = row[l] * k[l] + coefficient[l];  // (11)
      }
    });
  }

  // tr(P_t K) = what the keys of t differ by; `own` times their squares
  [[nodiscard]] std::vector<double> spread(const Kernel& K, const Kernel& sums, double own) const {
    std::vector<double> out;
    for (Index t = 0; t < tokens_; ++t) {
      const Sight::Range see = keys_.range(t);
      const double n = keys_.count(t);
      double diagonal = 0;
      for (Index j = see.begin; j < see.end; ++j) diagonal += K(j, j);
      out.push_back(own * diagonal / n - sums(t, t) / (n * n));
    }
    return out;
  }

  // What weights that lean away from uniform make of the gradient, to first order in the scores' covariance, in units of what uniform
  // ones make of it: both lean to the same keys, and each to fewer.
  [[nodiscard]] Kernel tilts(const std::vector<double>& key_spread) const {
    const Kernel K = turn_ != nullptr ? by_distance(k_, [&](Index p) { return turned(p); }) : k_;
    const Matrix means = keys_.means(K);
    const std::vector<double> squares = keys_.own(times(times(K), K));
    std::vector<double> same, fewer;
    for (Index t = 0; t < tokens_; ++t) {
      const Sight::Range see = keys_.range(t);
      const double n = keys_.count(t), apart = n * key_spread[t];  // the trace of the keys' kernel, centred
      double rows = 0;
      for (Index j = see.begin; j < see.end; ++j) rows += means(t, j) * means(t, j);
      const double q = std::max(squares[t] - 2 * n * rows + z_[1](t, t) * z_[1](t, t) / (n * n), 0.0);  // the square of the same
      const bool differ = apart > 1e-9 * n * k_(t, t);
      same.push_back(differ ? std::sqrt(std::max(apart - q / apart, 0.0) / n) : 0);
      fewer.push_back(differ ? gain_ * q_(t, t) * (q / apart + apart / static_cast<double>(op_.key_dim)) / n : 0);
    }
    return Kernel::from(tokens_, [&](Index t, Index s) {
      return 1 + gain_ * q_(t, s) * turned(distance(t, s)) / turned(0) * same[t] * same[s] - fewer[t] - fewer[s];
    });
  }

  // tr(P_t Kv P_s K) for uniform weights; s1, z1: the sums of Kv o K and of K
  [[nodiscard]] Kernel traces(const Sight& keys, const Matrix& y, const Matrix& K, const Kernel& s1, const Kernel& z1) const {
    const Matrix over = keys.cross(K, y);
    return Kernel::from(tokens_, [&](Index t, Index s) {
      const double n = 1 / z_[0](t, s);
      return (s1(t, s) - over(t, s) - over(s, t) + s_[0](t, s) * n * z1(t, s)) * n;
    });
  }

  // h_tj = (P_t K)_jj, what the draw that keys and values share is felt by
  [[nodiscard]] Matrix own_part(const Kernel& K, const Matrix& means) const {
    Matrix h(tokens_, tokens_);
    for (Index t = 0; t < tokens_; ++t) {
      const Sight::Range see = keys_.range(t);
      std::fill_n(h.view().row(t), tokens_, 0.0);
      for (Index j = see.begin; j < see.end; ++j) h(t, j) = (K(j, j) - means(t, j)) / keys_.count(t);
    }
    return h;
  }
  // a b', and half of it the other way round
  static Kernel symmetric_product(const Matrix& a, const Matrix& b) {
    Matrix both(a.rows(), a.rows());
    gemm(Trans::no, Trans::yes, 1.0, View<const double>(a), View<const double>(b), 0.0, both.view());
    return Kernel::from(a.rows(), [&](Index t, Index s) { return (both(t, s) + both(s, t)) / 2; });
  }

  struct Query {
    Kernel G;
    double extra;  // what the shared noise of k and v adds to <Kk, Gk>, and so to the gradient of the key weights
  };

  // trace: tr(P_t Kv P_s Kk); apart: sum_jl h_tj h_sl, of values and keys; both with r
  [[nodiscard]] Query pull_query(const Kernel& G, const Kernel& tilt, const Kernel& trace, const Kernel& apart) const {
    const Kernel shared = Kernel::from(
        tokens_, [&](Index t, Index s) { return gain_ * G(t, s) * tilt(t, s) * (noise_ * apart(t, s) + swing_ * trace(t, s)); });
    Kernel out =
        Kernel::from(tokens_, [&](Index t, Index s) { return gain_ * G(t, s) * tilt(t, s) * trace(t, s) + shared(t, s); });  // (11)
    const double extra = frobenius(q_, shared);
    return {out, extra};
  }

  [[nodiscard]] Kernel pull_key(const Kernel& G, const Matrix& y, const Kernel& tilt, const Sight& queries, const Kernel& q) const {
    Matrix h(tokens_, tokens_), u(tokens_, tokens_), means(tokens_, tokens_);
    for (Index t = 0; t < tokens_; ++t) {
      for (Index s = 0; s < tokens_; ++s) {
        h(t, s) = q(t, s) * G(t, s) * tilt(t, s) / z_[0](t, s);
        u(t, s) = h(t, s) * s_[0](t, s) / z_[0](t, s);
        means(t, s) = y(s, t);
      }
    }
    const Matrix cross = queries.cross(h, means);
    std::vector<Sum> list;
    list.push_back({std::move(h), 1});
    list.push_back({std::move(u), 1});
    const std::vector<Kernel> sums = sums_over(queries, list);
    const Kernel &all = sums[0], &mean = sums[1];
    return Kernel::from(tokens_, [&](Index j, Index l) {
      return gain_ * (v_(j, l) * all(j, l) - cross(j, l) - cross(l, j) + mean(j, l));  // (12)
    });
  }

  // How much the squares of the weights' gradients vary. Those of a head are products of two Gaussians, and vary by
  // twice the sameness of what queries and what keys get; what keys and values are made from is one for all heads, and stands in the
  // gradient three times.
  [[nodiscard]] double weights_level(const Kernel& gq, const Kernel& gk) const {
    const auto narrow = [&](const Kernel& K, double factor) {
      Tensor<float> out(tokens_, tokens_);
      const Kernel::Row k = K.row(0);
      for (Index i = 0; i < out.size(); ++i) out.data()[i] = static_cast<float>(factor * k[i]);
      return out;
    };
    const auto share = [&](const Kernel& K, const Kernel& G) {
      const double size = frobenius(K, G), unit = K.trace();  // floats stay in range
      return product(Trans::no, Trans::no, narrow(K, 1 / unit), narrow(G, size > 0 ? unit / size : 0));
    };
    const Tensor<float> q = share(q_, gq), k = share(k_, gk);
    double of_q = 0, of_k = 0, of_both = 0;
    for (Index t = 0; t < tokens_; ++t) {
      for (Index s = 0; s <= t; ++s) {
        const double twice = s < t ? 2 : 1;
        const double a = static_cast<double>(q(t, s)), b = static_cast<double>(q(s, t));
        const double c = static_cast<double>(k(t, s)), d = static_cast<double>(k(s, t));
        of_q += twice * a * b;
        of_k += twice * c * d;
        of_both += twice * (a + 2 * c) * (b + 2 * d);
      }
    }
    const double of_head = 2 * of_q * of_k + 2 * (of_q + 2 * of_k) / static_cast<double>(op_.key_dim);
    return of_head / static_cast<double>(op_.heads) + 2 * noise_ * of_both;
  }

  // What is known so far is before the turn. After it queries and keys have the kernels of turned wires, and places no say.
  void add_turned(const Kernel& G, const Matrix& y, const Kernel& tilt, const Sight& queries, const Matrix& hv, const Matrix& hk,
                  Pulled& up) const {
    const auto side = [&](const Kernel& K) { return by_distance(K, [&](Index p) { return turn_->side(p); }); };
    const Sight keys = keys_.flat();
    const Matrix k = times(side(k_)), r = times(side(Kernel(ones(tokens_))));
    const Kernel trace = traces(keys, y, k, keys.both(times(k, v_)), keys.both(k));
    Matrix turned_k(tokens_, tokens_);
    gemm(Trans::no, Trans::no, 1.0, View<const double>(hk), View<const double>(r), 0.0, turned_k.view());
    for (UpWire* d : {&up.dx[0], &up.dx[1]}) d->note = TurnedBack{d->G, {}};
    up.dx[0].G = pull_query(G, tilt, trace, symmetric_product(hv, turned_k)).G;
    up.dx[1].G = pull_key(G, y, tilt, queries, side(q_));
  }

  const Attention& op_;
  Index length_;
  Index tokens_;
  std::shared_ptr<const Turn> turn_;  // none: heads are not turned
  Sight keys_;
  Kernel q_, k_, v_;  // of queries and keys before the turn
  double swing_;
  double noise_;  // of what keys and values are both made from
  double gain_;
  int powers_ = 2;             // of the score variance, the first being the zeroth; the rules below use two
  std::vector<Kernel> z_, s_;  // sums over what t and s see of (Kk r)^p, and of (Kk r)^p o Kv
};

}  // namespace

DownWire push_series(const Attention& op, const Batch& batch, const DownWire& q, const DownWire& k, const DownWire& v) {
  const auto alone = alone_if_few(batch);
  const auto series = std::make_shared<const Series>(op, batch, q, k, v);
  DownWire y(Moment{.K = series->output()});
  const AttentionSummary summary = series->summary(op.heads);
  y.note = AttentionNote{summary, series->spread_of(summary, op.heads), series};
  return y;
}

Pulled pull_series(const Attention& op, const PullDoor& p) {
  const auto alone = alone_if_few(p.batch);
  const auto* note = note_of<AttentionNote>(p.y);
  if (note != nullptr && note->keep != nullptr) return static_cast<const Series*>(note->keep.get())->pull(p.dy.G);
  return Series(op, p.batch, *p.x[0], *p.x[1], *p.x[2]).pull(p.dy.G);
}

}  // namespace stepzero
