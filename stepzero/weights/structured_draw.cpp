#include "stepzero/weights/structured_draw.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/kernels/decompose.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/row_combinations.hpp"

namespace stepzero {

namespace {

using Block = Assignment::Block;

// A name for each block of a tensor, so that no two share a stream.
Stream stream_of(std::uint64_t seed, const Param& p, const Block& b) {
  return make_stream(seed, fmt::format("{}[{},{}]", p.name, b.row0, b.col0));
}

// Q of a Gaussian matrix with as many rows as columns or fewer; the other way round it is transposed.
std::vector<float> make_orthogonal(const Param& p, const Block& b, std::uint64_t seed) {
  const Index few = std::min(b.rows, b.cols);
  const Index many = std::max(b.rows, b.cols);
  std::vector<double> q(static_cast<std::size_t>(few * many));
  fill(Distribution::normal(1), stream_of(seed, p, b), 0, std::span<double>(q));
  kernels::orthonormalise_rows(View<double>(q.data(), few, many));
  const double gain = b.distribution.scale * std::sqrt(static_cast<double>(many));
  std::vector<float> out(q.size());
  for (Index r = 0; r < b.rows; ++r) {
    for (Index c = 0; c < b.cols; ++c) {
      const double entry = b.rows <= b.cols ? q[static_cast<std::size_t>(r * many + c)] : q[static_cast<std::size_t>(c * many + r)];
      out[static_cast<std::size_t>(r * b.cols + c)] = static_cast<float>(gain * entry);
    }
  }
  return out;
}

std::vector<float> make_diagonal(const Param& p, const Block& b, std::uint64_t seed) {
  const double few = static_cast<double>(std::min(b.rows, b.cols));
  const double share = b.distribution.diagonal * b.distribution.diagonal * few / static_cast<double>(b.rows * b.cols);
  const double noise = std::sqrt(std::max(b.distribution.scale * b.distribution.scale - share, 0.0));
  std::vector<float> out(static_cast<std::size_t>(b.rows * b.cols));
  fill(Distribution::normal(noise), stream_of(seed, p, b), 0, std::span<float>(out));
  for (Index i = 0; i < std::min(b.rows, b.cols); ++i)
    out[static_cast<std::size_t>(i * b.cols + i)] += static_cast<float>(b.distribution.diagonal);
  return out;
}

// What stands in a tensor is the same in every draw: the logarithms of the places, or sines and cosines.
std::vector<float> make_table(const Block& b) {
  const Distribution& d = b.distribution;
  std::vector<float> out(static_cast<std::size_t>(b.rows * b.cols));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (d.structure == Distribution::Structure::ramp) {
      out[i] = static_cast<float>(std::log(std::fmod(static_cast<double>(i), d.high) + 1));
      continue;
    }
    const auto row = static_cast<double>(static_cast<Index>(i) / b.cols), col = static_cast<double>(static_cast<Index>(i) % b.cols);
    const double cols = static_cast<double>(b.cols), angle = row * wave_number(col, cols, d.low > 0);
    out[i] = static_cast<float>(wave_is_sine(col, cols, d.low > 0) ? std::sin(angle) : std::cos(angle));
  }
  return out;
}

std::vector<float> make_time_steps(const Param& p, const Block& b, std::uint64_t seed) {
  const Distribution& d = b.distribution;
  std::vector<double> uniform(static_cast<std::size_t>(b.rows * b.cols));
  fill(Distribution::uniform(0.5, 0.5), stream_of(seed, p, b), 0, std::span<double>(uniform));
  std::vector<float> out;
  for (const double u : uniform) out.push_back(static_cast<float>(time_step(u, d.low, d.high, d.cut)));
  return out;
}

// ---- mimetic: both matrices of a pair come from the same draw, named after the layer and the head

// share (Z + sign I), entries of Z of variance 1/d.
std::vector<float> mimetic_target(std::uint64_t seed, int layer, const char* pair, Index head, Index d, float share, float sign) {
  std::vector<float> m(static_cast<std::size_t>(d * d));
  fill(Distribution::normal(share / std::sqrt(static_cast<double>(d))),
       make_stream(seed, fmt::format("mimetic.{}.{}.{}", layer, pair, head)), 0, std::span<float>(m));
  for (Index i = 0; i < d; ++i) m[static_cast<std::size_t>(i * d + i)] += sign * share;
  return m;
}

// Puts row i of a projection (its output channel i) into the block, whichever way that is stored.
void put_channel(const Block& b, Index channel, const float* from, float factor, std::vector<float>& out) {
  const Index n = b.in_out ? b.rows : b.cols;
  for (Index c = 0; c < n; ++c) out[static_cast<std::size_t>(b.in_out ? c * b.cols + channel : channel * b.cols + c)] = factor * from[c];
}

// The key heads that a block belongs to: all of them, or one where a tensor holds the queries, key and value of one after the other.
struct HeldHeads {
  Index first, count, per;  // per: channels of a key head in the block
};
HeldHeads held_heads(const Block& b, const Assignment::Heads& heads) {
  const Index group = heads.heads / heads.kv_heads, per = heads.head_dim * (b.role == Role::query ? group : 1);
  const Index count = (b.in_out ? b.cols : b.rows) / per;
  return {count == heads.kv_heads ? 0 : (b.in_out ? b.col0 : b.row0) / ((group + 2) * heads.head_dim), count, per};
}

constexpr float kScores = 0.7F;
constexpr float kValues = 0.4F;

// Decompositions of targets, the last that were made: keys come after their queries, outputs after their values.
class Decomposed {
 public:
  using Shared = std::shared_ptr<const kernels::Svd>;

  template <class Make>
  Shared find(const std::string& name, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      const auto it = std::ranges::find(list_, name, &Entry::name);
      if (it != list_.end()) return it->svd;
    }
    Shared made = std::make_shared<const kernels::Svd>(make());
    const std::lock_guard lock(mutex_);
    list_.push_back({name, made});
    numbers_ += made->u.size() + made->v.size();
    while (numbers_ > most && list_.size() > 1) {
      numbers_ -= list_.front().svd->u.size() + list_.front().svd->v.size();
      list_.pop_front();
    }
    return made;
  }

 private:
  static constexpr std::size_t most = 16U << 20U;
  struct Entry {
    std::string name;
    Shared svd;
  };
  std::mutex mutex_;
  std::deque<Entry> list_;
  std::size_t numbers_ = 0;
};

Decomposed::Shared decomposed(std::uint64_t seed, int layer, const char* pair, Index head, Index d, Index count, float share, float sign) {
  static Decomposed all;
  return all.find(fmt::format("{}.{}.{}.{}.{}.{}", seed, layer, pair, head, d, count), [&] {
    const auto m = mimetic_target(seed, layer, pair, head, d, share, sign);
    return kernels::svd(View<const float>(m.data(), d, d), count);
  });
}

// The heads of one key head, which are at `start` in the block.
void mimetic_group(const Block& b, const Assignment::Heads& heads, std::uint64_t seed, Index k, Index start, std::vector<float>& out) {
  const Index d = heads.width, parts = std::min(heads.head_dim, d), group = heads.heads / heads.kv_heads;
  const auto svd = decomposed(seed, b.layer, "qk", k * group, d, parts, kScores, 1);
  for (Index i = 0; i < parts; ++i) {
    const float root = std::sqrt(svd->s[static_cast<std::size_t>(i)]);
    const float* from = b.role == Role::key ? svd->v.data() : svd->u.data();
    put_channel(b, start + i, from + i * d, root, out);
  }
  for (Index q = k * group + 1; b.role == Role::query && q < (k + 1) * group; ++q) {
    const auto own = mimetic_target(seed, b.layer, "qk", q, d, kScores, 1);
    std::vector<float> row(static_cast<std::size_t>(d));
    for (Index i = 0; i < parts; ++i) {
      const float* v = &svd->v[static_cast<std::size_t>(i * d)];
      for (Index r = 0; r < d; ++r)
        row[static_cast<std::size_t>(r)] = kernels::dot(&own[static_cast<std::size_t>(r * d)], v, static_cast<std::size_t>(d));
      put_channel(b, start + (q - k * group) * heads.head_dim + i, row.data(), 1 / std::sqrt(svd->s[static_cast<std::size_t>(i)]), out);
    }
  }
}

// Wq Wk' = U S V' in its first head_dim parts: keys V sqrt(S), queries U sqrt(S). A query that shares its keys with
// others has a target M of its own, and the best it can do with these keys is M V / sqrt(S).
void mimetic_scores(const Block& b, const Assignment::Heads& heads, std::uint64_t seed, std::vector<float>& out) {
  const HeldHeads held = held_heads(b, heads);
  const double bytes = 20 * static_cast<double>(heads.width) * static_cast<double>(heads.width);  // of one decomposition
  const Index at_once = std::max<Index>(1, static_cast<Index>(1e9 / bytes));
  for (Index first = 0; first < held.count; first += at_once) {
    parallel_for(std::min(at_once, held.count - first),
                 [&](Index i) { mimetic_group(b, heads, seed, held.first + first + i, (first + i) * held.per, out); });
  }
}

// Wv Wo = U S V': values U sqrt(S), outputs sqrt(S) V'.
void mimetic_values(const Block& b, const Assignment::Heads& heads, std::uint64_t seed, std::vector<float>& out) {
  const Index d = heads.width;
  const auto svd = decomposed(seed, b.layer, "vo", 0, d, std::min(heads.kv_heads * heads.head_dim, d), kValues, -1);
  const HeldHeads held = held_heads(b, heads);
  const Index first = b.role == Role::value ? held.first * heads.head_dim : 0;
  const Index channels = b.role == Role::value ? first + held.count * heads.head_dim : heads.head_dim * heads.heads;
  const Index group = b.role == Role::value ? 1 : heads.heads / heads.kv_heads;
  for (Index i = first; i < channels; ++i) {
    // every query head of a group reads the same values: each writes its share of them
    const Index part = i / (heads.head_dim * group) * heads.head_dim + i % heads.head_dim;
    if (part >= d) continue;
    const float root = std::sqrt(svd->s[static_cast<std::size_t>(part)]);
    if (b.role == Role::value) {
      put_channel(b, i - first, &svd->u[static_cast<std::size_t>(part * d)], root, out);
      continue;
    }
    const float* v = &svd->v[static_cast<std::size_t>(part * d)];
    for (Index c = 0; c < d; ++c)  // channel i of the heads goes to channel c of the stream
      out[static_cast<std::size_t>(b.in_out ? i * b.cols + c : c * b.cols + i)] = root * v[c] / static_cast<float>(group);
  }
}

}  // namespace

std::vector<float> make_structured(const Param& p, const Block& block, const Assignment::Heads& heads, std::uint64_t seed) {
  using S = Distribution::Structure;
  if (block.distribution.structure == S::orthogonal) return make_orthogonal(p, block, seed);
  if (block.distribution.structure == S::diagonal) return make_diagonal(p, block, seed);
  if (block.distribution.structure == S::ramp || block.distribution.structure == S::waves) return make_table(block);
  if (block.distribution.structure == S::time_steps) return make_time_steps(p, block, seed);
  STEPZERO_CHECK(block.distribution.structure == S::mimetic);
  std::vector<float> out(static_cast<std::size_t>(block.rows * block.cols));
  if (block.role == Role::query || block.role == Role::key)
    mimetic_scores(block, heads, seed, out);
  else
    mimetic_values(block, heads, seed, out);
  return out;
}

double structured_work(const Block& b, const Assignment::Heads& heads) {
  using S = Distribution::Structure;
  const double few = static_cast<double>(std::min(b.rows, b.cols)), many = static_cast<double>(std::max(b.rows, b.cols));
  const double width = static_cast<double>(heads.width);
  if (b.distribution.structure == S::orthogonal) return few * few * many;
  if (b.distribution.structure != S::mimetic) return 0;
  if (b.role == Role::query) return static_cast<double>(held_heads(b, heads).count) * width * width * width;
  return b.role == Role::value ? 2 * width * width * width : 0;
}

}  // namespace stepzero
