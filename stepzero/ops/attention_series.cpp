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
#include <vector>

#include "stepzero/ops/attention_moments.hpp"

namespace stepzero {

namespace {

using Range = Attention::Range;

// Sums over rectangles of a matrix in constant time.
class IntegralImage {
 public:
  template <class F>
  IntegralImage(Index rows, Index cols, const F& f) : sum_(rows + 1, cols + 1) {
    std::fill_n(sum_.view().row(0), cols + 1, 0.0);
    for (Index r = 0; r < rows; ++r) {
      const double* above = sum_.view().row(r);
      double* row = sum_.view().row(r + 1);
      double line = row[0] = 0;
      for (Index c = 0; c < cols; ++c) {
        line += f(r, c);
        row[c + 1] = above[c + 1] + line;
      }
    }
  }
  double operator()(Range r, Range c) const {
    return sum_(r.end, c.end) - sum_(r.begin, c.end) - sum_(r.end, c.begin) + sum_(r.begin, c.begin);
  }

 private:
  Matrix sum_;
};

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

constexpr int most_powers = 5;  // scores have variance below 0.2: what the cut leaves is 1e-4

Matrix ones(Index n) {
  Matrix m(n, n);
  std::fill_n(m.data(), m.size(), 1.0);
  return m;
}

// m o K
void multiply(Matrix& m, const Kernel& K) {
  for (Index t = 0; t < m.rows(); ++t) {
    for (Index s = 0; s < m.cols(); ++s) m(t, s) *= K(t, s);
  }
}

class Series {
 public:
  Series(const Attention& op, const Batch& batch, const Moment& q, const Moment& k, const Moment& v)
      : op_(op),
        tokens_(batch.tokens()),
        sight_(op, batch),
        q_(q),
        k_(k),
        v_(v),
        gain_(op.scale * op.scale * static_cast<double>(op.key_dim)) {
    double variance = 0;
    for (Index t = 0; t < tokens_; ++t) variance = std::max(variance, gain_ * q.K(t, t) * k.K(t, t));
    for (double left = variance; powers_ < most_powers && left > 1e-4; left *= variance / ++powers_) {
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
    return Kernel::from(tokens_, [&](Index t, Index s) {
      const double x = gain_ * q_.K(t, s);
      return sum(s_, x, t, s) / sum(z_, x, t, s);  // (10)
    });
  }

  [[nodiscard]] AttentionSummary summary(Index heads) const {
    AttentionSummary out;
    double pairs = 0, squares = 0;
    for (Index t = 0; t < tokens_; ++t) {
      const Range see = sight_.keys[t];
      const double n = sight_.count(t);
      const double x = gain_ * q_.K(t, t);
      double diagonal = 0;
      for (Index j = see.begin; j < see.end; ++j) diagonal += k_.K(j, j);
      squares += x * diagonal;
      pairs += n;
      // variance of the scores within the row, which is what bends the weights away from uniform
      const double within = x * (diagonal / n - z_[1](t, t) / (n * n));
      out.entropy += std::log(n) - within / 2;
      out.sum_squares += std::exp(within) / n;
    }
    // the pooled mean of one draw's scores is not quite 0: it goes off the variance
    const double pooled = gain_ * frobenius(q_.K, z_[1]);
    out.score_variance = squares / pairs - pooled / (pairs * pairs) / static_cast<double>(heads);
    out.entropy /= static_cast<double>(tokens_);
    out.sum_squares /= static_cast<double>(tokens_);
    return out;
  }

  // |Q K'|^2 of Gaussian heads: 2 a b + 2 (a + b) / dk of its square a head, a and b the sameness of queries and of keys;
  // how far the weights are from uniform goes with it.
  [[nodiscard]] AttentionSummary spread_of(const AttentionSummary& mean, Index heads) const {
    const double a = q_.K.sameness(), b = k_.K.sameness();
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
    const auto [gq, extra] = pull_query(G);
    const Kernel gk = pull_key(G);
    const double plain = frobenius(k_.K, gk);
    up.dx.push_back({.G = gq});
    up.dx.push_back({.G = gk, .weight_gain = plain > 0 ? 1 + extra / plain : 1});
    up.dx.push_back({.G = pull_value(G)});
    return up;
  }

 private:
  // the sum over the keys that t sees and those that s sees, for all (t, s)
  [[nodiscard]] Kernel seen(const IntegralImage& image) const {
    return Kernel::from(tokens_, [&](Index t, Index s) { return image(sight_.keys[t], sight_.keys[s]); });
  }

  double sum(const std::vector<Kernel>& powers, double x, Index t, Index s) const {
    double total = 0, factor = 1;
    for (int p = 0; p < powers_; ++p) {
      total += factor * powers[static_cast<std::size_t>(p)](t, s);
      factor *= x / (p + 1);
    }
    return total;
  }

  [[nodiscard]] Kernel pull_value(const Kernel& G) const {
    const Kernel z = Kernel::from(tokens_, [&](Index t, Index s) { return G(t, s) / sum(z_, gain_ * q_.K(t, s), t, s); });
    std::vector<IntegralImage> h;
    Matrix power = ones(tokens_);
    for (int p = 0; p < powers_; ++p) {
      h.emplace_back(tokens_, tokens_, [&](Index t, Index s) { return power(t, s) * z(t, s); });
      multiply(power, q_.K.scaled(gain_ / (p + 1)));
    }
    return Kernel::from(tokens_,
                        [&](Index j, Index l) { return sum_powers(h, k_.K(j, l), sight_.queries[j], sight_.queries[l]); });  // (11)
  }

  static double sum_powers(const std::vector<IntegralImage>& images, double x, Range r, Range c) {
    double total = 0, factor = 1;
    for (const IntegralImage& image : images) {
      total += factor * image(r, c);
      factor *= x;
    }
    return total;
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
    for (Index t = 0; t < tokens_; ++t) out.push_back(std::exp(gain_ * q_.K(t, t) * key_spread[t] / 2));
    return out;
  }

  struct Query {
    Kernel G;
    double extra;  // what the shared noise of k and v adds to <Kk, Gk>, and so to the gradient of the key weights
  };

  [[nodiscard]] Query pull_query(const Kernel& G) const {
    const Matrix y = row_means(v_.K);
    const Matrix w = row_means(k_.K);
    const IntegralImage yw(tokens_, tokens_, [&](Index j, Index s) { return y(j, s) * w(j, s); });
    const auto over = [&](Index t, Index s) { return yw(sight_.keys[t], {s, s + 1}) / sight_.count(t); };
    const std::vector<double> cv = spread(v_.K, s_[0]);
    const std::vector<double> ck = spread(k_.K, z_[1]);
    const std::vector<double> tilt = tilts(ck);
    const double swing = std::exp(k_.swing) - 1;
    const double noise = k_.noise - 1 / static_cast<double>(op_.kv_heads * op_.key_dim);  // of what both are made from
    const Kernel trace = Kernel::from(tokens_, [&](Index t, Index s) {
      const double n = z_[0](t, s);
      return (s_[1](t, s) / n - over(t, s) - over(s, t) + s_[0](t, s) / n * (z_[1](t, s) / n)) * tilt[t] * tilt[s];
    });
    const Kernel shared = Kernel::from(tokens_, [&](Index t, Index s) {
      return gain_ * G(t, s) * (noise * (cv[t] * ck[s] + cv[s] * ck[t]) / 2 * tilt[t] * tilt[s] + swing * trace(t, s));
    });
    Kernel out = Kernel::from(tokens_, [&](Index t, Index s) { return gain_ * G(t, s) * trace(t, s) + shared(t, s); });  // (11)
    const double extra = frobenius(q_.K, shared);
    return {out, extra};
  }

  [[nodiscard]] Kernel pull_key(const Kernel& G) const {
    const std::vector<double> tilt = tilts(spread(k_.K, z_[1]));
    const auto h = [&](Index t, Index s) { return q_.K(t, s) * G(t, s) * tilt[t] * tilt[s] / z_[0](t, s); };
    const Matrix y = row_means(v_.K);
    const IntegralImage hh(tokens_, tokens_, h);
    const IntegralImage hu(tokens_, tokens_, [&](Index t, Index s) { return h(t, s) * s_[0](t, s) / z_[0](t, s); });
    // N_jl = sum over s that see l of y_js sum over t that see j of h_ts
    const IntegralImage n(tokens_, tokens_, [&](Index j, Index s) { return y(j, s) * hh(sight_.queries[j], {s, s + 1}); });
    const auto cross = [&](Index j, Index l) { return n({j, j + 1}, sight_.queries[l]); };
    return Kernel::from(tokens_, [&](Index j, Index l) {
      const Range a = sight_.queries[j], b = sight_.queries[l];
      return gain_ * (v_.K(j, l) * hh(a, b) - cross(j, l) - cross(l, j) + hu(a, b));  // (12)
    });
  }

  const Attention& op_;
  Index tokens_;
  Sight sight_;
  const Moment& q_;
  const Moment& k_;
  const Moment& v_;
  double gain_;
  int powers_ = 2;             // of the score variance, the first being the zeroth; the rules below use two
  std::vector<Kernel> z_, s_;  // sums over what t and s see of Kk^p, and of Kk^p o Kv
};

}  // namespace

Moment push_series(const Attention& op, const Batch& batch, const Moment& q, const Moment& k, const Moment& v) {
  const Series series(op, batch, q, k, v);
  Moment y;
  y.K = series.output();
  y.attention = series.summary(op.heads);
  y.attention_spread = series.spread_of(*y.attention, op.heads);
  return y;
}

Pulled pull_series(const Attention& op, const Batch& batch, const Moment& q, const Moment& k, const Moment& v, const Kernel& G) {
  return Series(op, batch, q, k, v).pull(G);
}

}  // namespace stepzero
