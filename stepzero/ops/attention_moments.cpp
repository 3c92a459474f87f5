// The moment doors of attention, two ways behind one rule.
//
// Series: where the scores' variance is small the weights are nearly uniform, and with v = c^2 dk Kq_ts
//     E[A_tj A_sl] = exp(v Kk_jl) / Z,   K_o = sum_p v^p/p! S_p / sum_p v^p/p! Z_p
// with S_p, Z_p sums of Kk^p o Kv and Kk^p over the rectangle of keys that t and s see: one integral image a power.
// Gradients of q and k take uniform weights; q and k's share of the sampling noise of the kernels (Moment::noise) adds
//     tr(P_t Kv) tr(P_s Kk) noise
// to tr(P_t Kv P_s Kk), since k and v are made from the same draw of their input.
//
// Sampled: synthetic heads drawn from their kernels run through this op's own forward and backward, with the norm and the
// rotation of heads that the model has. The kernel itself is redrawn (Bartlett) at the number of channels that its noise stands for.
#include <cmath>
#include <vector>

#include "stepzero/core/random.hpp"
#include "stepzero/ops/attention.hpp"
#include "stepzero/ops/rotary.hpp"

namespace stepzero {

namespace {

using Range = Attention::Range;

// Sums over rectangles of a matrix in constant time.
class IntegralImage {
 public:
  template <class F>
  IntegralImage(Index rows, Index cols, const F& f) : sum_(rows + 1, cols + 1) {
    for (Index c = 0; c <= cols; ++c) sum_(0, c) = 0;
    for (Index r = 0; r < rows; ++r) {
      double line = 0;
      sum_(r + 1, 0) = 0;
      for (Index c = 0; c < cols; ++c) {
        line += f(r, c);
        sum_(r + 1, c + 1) = sum_(r, c + 1) + line;
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

constexpr int powers = 5;  // scores have variance below 0.2: what the cut leaves is 0.2^5 / 5!

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
    Matrix power = ones(tokens_);
    for (int p = 0; p < powers; ++p) {
      z_.emplace_back(tokens_, tokens_, [&](Index j, Index l) { return power(j, l); });
      s_.emplace_back(tokens_, tokens_, [&](Index j, Index l) { return power(j, l) * v.K(j, l); });
      multiply(power, k.K);
    }
  }

  [[nodiscard]] Kernel output() const {
    return Kernel::from(tokens_, [&](Index t, Index s) {
      const double x = gain_ * q_.K(t, s);
      return sum(s_, x, sight_.keys[t], sight_.keys[s]) / sum(z_, x, sight_.keys[t], sight_.keys[s]);  // (10)
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
      const double within = x * (diagonal / n - z_[1](see, see) / (n * n));
      out.entropy += std::log(n) - within / 2;
      out.sum_squares += std::exp(within) / n;
    }
    // the pooled mean of one draw's scores is not quite 0: it goes off the variance
    const IntegralImage& kk = z_[1];
    double pooled = 0;
    for (Index t = 0; t < tokens_; ++t) {
      for (Index s = 0; s < tokens_; ++s) pooled += gain_ * q_.K(t, s) * kk(sight_.keys[t], sight_.keys[s]);
    }
    out.score_variance = squares / pairs - pooled / (pairs * pairs) / static_cast<double>(heads);
    out.entropy /= static_cast<double>(tokens_);
    out.sum_squares /= static_cast<double>(tokens_);
    return out;
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
  static double sum(const std::vector<IntegralImage>& images, double x, Range r, Range c) {
    double total = 0, factor = 1;
    for (int p = 0; p < powers; ++p) {
      total += factor * images[static_cast<std::size_t>(p)](r, c);
      factor *= x / (p + 1);
    }
    return total;
  }

  [[nodiscard]] Kernel pull_value(const Kernel& G) const {
    Matrix z(tokens_, tokens_);
    for (Index t = 0; t < tokens_; ++t) {
      for (Index s = 0; s < tokens_; ++s) z(t, s) = sum(z_, gain_ * q_.K(t, s), sight_.keys[t], sight_.keys[s]);
    }
    std::vector<IntegralImage> h;
    Matrix power = ones(tokens_);
    for (int p = 0; p < powers; ++p) {
      h.emplace_back(tokens_, tokens_, [&](Index t, Index s) { return G(t, s) * power(t, s) / z(t, s); });
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
  [[nodiscard]] std::vector<double> spread(const Kernel& K, const IntegralImage& image) const {
    std::vector<double> out;
    for (Index t = 0; t < tokens_; ++t) {
      const Range see = sight_.keys[t];
      const double n = sight_.count(t);
      double diagonal = 0;
      for (Index j = see.begin; j < see.end; ++j) diagonal += K(j, j);
      out.push_back(diagonal / n - image(see, see) / (n * n));
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
    const double noise = k_.noise - 1 / static_cast<double>(op_.kv_heads * op_.key_dim);  // of what both are made from
    double extra = 0;
    Kernel out = Kernel::from(tokens_, [&](Index t, Index s) {
      const Range a = sight_.keys[t], b = sight_.keys[s];
      const double n = sight_.count(t) * sight_.count(s);
      const double trace = s_[1](a, b) / n - over(t, s) - over(s, t) + s_[0](a, b) / n * (z_[1](a, b) / n);
      const double shared = noise * (cv[t] * ck[s] + cv[s] * ck[t]) / 2;
      extra += (t == s ? 1 : 2) * gain_ * q_.K(t, s) * G(t, s) * shared * tilt[t] * tilt[s];
      return gain_ * G(t, s) * (trace + shared) * tilt[t] * tilt[s];  // (11)
    });
    return {out, extra};
  }

  [[nodiscard]] Kernel pull_key(const Kernel& G) const {
    const std::vector<double> tilt = tilts(spread(k_.K, z_[1]));
    const auto h = [&](Index t, Index s) { return q_.K(t, s) * G(t, s) * tilt[t] * tilt[s] / (sight_.count(t) * sight_.count(s)); };
    const Matrix y = row_means(v_.K);
    const IntegralImage hh(tokens_, tokens_, h);
    const IntegralImage hu(tokens_, tokens_, [&](Index t, Index s) {
      return h(t, s) * s_[0](sight_.keys[t], sight_.keys[s]) / (sight_.count(t) * sight_.count(s));
    });
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
  std::vector<IntegralImage> z_, s_;
};

// L with L L' = K, for a K that may be singular: a direction that is not there gets no column.
Matrix root(const Kernel& K) {
  const Index n = K.tokens();
  Matrix L(n, n);
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) L(i, j) = 0;
  }
  for (Index j = 0; j < n; ++j) {
    double pivot = K(j, j);
    for (Index k = 0; k < j; ++k) pivot -= L(j, k) * L(j, k);
    if (!(pivot > 1e-10 * K(j, j))) continue;
    L(j, j) = std::sqrt(pivot);
    for (Index i = j + 1; i < n; ++i) {
      double x = K(i, j);
      for (Index k = 0; k < j; ++k) x -= L(i, k) * L(j, k);
      L(i, j) = x / L(j, j);
    }
  }
  return L;
}

// Synthetic heads with the kernels of q, k, v (and of dy), run through the op itself.
class Sampler {
 public:
  static constexpr Index heads = 8;  // in one go, from one redrawn kernel

  Sampler(const Attention& op, const Batch& batch, const Moment& q, const Moment& k, const Moment& v)
      : op_(op),
        batch_(batch),
        tokens_(batch.tokens()),
        columns_(std::max<Index>(tokens_, 64)),
        rounds_(std::clamp<Index>(768 / tokens_, 6, 96)),
        q_(q),
        k_(k),
        root_(root(v.K)),
        v_(v) {
    synthetic_ = op;
    synthetic_.heads = synthetic_.kv_heads = heads;
    synthetic_.value_dim = columns_;
    if (!op.alibi.empty()) {
      for (Index h = 0; h < heads; ++h) slopes_.push_back(op.alibi[static_cast<std::size_t>(h * op.heads / heads % op.heads)]);
      synthetic_.alibi = slopes_;
    }
    const double noise = v.noise - 1 / static_cast<double>(op.kv_heads * op.value_dim);
    channels_ = noise > 0 ? 1 / noise : 0;
  }

  struct Round {
    Matrix factor;  // of the redrawn kernel of v
    Tensor<float> q, k, v, y, keep;
  };

  // Round i, the same whenever it is asked for.
  [[nodiscard]] Round forward(Index i) const {
    Round r{redraw(i), {}, {}, {}, Tensor<float>(tokens_, heads * columns_), Tensor<float>(tokens_, synthetic_.keep())};
    r.q = head_draw(r.factor, q_, "q", i);
    r.k = head_draw(r.factor, k_, "k", i);
    r.v = times(r.factor, heads * columns_, "v", i);
    const View<const float> x[] = {r.q, r.k, r.v};
    synthetic_.forward(Down<float>{batch_, x, {}, r.y.view(), r.keep.view()});
    return r;
  }

  [[nodiscard]] Moment push() const {
    Moment out;
    Matrix K(tokens_, tokens_);
    AttentionSummary mean;
    for (Index i = 0; i < rounds_; ++i) {
      const Round r = forward(i);
      add_gram(r.y, 1 / static_cast<double>(heads * columns_ * rounds_), K, i == 0);
      const AttentionSummary s = synthetic_.summary(batch_, View<const float>(r.keep.view()));
      mean.score_variance += s.score_variance / static_cast<double>(rounds_);
      mean.entropy += s.entropy / static_cast<double>(rounds_);
      mean.sum_squares += s.sum_squares / static_cast<double>(rounds_);
    }
    out.K = Kernel(std::move(K));
    out.attention = mean;
    return out;
  }

  [[nodiscard]] Pulled pull(const Kernel& G) const {
    const Index dk = op_.key_dim;
    const double share = 1 / static_cast<double>(heads * rounds_);
    const double size = G.trace() / static_cast<double>(tokens_);  // floats stay in range
    if (!(size > 0)) return {{{G}, {G}, {G}}, {}};
    const Matrix up_root = root(G.scaled(1 / size));
    Matrix gq(tokens_, tokens_), gk(tokens_, tokens_), gv(tokens_, tokens_), gq0(tokens_, tokens_), gk0(tokens_, tokens_);
    double q_inner = 0, k_inner = 0;
    for (Index i = 0; i < rounds_; ++i) {
      const Round r = forward(i);
      Tensor<float> dy = times(up_root, heads * columns_, "dy", i);
      const float norm = 1 / std::sqrt(static_cast<float>(columns_));
      for (Index j = 0; j < dy.size(); ++j) dy.data()[j] *= norm;
      Tensor<float> dq(tokens_, heads * dk), dk_(tokens_, heads * dk), dv(tokens_, heads * columns_);
      const View<const float> x[] = {r.q, r.k, r.v};
      const Into<float> into[] = {{dq.view()}, {dk_.view()}, {dv.view()}};
      synthetic_.backward(Up<float>{batch_, x, {}, r.y.view(), r.keep.view(), dy.view(), into, {}});
      add_gram(dq, size * share, gq, i == 0);
      add_gram(dk_, size * share, gk, i == 0);
      add_gram(dv, size * share, gv, i == 0);
      if (q_.rotary != nullptr) dq = turned_back(dq);
      if (k_.rotary != nullptr) dk_ = turned_back(dk_);
      add_gram(dq, size * share, gq0, i == 0);
      add_gram(dk_, size * share, gk0, i == 0);
      Matrix own_q(tokens_, tokens_), own_k(tokens_, tokens_), own(tokens_, tokens_);
      add_gram(dq, size * share, own_q, true);
      add_gram(dk_, size * share, own_k, true);
      gemm(Trans::no, Trans::yes, 1.0, View<const double>(r.factor), View<const double>(r.factor), 0.0, own.view());
      for (Index t = 0; t < tokens_; ++t) {
        for (Index s = 0; s < tokens_; ++s) {
          q_inner += own(t, s) * own_q(t, s);
          k_inner += own(t, s) * own_k(t, s);
        }
      }
    }
    const Kernel q_before{std::move(gq0)}, k_before{std::move(gk0)};
    const auto gain = [&](double inner, const Kernel& g) {
      const double plain = frobenius(v_.K, g);
      return plain > 0 ? inner / plain : 1;
    };
    Pulled out;
    out.dx.push_back({.G = Kernel(std::move(gq)), .before_rotary = q_before, .weight_gain = gain(q_inner, q_before)});
    out.dx.push_back({.G = Kernel(std::move(gk)), .before_rotary = k_before, .weight_gain = gain(k_inner, k_before)});
    out.dx.push_back({.G = Kernel(std::move(gv))});
    return out;
  }

 private:
  static std::span<double> all(Matrix& m) { return {m.data(), static_cast<std::size_t>(m.size())}; }

  // The root of a kernel that one draw of `channels_` channels might show.
  [[nodiscard]] Matrix redraw(Index i) const {
    const double n = static_cast<double>(tokens_);
    Matrix out(tokens_, tokens_);
    if (channels_ == 0 || channels_ > 100 * n) {
      std::copy_n(root_.data(), root_.size(), out.data());
      return out;
    }
    if (channels_ < n + 1) {
      const Index nu = std::max<Index>(1, static_cast<Index>(std::lround(channels_)));
      Matrix z(tokens_, nu), thin(tokens_, nu);
      fill(Distribution::normal(1), make_stream(static_cast<std::uint64_t>(i), "attention.kernel"), 0, all(z));
      gemm(Trans::no, Trans::no, 1 / std::sqrt(static_cast<double>(nu)), View<const double>(root_), View<const double>(z), 0.0,
           thin.view());
      return thin;
    }
    // Bartlett: below the diagonal normal, on it chi of falling degrees (here by its normal limit, Wilson-Hilferty)
    Matrix b(tokens_, tokens_);
    fill(Distribution::normal(1), make_stream(static_cast<std::uint64_t>(i), "attention.kernel"), 0, all(b));
    for (Index t = 0; t < tokens_; ++t) {
      const double degrees = channels_ - static_cast<double>(t);
      const double cube = 1 - 2 / (9 * degrees) + b(t, t) * std::sqrt(2 / (9 * degrees));
      b(t, t) = std::sqrt(degrees * cube * cube * cube);
      for (Index s = t + 1; s < tokens_; ++s) b(t, s) = 0;
    }
    gemm(Trans::no, Trans::no, 1 / std::sqrt(channels_), View<const double>(root_), View<const double>(b), 0.0, out.view());
    return out;
  }

  // factor times fresh normals, (tokens, columns)
  [[nodiscard]] Tensor<float> times(const Matrix& factor, Index columns, const char* name, Index i) const {
    Tensor<float> z(factor.cols(), columns), f(tokens_, factor.cols()), out(tokens_, columns);
    fill(Distribution::normal(1), make_stream(static_cast<std::uint64_t>(i), std::string("attention.") + name), 0,
         std::span<float>(z.data(), static_cast<std::size_t>(z.size())));
    for (Index j = 0; j < f.size(); ++j) f.data()[j] = static_cast<float>(factor.data()[j]);
    // in pieces of fixed size, each in one thread: the same bits for any number of threads
    parallel_ranges(columns, 64, [&](Index c0, Index c1) {
      gemm(Trans::no, Trans::no, 1.0F, View<const float>(f.view()), View<const float>(z.view().columns(c0, c1 - c0)), 0.0F,
           out.view().columns(c0, c1 - c0));
    });
    return out;
  }

  // Heads of q or k: the kernel of v scaled token by token to theirs, then the norm and the rotation the model has.
  [[nodiscard]] Tensor<float> head_draw(const Matrix& factor, const Moment& m, const char* name, Index i) const {
    const Index dk = op_.key_dim;
    Tensor<float> x = times(factor, heads * dk, name, i);
    const Kernel& base = m.before_heads ? *m.before_heads : m.K;
    for (Index t = 0; t < tokens_; ++t) {
      const double v = v_.K(t, t);
      const auto scale = static_cast<float>(v > 0 ? std::sqrt(base(t, t) / v) : 0);
      for (Index h = 0; h < heads; ++h) {
        float* row = x.view().row(t) + h * dk;
        float a = scale;
        if (m.unit_heads) {
          const float square = dot_row(row, row, dk);
          a = square > 0 ? std::sqrt(static_cast<float>(m.K(t, t) * static_cast<double>(dk)) / square) : 0;
        }
        for (Index c = 0; c < dk; ++c) row[c] *= a;
      }
    }
    return m.rotary == nullptr ? std::move(x) : turned(x, m.rotary, false);
  }

  [[nodiscard]] Tensor<float> turned(const Tensor<float>& x, const Rotary* rotary, bool back) const {
    Rotary op = *rotary;
    op.heads = heads;
    Tensor<float> out(x.rows(), x.cols());
    const View<const float> in[] = {x};
    const Into<float> into[] = {{out.view()}};
    if (back)
      op.backward(Up<float>{batch_, in, {}, {}, {}, x.view(), into, {}});
    else
      op.forward(Down<float>{batch_, in, {}, out.view(), {}});
    return out;
  }
  [[nodiscard]] Tensor<float> turned_back(const Tensor<float>& x) const { return turned(x, q_.rotary, true); }

  // out (+)= a X X'
  void add_gram(const Tensor<float>& x, double a, Matrix& out, bool first) const {
    Tensor<float> gram(tokens_, tokens_);
    parallel_ranges(tokens_, 32, [&](Index t0, Index t1) {
      gemm(Trans::no, Trans::yes, 1.0F, x.view().slice(t0, t1 - t0), x.view(), 0.0F, gram.view().slice(t0, t1 - t0));
    });
    for (Index t = 0; t < tokens_; ++t) {
      for (Index s = 0; s < tokens_; ++s)
        out(t, s) = (first ? 0 : out(t, s)) + a * (static_cast<double>(gram(t, s)) + static_cast<double>(gram(s, t))) / 2;
    }
  }

  const Attention& op_;
  const Batch& batch_;
  Index tokens_;
  Index columns_;  // of v and dy: more than a real head has, since only their second moments matter
  Index rounds_;
  const Moment& q_;
  const Moment& k_;
  Matrix root_;
  const Moment& v_;
  Attention synthetic_;
  std::vector<double> slopes_;
  double channels_ = 0;
};

// The series is good where scores are small and nothing but their variance matters.
bool series_serves(const Attention& op, const Moment& q, const Moment& k) {
  if (op.softcap > 0 || !op.alibi.empty() || q.unit_heads || q.rotary != nullptr) return false;
  double top_q = 0, top_k = 0;
  for (Index t = 0; t < q.K.tokens(); ++t) {
    top_q = std::max(top_q, q.K(t, t));
    top_k = std::max(top_k, k.K(t, t));
  }
  const double variance = op.scale * op.scale * static_cast<double>(op.key_dim) * top_q * top_k;
  return variance < 0.2;
}

}  // namespace

Moment Attention::push(const PushDoor& p) const {
  const Moment &q = *p.x[0], &k = *p.x[1], &v = *p.x[2];
  Moment y;
  if (series_serves(*this, q, k)) {
    const Series series(*this, p.batch, q, k, v);
    y.K = series.output();
    y.attention = series.summary(heads);
  } else {
    y = Sampler(*this, p.batch, q, k, v).push();
  }
  y.noise = v.noise;
  return y;
}

Pulled Attention::pull(const PullDoor& p) const {
  const Moment &q = *p.x[0], &k = *p.x[1], &v = *p.x[2];
  if (series_serves(*this, q, k)) return Series(*this, p.batch, q, k, v).pull(p.dy.G);
  return Sampler(*this, p.batch, q, k, v).pull(p.dy.G);
}

}  // namespace stepzero
