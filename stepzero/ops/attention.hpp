#pragma once
// What       Every query looks at the keys it may see and takes the softmax-weighted mean of their values.
// Shapes     q (T, heads * dk); k (T, kv_heads * dk); v (T, kv_heads * dv); y (T, heads * dv). Below, one head of one
//            sequence: Q, K, V, Y have L rows. Query head h reads key/value head h / (heads / kv_heads).
// Forward    S = c Q K'                                                     (1)
//            Z = f(S) + B,  f = identity or cap tanh(. / cap),  B_ij = -slope_h (i - j), R[bucket(j - i), h] or 0   (2)
//            A_ij = exp(Z_ij - z_i),  z_i = ln sum_j exp(Z_ij), over visible j; 0 elsewhere                 (3)
//            Y = A V                                                        (4)
// Backward   dV = A' dY                                                     (5)
//            dA = dY V'                                                     (6)
//            dZ = A o (dA - D),  D_i = <A_i, dA_i>                          (7)
//            dS = f'(S) o dZ,  dR[u, h] = sum of dZ_ij with bucket(j - i) = u                               (8)
//            dQ = c dS K,  dK = c dS' Q, summed over the query heads that share the key head                (9)
// Kept       for each token and head: z, mean of the scores, their squared deviations, entropy, sum of squared weights.
//            S is made again on the way up rather than stored: memory stays linear in L.
// Push       L = E[A Kv A']                                                 (10)
// Pull       Gv = E[A' G A],  Gq = c^2 dk G o E tr(P_t Kv P_s Kk),  P_t = diag(A_t) - A_t A_t'              (11)
//            Gk = c^2 dk E sum_ts Kq_ts G_ts P_t Kv P_s                     (12)
//            by series in the score variance where it is small, else from sampled heads: ops/attention_series.cpp, attention_sampler.cpp
// Sinks      with a learned number s_h a head: z_i = ln(exp(s_h) + sum_j exp(Z_ij)), so that weights sum to less than 1          (13)
//            ds_h = -sum of dZ_ij                                           (14)
// Assumes    q, k, v Gaussian given their kernels; dy independent of them
// Derived in docs/derivations/attention.md
#include <algorithm>
#include <cmath>

#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/rows.hpp"
#include "stepzero/ops/scale.hpp"

namespace stepzero {

struct AttentionSummary {
  double score_variance = 0;  // over all heads, queries and visible keys
  double mean_score = 0;
  double entropy = 0;
  double sum_squares = 0;
};

// Left on the way down: the summary and its standard deviation in one draw, for the report; and what the way up takes up again.
struct AttentionNote {
  AttentionSummary summary = {}, spread = {};
  std::shared_ptr<const void> keep = nullptr;
};

struct Attention {
  static constexpr const char* kind = "attention";
  static constexpr Grade grade = Grade::approximate;
  static constexpr Remake remake = Remake::never;
  static constexpr bool samples = true;
  Index heads = 1;
  Index kv_heads = 1;
  Index key_dim = 1;
  Index value_dim = 1;
  double scale = 1;
  bool causal = true;
  Index window = 0;                // keys a query sees to each side, itself included; 0: all
  double softcap = 0;              // 0: none
  std::vector<double> alibi = {};  // one slope a head; empty: none
  Index buckets = 0;               // rows of R: distances that share a learned bias; 0: none
  Index farthest = 128;            // distances from here on are in the last bucket
  bool cross = false;              // keys and values belong to other tokens than the queries, which may be more or fewer
  Index chunk = 0;                 // a query sees keys of its own stretch of so many tokens; 0: there are none
  bool sinks = false;              // each head has a learned score that no value belongs to

  [[nodiscard]] int inputs() const { return 3; }
  [[nodiscard]] Index channels() const { return heads * value_dim; }
  [[nodiscard]] Index keep() const { return heads * kept(); }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const {
    if (cross || buckets > 0 || sinks) return {};
    return ChannelLaw{.wants_law = true};
  }
  [[nodiscard]] std::vector<ParamShape> params() const {
    std::vector<ParamShape> list;
    if (buckets > 0) list.push_back({buckets, heads, buckets, heads});
    if (sinks) list.push_back({1, heads, 1, heads});
    return list;
  }

  template <class S>
  void forward(const Down<S>& p) const {
    parallel_for(p.batch.sequences * heads, [&](Index item) { forward_head(p, item / heads, item % heads); });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    const Index group = heads / kv_heads;
    // Query heads that share a key head each fill a gradient of their own; the sum comes after, in fixed order.
    const bool own_k = group > 1 || !p.dx[1].wanted();
    const bool own_v = group > 1 || !p.dx[2].wanted();
    Tensor<S> k_memory(own_k ? p.x[1].rows : 0, heads * key_dim);
    Tensor<S> v_memory(own_v ? p.x[2].rows : 0, heads * value_dim);
    const View<S> dk = own_k ? k_memory.view() : p.dx[1].d;
    const View<S> dv = own_v ? v_memory.view() : p.dx[2].d;
    if (own_k || !p.dx[1].add) clear(dk);
    if (own_v || !p.dx[2].add) clear(dv);
    Tensor<S> dr(buckets > 0 ? p.batch.sequences : 0, heads * buckets);  // each sequence's own
    if (buckets > 0) clear(dr.view());
    Tensor<S> ds(sinks ? p.batch.sequences : 0, heads);
    if (sinks) clear(ds.view());
    parallel_for(p.batch.sequences * heads, [&](Index item) {
      const Index b = item / heads, h = item % heads;
      backward_head(p, b, h, dk, dv, buckets > 0 ? dr.view().row(b) + h * buckets : nullptr, sinks ? ds.view().row(b) + h : nullptr);
    });
    if (buckets > 0 && p.dtheta[0].wanted()) sum_sequences(View<const S>(dr), p.dtheta[0]);
    if (sinks && p.dtheta.back().wanted()) sum_sinks(View<const S>(ds), p.dtheta.back());
    if (group > 1) {
      sum_group(View<const S>(dk), p.dx[1], key_dim);
      sum_group(View<const S>(dv), p.dx[2], value_dim);
    }
  }

  template <class S>
  [[nodiscard]] AttentionSummary summary(const Batch& batch, View<const S> keep_) const {
    double mean = 0, deviations = 0, pairs = 0;  // merged row by row: nothing cancels
    AttentionSummary out;
    for (Index t = 0; t < keep_.rows; ++t) {
      const Range see = cross ? Range{0, 0} : visible(batch.position(t), batch.length);
      for (Index h = 0; h < heads; ++h) {
        const S* row = keep_.row(t) + h * kept();
        const double n = cross ? value_of(row[5]) : static_cast<double>(see.end - see.begin);
        const double delta = static_cast<double>(row[1]) - mean;
        deviations += static_cast<double>(row[2]) + delta * delta * n * pairs / (pairs + n);
        mean += delta * n / (pairs + n);
        pairs += n;
        out.entropy += static_cast<double>(row[3]);
        out.sum_squares += static_cast<double>(row[4]);
      }
    }
    const double rows = static_cast<double>(keep_.rows * heads);
    out.score_variance = deviations / pairs;
    out.mean_score = mean;
    out.entropy /= rows;
    out.sum_squares /= rows;
    return out;
  }

  // Floating-point operations of one draw of all heads, down and up; fitted.
  [[nodiscard]] double draw_cost(const Batch& batch, double /*variance*/) const {
    const double t = static_cast<double>(batch.tokens());
    return static_cast<double>(heads) * (2 * t * t * (25 * t + 6 * static_cast<double>(key_dim)) + 1e6);
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const;  // its note is an AttentionNote
  [[nodiscard]] Pulled pull(const PullDoor& p) const;

  // For those who hold one head themselves: a row of scores over a whole sequence (already scaled) to its weights, and the
  // five kept numbers; `slope`, where a softcap asks for it, receives f'(S).
  template <class S>
  void weights(S* row, S* kept_row, Index i, Index length, S* slope, View<const S> table = {}, const S* sink = nullptr) const {
    const Range see = visible(i, length);
    clear_outside(row, length, see.begin, see.end);
    if (slope != nullptr) std::fill_n(slope, length, S(0));
    softmax_row(row + see.begin, kept_row, i, see, 0, table, sink, slope != nullptr ? slope + see.begin : nullptr);
  }
  // In: weights a, d = dA. Out: d = dS.
  template <class S>
  static void through_softmax(const S* a, S* d, const S* slope, Index n) {
    const S mean = dot_row(a, d, n);
    for (Index j = 0; j < n; ++j) d[j] = a[j] * (d[j] - mean);           // (7)
    for (Index j = 0; slope != nullptr && j < n; ++j) d[j] *= slope[j];  // (8)
  }

  // The row of R for a key `ahead` of its query: near distances have one each, far ones share, up to `farthest`. In float, as
  // the class computes it.
  [[nodiscard]] Index bucket(Index ahead) const {
    const Index half = causal ? buckets : buckets / 2;
    const Index first = !causal && ahead > 0 ? half : 0;
    const Index distance = causal ? std::max<Index>(-ahead, 0) : std::abs(ahead);
    const Index near = half / 2;
    if (distance < near) return first + distance;
    const auto ratio = static_cast<float>(std::log(static_cast<double>(farthest) / static_cast<double>(near)));
    const float far = std::log(static_cast<float>(distance) / static_cast<float>(near)) / ratio * static_cast<float>(half - near);
    return first + std::min(near + static_cast<Index>(far), half - 1);
  }

  struct Range {
    Index begin, end;
  };
  // Keys that query i sees, within its sequence.
  [[nodiscard]] Range visible(Index i, Index length) const {
    if (chunk > 0) return {i / chunk * chunk, causal ? i + 1 : std::min(length, (i / chunk + 1) * chunk)};
    return {window > 0 ? std::max<Index>(0, i - window + 1) : 0, causal ? i + 1 : window > 0 ? std::min(length, i + window) : length};
  }

 private:
  [[nodiscard]] Index kept() const { return cross ? 6 : 5; }  // of attention to other tokens also how many they are
  static constexpr Index block = 64;                          // queries handled at once

  // One block of queries of one head: its views, and the union [keys.begin, keys.end) of what they see.
  template <class S>
  struct Piece {
    View<const S> q, k, v;
    Index i0, rows;
    Range keys;
    Index h;
  };

  template <class S, class Body>
  void for_each_block(const Batch& batch, std::span<const View<const S>> x, Index b, Index h, const Body& body) const {
    const Index queries = x[0].rows / batch.sequences, length = x[1].rows / batch.sequences;
    const Index g = h / (heads / kv_heads);
    const View<const S> q = x[0].block(b * queries, queries, h * key_dim, key_dim);
    const View<const S> k = x[1].block(b * length, length, g * key_dim, key_dim);
    const View<const S> v = x[2].block(b * length, length, g * value_dim, value_dim);
    for (Index i0 = 0; i0 < queries; i0 += block) {
      const Index rows = std::min(block, queries - i0);
      const Range keys = {visible(i0, length).begin, visible(i0 + rows - 1, length).end};
      const Index n = keys.end - keys.begin;
      body(Piece<S>{q.slice(i0, rows), k.slice(keys.begin, n), v.slice(keys.begin, n), i0, rows, keys, h});
    }
  }

  // Z of (2) in place of S, for the visible keys of row i; `slope` (where a softcap asks for it) receives f'(S).
  template <class S>
  void bend_row(S* s, S* slope, Index i, Range see, Index h, View<const S> table) const {
    const Index n = see.end - see.begin;
    if (softcap > 0) {
      softcap_row(s, n, softcap);
      for (Index j = 0; slope != nullptr && j < n; ++j) slope[j] = (S(1) - s[j] / S(softcap)) * (S(1) + s[j] / S(softcap));
    }
    if (!alibi.empty()) {
      const double m = alibi[static_cast<std::size_t>(h)];
      for (Index j = 0; j < n; ++j) s[j] -= S(m * static_cast<double>(i - (see.begin + j)));
    }
    for (Index j = 0; buckets > 0 && j < n; ++j) s[j] += table(bucket(see.begin + j - i), h);
  }

  [[nodiscard]] bool bends() const { return softcap > 0 || !alibi.empty() || buckets > 0 || sinks; }

  template <class S>
  static void clear_outside(S* row, Index columns, Index begin, Index end) {
    std::fill(row, row + begin, S(0));
    std::fill(row + end, row + columns, S(0));
  }

  template <class S>
  void forward_head(const Down<S>& p, Index b, Index h) const {
    const Index queries = p.y.rows / p.batch.sequences, length = p.x[1].rows / p.batch.sequences;
    const S* sink = sinks ? p.theta.back().row(0) + h : nullptr;
    Tensor<S> memory(block, length);
    for_each_block<S>(p.batch, p.x, b, h, [&](const Piece<S>& piece) {
      const View<S> a(memory.data(), piece.rows, piece.keys.end - piece.keys.begin);
      gemm(Trans::no, Trans::yes, S(scale), piece.q, piece.k, S(0), a);  // (1)
      for (Index r = 0; r < piece.rows; ++r) {
        const Index i = piece.i0 + r;
        const Range see = visible(i, length);
        clear_outside(a.row(r), a.cols, see.begin - piece.keys.begin, see.end - piece.keys.begin);
        S* keep_row = p.keep.row(b * queries + i) + h * kept();
        softmax_row(a.row(r) + (see.begin - piece.keys.begin), keep_row, i, see, h, table_of(p), sink);
      }
      gemm(Trans::no, Trans::no, S(1), View<const S>(a), piece.v, S(0),
           p.y.block(b * queries + piece.i0, piece.rows, h * value_dim, value_dim));  // (4)
    });
  }

  // Scores to weights, for the visible keys; fills the five kept numbers.
  template <class S>
  void softmax_row(S* s, S* kept_row, Index i, Range see, Index h, View<const S> table, const S* sink, S* slope = nullptr) const {
    using std::log;
    const Index n = see.end - see.begin;
    const RowSpread<S> spread = spread_row(s, n);
    kept_row[1] = spread.mean;
    kept_row[2] = spread.deviations;
    bend_row(s, slope, i, see, h, table);  // (2)
    if (cross) kept_row[5] = S(static_cast<double>(n));
    S top = bends() ? max_row(s, n) : spread.top;
    if (sink != nullptr && *sink > top) top = *sink;
    // entropy = z - sum_j A_j Z_j, from sums of exp(Z - top) and (Z - top) exp(Z - top) while the row is hot
    const auto [total, moment, squares] = exp_sums_row(s, top, n);
    const S all = sink != nullptr ? total + exp(*sink - top) : total;  // (13)
    const S inverse = S(1) / all;
    scale_row(s, inverse, n);  // (3)
    kept_row[0] = top + log(all);
    kept_row[3] = (sink != nullptr ? log(all) * total * inverse : log(all)) - moment * inverse;
    kept_row[4] = squares * inverse * inverse;
  }

  template <class S>
  void backward_head(const Up<S>& p, Index b, Index h, View<S> dk_all, View<S> dv_all, S* dr, S* ds) const {
    const Index length = p.x[1].rows / p.batch.sequences;
    const Index start = b * (p.dy.rows / p.batch.sequences), first = b * length;
    Tensor<S> a_memory(block, length), d_memory(block, length), slope_memory(softcap > 0 ? block : 0, length);
    for_each_block<S>(p.batch, p.x, b, h, [&](const Piece<S>& piece) {
      const Index n = piece.keys.end - piece.keys.begin;
      const View<S> a(a_memory.data(), piece.rows, n);
      const View<S> d(d_memory.data(), piece.rows, n);
      const View<const S> dy = p.dy.block(start + piece.i0, piece.rows, h * value_dim, value_dim);
      gemm(Trans::no, Trans::yes, S(scale), piece.q, piece.k, S(0), a);  // (1) again
      gemm(Trans::no, Trans::yes, S(1), dy, piece.v, S(0), d);           // (6)
      for (Index r = 0; r < piece.rows; ++r) {
        const Range see = visible(piece.i0 + r, length);
        const Index offset = see.begin - piece.keys.begin;
        clear_outside(a.row(r), n, offset, see.end - piece.keys.begin);
        clear_outside(d.row(r), n, offset, see.end - piece.keys.begin);
        S* slope = softcap > 0 ? slope_memory.view().row(r) : nullptr;
        const S z = p.keep(start + piece.i0 + r, h * kept());
        backward_row(a.row(r) + offset, d.row(r) + offset, slope, z, piece.i0 + r, see, h, table_of(p), dr, ds);
      }
      gemm(Trans::yes, Trans::no, S(1), View<const S>(a), dy, S(1),
           dv_all.block(first + piece.keys.begin, n, h * value_dim, value_dim));  // (5)
      gemm(Trans::yes, Trans::no, S(scale), View<const S>(d), piece.q, S(1),
           dk_all.block(first + piece.keys.begin, n, h * key_dim, key_dim));  // (9)
      if (const auto& dq = p.dx[0]; dq.wanted()) {
        gemm(Trans::no, Trans::no, S(scale), View<const S>(d), piece.k, dq.beta(),
             dq.d.block(start + piece.i0, piece.rows, h * key_dim, key_dim));  // (9)
      }
    });
  }

  // In: a = scores, d = dA. Out: a = A, d = dS; dr, where there is a table, and ds, where there is a sink, grow by their gradients.
  template <class S>
  void backward_row(S* a, S* d, S* slope, S z, Index i, Range see, Index h, View<const S> table, S* dr, S* ds) const {
    const Index n = see.end - see.begin;
    bend_row(a, slope, i, see, h, table);  // (2)
    if (ds != nullptr) {
      exp_row(a, z, a, n);
      through_softmax(a, d, static_cast<const S*>(nullptr), n);
      for (Index j = 0; j < n; ++j) *ds -= d[j];  // (14)
    } else {
      softmax_up_row(a, d, z, n);  // (3), (7)
    }
    for (Index j = 0; dr == nullptr && slope != nullptr && j < n; ++j) d[j] *= slope[j];  // (8)
    for (Index j = 0; dr != nullptr && j < n; ++j) {
      dr[bucket(see.begin + j - i)] += d[j];  // (8)
      if (slope != nullptr) d[j] *= slope[j];
    }
  }

  template <class Door>
  [[nodiscard]] auto table_of(const Door& p) const {
    using Table = std::remove_cvref_t<decltype(p.theta[0])>;
    return buckets > 0 ? p.theta[0] : Table();
  }

  template <class S>
  void sum_sequences(View<const S> own, const Into<S>& into) const {
    for (Index u = 0; u < buckets; ++u) {
      for (Index h = 0; h < heads; ++h) {
        S sum = S(0);
        for (Index b = 0; b < own.rows; ++b) sum += own(b, h * buckets + u);
        store(into, u, h, sum);
      }
    }
  }

  template <class S>
  void sum_sinks(View<const S> own, const Into<S>& into) const {
    for (Index h = 0; h < heads; ++h) {
      S sum = S(0);
      for (Index b = 0; b < own.rows; ++b) sum += own(b, h);
      store(into, 0, h, sum);
    }
  }

  template <class S>
  void sum_group(View<const S> own, const Into<S>& into, Index dim) const {
    if (!into.wanted()) return;
    const Index group = heads / kv_heads;
    parallel_ranges(own.rows, row_grain(own.cols), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        for (Index c = 0; c < kv_heads * dim; ++c) {
          S sum = S(0);
          for (Index k = 0; k < group; ++k) sum += own(t, (c / dim * group + k) * dim + c % dim);
          store(into, t, c, sum);
        }
      }
    });
  }
};
static_assert(Op<Attention>);

// In one draw of a model: its own heads (attention_single.cpp).
DownWire push_drawn(const Attention& op, const PushDoor& p);
Pulled pull_drawn(const Attention& op, const PullDoor& p);

}  // namespace stepzero
