// The moment doors of attention by a series in the score variance.
//
// Where the scores' variance is small the weights are nearly uniform, and with v = c^2 dk Kq_ts
//     E[A_tj A_sl] = exp(v Kk_jl) / Z,   K_o = sum_p v^p/p! S_p / sum_p v^p/p! Z_p
// with S_p, Z_p sums of Kk^p o Kv and Kk^p over the rectangle of keys that t and s see: one integral image a power.
// Gradients of q and k take uniform weights; q and k's share of the sampling noise of the kernels (Moment::noise) adds
//     tr(P_t Kv) tr(P_s Kk) noise
// to tr(P_t Kv P_s Kk), since k and v are made from the same draw of their input.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "stepzero/ops/attention_moments.hpp"

namespace stepzero {

namespace {

using Range = Attention::Range;

// Sums over rectangles of a matrix.
class IntegralImage {
 public:
  // f(r, c) for all of it
  template <class F>
  IntegralImage(Index rows, Index cols, const F& f) : sum_(rows + 1, cols + 1) {
    std::fill_n(sum_.view().row(0), cols + 1, 0.0);
    constexpr Index strip = 4;  // rows whose sums do not wait for each other
    Index r = 0;
    for (; r + strip <= rows; r += strip) add_rows<strip>(r, f);
    for (; r < rows; ++r) add_rows<1>(r, f);
  }
  // Rows `r` summed: entry c is the sum over the columns before c.
  [[nodiscard]] std::vector<double> band(Range r) const {
    const double *upper = sum_.view().row(r.begin), *lower = sum_.view().row(r.end);
    std::vector<double> out(lower, lower + sum_.cols());
    for (Index c = 0; c < sum_.cols(); ++c) out[c] -= upper[c];
    return out;
  }

 private:
  template <Index strip, class F>
  void add_rows(Index r0, const F& f) {
    double line[strip] = {};
    double* to[strip];
    for (Index i = 0; i < strip; ++i) to[i] = sum_.view().row(r0 + 1 + i), to[i][0] = 0;
    for (Index c = 0; c < sum_.cols() - 1; ++c) {
      for (Index i = 0; i < strip; ++i) to[i][c + 1] = line[i] += f(r0 + i, c);
    }
    for (Index i = 0; i < strip; ++i) {
      const double* above = to[i] - sum_.cols();
      for (Index c = 0; c < sum_.cols(); ++c) to[i][c] += above[c];
    }
  }

  Matrix sum_;
};

double within(const std::vector<double>& band, Range r) { return band[r.end] - band[r.begin]; }

// Who sees whom, over all tokens of the batch.
struct Sight {
  std::vector<Range> keys;     // that a query sees
  std::vector<Range> queries;  // that see a key

  Sight(const Attention& op, const Batch& batch) {
    for (Index t = 0; t < batch.tokens(); ++t) {
      const Index start = t - batch.position(t);
      const Range see = op.visible(batch.position(t), batch.length);
      keys.push_back({start + see.begin, start + see.end});
    }
    for (Index j = 0; j < batch.tokens(); ++j) {
      const Index start = j - batch.position(j);
      Range by{start + batch.length, start};
      for (Index t = start; t < start + batch.length; ++t) {
        if (j < keys[t].begin || j >= keys[t].end) continue;
        by.begin = std::min(by.begin, t);
        by.end = std::max(by.end, t + 1);
      }
      queries.push_back(by);
    }
  }
  [[nodiscard]] double count(Index t) const { return static_cast<double>(keys[t].end - keys[t].begin); }
};

constexpr int most_powers = 5;  // scores have variance below 0.2: what the cut leaves is 3e-6

Matrix ones(Index n) {
  Matrix m(n, n);
  std::fill_n(m.data(), m.size(), 1.0);
  return m;
}

// m o K
void multiply(Matrix& m, const Kernel& K) {
  const Kernel::Row k = K.row(0);  // rows follow each other
  double* const entries = m.data();
  for (Index i = 0; i < m.size(); ++i) entries[i] *= k[i];
}

class Series {
 public:
  Series(const Attention& op, const Batch& batch, const DownWire& q, const DownWire& k, const DownWire& v)
      : op_(op),
        tokens_(batch.tokens()),
        sight_(op, batch),
        q_(q.K),
        k_(k.K),
        v_(v.K),
        swing_(std::exp(k.f.swing) - 1),
        noise_(k.shared_noise()),
        gain_(op.scale * op.scale * static_cast<double>(op.key_dim)) {
    double variance = 0;
    for (Index t = 0; t < tokens_; ++t) variance = std::max(variance, gain_ * q.K(t, t) * k.K(t, t));
    // until the first power that is left out is small
    for (double left = variance * variance / 2; powers_ < most_powers && left > 3e-4; left *= variance / ++powers_) {
    }
    // where values are keys up to a factor, the sums of Kk^p o Kv are those of Kk^(p + 1)
    const bool alike = v.K.same_up_to_scale(k.K) && k.K(0, 0) > 0;
    z_.push_back(Kernel::from(tokens_, [&](Index t, Index s) { return sight_.count(t) * sight_.count(s); }));
    Matrix power = ones(tokens_);
    for (int p = 0; p < powers_; ++p) {
      if (!alike) s_.push_back(seen({tokens_, tokens_, [&](Index j, Index l) { return power(j, l) * v.K(j, l); }}));
      if (!alike && p + 1 == powers_) break;
      multiply(power, k.K);
      z_.push_back(seen({tokens_, tokens_, [&](Index j, Index l) { return power(j, l); }}));
      if (alike) s_.push_back(z_.back().scaled(v.K(0, 0) / k.K(0, 0)));
    }
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
    for (Index t = 0; t < tokens_; ++t) {
      const Range see = sight_.keys[t];
      const double n = sight_.count(t);
      const double x = gain_ * q_(t, t);
      double diagonal = 0;
      for (Index j = see.begin; j < see.end; ++j) diagonal += k_(j, j);
      squares += x * diagonal;
      pairs += n;
      // variance of the scores within the row, which is what bends the weights away from uniform
      const double within = x * (diagonal / n - z_[1](t, t) / (n * n));
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

  // |Q K'|^2 of Gaussian heads: 2 a b + 2 (a + b) / dk of its square a head, a and b the sameness of queries and of keys;
  // how far the weights are from uniform goes with it.
  [[nodiscard]] AttentionSummary spread_of(const AttentionSummary& mean, Index heads) const {
    const double a = q_.sameness(), b = k_.sameness();
    const double relative = std::sqrt((2 * a * b + 2 * (a + b) / static_cast<double>(op_.key_dim)) / static_cast<double>(heads));
    double uniform = 0, squares = 0;
    for (Index t = 0; t < tokens_; ++t) {
      uniform += std::log(sight_.count(t)) / static_cast<double>(tokens_);
      squares += 1 / sight_.count(t) / static_cast<double>(tokens_);
    }
    return {relative * mean.score_variance, 0, relative * (uniform - mean.entropy), relative * (mean.sum_squares - squares)};
  }

  [[nodiscard]] Pulled pull(const Kernel& G) const {
    Pulled up;
    const Matrix y = row_means(v_);
    const std::vector<double> key_spread = spread(k_, z_[1]);
    const std::vector<double> tilt = tilts(key_spread);
    const auto [gq, extra] = pull_query(G, y, key_spread, tilt);
    const Kernel gk = pull_key(G, y, tilt);
    const double plain = frobenius(k_, gk);
    up.dx.emplace_back(gq);
    up.dx.push_back({Adjoint{gk}, {.weight_gain = plain > 0 ? 1 + extra / plain : 1}});
    up.dx.emplace_back(pull_value(G));
    return up;
  }

 private:
  // the sum over the keys that t sees and those that s sees, for all (t, s)
  [[nodiscard]] Kernel seen(const IntegralImage& image) const {
    return Kernel::from_rows(tokens_, [&](Index t, double* __restrict row) {
      const std::vector<double> band = image.band(sight_.keys[t]);
      for (Index s = 0; s <= t; ++s) row[s] = within(band, sight_.keys[s]);
    });
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

  [[nodiscard]] Kernel pull_value(const Kernel& G) const {
    const Kernel z = Kernel::from_rows(tokens_, [&](Index t, double* __restrict row) {
      const std::vector<double> bottom = sums(z_, t);
      const Kernel::Row g = G.row(t);
      for (Index s = 0; s <= t; ++s) row[s] = g[s] / bottom[s];
    });
    std::vector<IntegralImage> h;
    Matrix power = ones(tokens_);
    for (int p = 0; p < powers_; ++p) {
      multiply(power, p == 0 ? z : q_.scaled(gain_ / p));
      h.emplace_back(tokens_, tokens_, [&](Index t, Index s) { return power(t, s); });
    }
    return Kernel::from_rows(tokens_, [&](Index j, double* __restrict row) {
      const Kernel::Row k = k_.row(j);
      std::fill_n(row, j + 1, 0.0);
      for (int p = powers_; p-- > 0;) {
        const std::vector<double> band = h[static_cast<std::size_t>(p)].band(sight_.queries[j]);
        for (Index l = 0; l <= j; ++l) row[l] = row[l] * k[l] + within(band, sight_.queries[l]);  // (11)
      }
    });
  }

  // mean of row j of K over the keys that s sees, for all (j, s)
  [[nodiscard]] Matrix row_means(const Kernel& K) const {
    Matrix out(tokens_, tokens_);
    std::vector<double> prefix(static_cast<std::size_t>(tokens_) + 1, 0.0);
    for (Index j = 0; j < tokens_; ++j) {
      for (Index l = 0; l < tokens_; ++l) prefix[l + 1] = prefix[l] + K(j, l);
      for (Index s = 0; s < tokens_; ++s) out(j, s) = (prefix[sight_.keys[s].end] - prefix[sight_.keys[s].begin]) / sight_.count(s);
    }
    return out;
  }

  // tr(P_t K) = what the keys of t differ by
  [[nodiscard]] std::vector<double> spread(const Kernel& K, const Kernel& sums) const {
    std::vector<double> out;
    for (Index t = 0; t < tokens_; ++t) {
      const Range see = sight_.keys[t];
      const double n = sight_.count(t);
      double diagonal = 0;
      for (Index j = see.begin; j < see.end; ++j) diagonal += K(j, j);
      out.push_back(diagonal / n - sums(t, t) / (n * n));
    }
    return out;
  }

  // Weights that lean away from uniform make the gradient larger: to first order by exp of the scores' variance within the row.
  [[nodiscard]] std::vector<double> tilts(const std::vector<double>& key_spread) const {
    std::vector<double> out;
    for (Index t = 0; t < tokens_; ++t) out.push_back(std::exp(gain_ * q_(t, t) * key_spread[t] / 2));
    return out;
  }

  struct Query {
    Kernel G;
    double extra;  // what the shared noise of k and v adds to <Kk, Gk>, and so to the gradient of the key weights
  };

  [[nodiscard]] Query pull_query(const Kernel& G, const Matrix& y, const std::vector<double>& ck, const std::vector<double>& tilt) const {
    const Matrix w = row_means(k_);
    const IntegralImage yw(tokens_, tokens_, [&](Index j, Index s) { return y(j, s) * w(j, s); });
    Matrix over(tokens_, tokens_);  // means of y w over the keys that t sees
    for (Index t = 0; t < tokens_; ++t) {
      const std::vector<double> band = yw.band(sight_.keys[t]);
      for (Index s = 0; s < tokens_; ++s) over(t, s) = (band[s + 1] - band[s]) / sight_.count(t);
    }
    const std::vector<double> cv = spread(v_, s_[0]);
    const Kernel trace = Kernel::from(tokens_, [&](Index t, Index s) {
      const double n = 1 / z_[0](t, s);
      return (s_[1](t, s) * n - over(t, s) - over(s, t) + s_[0](t, s) * n * (z_[1](t, s) * n)) * tilt[t] * tilt[s];
    });
    const Kernel shared = Kernel::from(tokens_, [&](Index t, Index s) {
      return gain_ * G(t, s) * (noise_ * (cv[t] * ck[s] + cv[s] * ck[t]) / 2 * tilt[t] * tilt[s] + swing_ * trace(t, s));
    });
    Kernel out = Kernel::from(tokens_, [&](Index t, Index s) { return gain_ * G(t, s) * trace(t, s) + shared(t, s); });  // (11)
    const double extra = frobenius(q_, shared);
    return {out, extra};
  }

  [[nodiscard]] Kernel pull_key(const Kernel& G, const Matrix& y, const std::vector<double>& tilt) const {
    const Kernel h = Kernel::from(tokens_, [&](Index t, Index s) { return q_(t, s) * G(t, s) * tilt[t] * tilt[s] / z_[0](t, s); });
    const IntegralImage hh(tokens_, tokens_, [&](Index t, Index s) { return h(t, s); });
    const Kernel u = Kernel::from(tokens_, [&](Index t, Index s) { return h(t, s) * s_[0](t, s) / z_[0](t, s); });
    const IntegralImage hu(tokens_, tokens_, [&](Index t, Index s) { return u(t, s); });
    // cross_jl = sum over s that see l of y_js sum over t that see j of h_ts
    Matrix cross(tokens_, tokens_);
    for (Index j = 0; j < tokens_; ++j) {
      const std::vector<double> band = hh.band(sight_.queries[j]);
      std::vector<double> line(static_cast<std::size_t>(tokens_) + 1, 0.0);
      for (Index s = 0; s < tokens_; ++s) line[s + 1] = line[s] + y(j, s) * (band[s + 1] - band[s]);
      for (Index l = 0; l < tokens_; ++l) cross(j, l) = within(line, sight_.queries[l]);
    }
    return Kernel::from_rows(tokens_, [&](Index j, double* __restrict row) {
      const std::vector<double> all = hh.band(sight_.queries[j]), means = hu.band(sight_.queries[j]);
      const Kernel::Row v = v_.row(j);
      for (Index l = 0; l <= j; ++l) {
        const Range see = sight_.queries[l];
        row[l] = gain_ * (v[l] * within(all, see) - cross(j, l) - cross(l, j) + within(means, see));  // (12)
      }
    });
  }

  const Attention& op_;
  Index tokens_;
  Sight sight_;
  Kernel q_, k_, v_;
  double swing_;
  double noise_;  // of what keys and values are both made from
  double gain_;
  int powers_ = 2;             // of the score variance, the first being the zeroth; the rules below use two
  std::vector<Kernel> z_, s_;  // sums over what t and s see of Kk^p, and of Kk^p o Kv
};

}  // namespace

DownWire push_series(const Attention& op, const Batch& batch, const DownWire& q, const DownWire& k, const DownWire& v) {
  const auto series = std::make_shared<const Series>(op, batch, q, k, v);
  DownWire y(Moment{.K = series->output()});
  const AttentionSummary summary = series->summary(op.heads);
  y.note = AttentionNote{summary, series->spread_of(summary, op.heads), series};
  return y;
}

Pulled pull_series(const Attention& op, const PullDoor& p) {
  const auto* note = note_of<AttentionNote>(p.y);
  if (note != nullptr && note->keep != nullptr) return static_cast<const Series*>(note->keep.get())->pull(p.dy.G);
  return Series(op, p.batch, *p.x[0], *p.x[1], *p.x[2]).pull(p.dy.G);
}

}  // namespace stepzero
