#include "stepzero/audit/difference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "stepzero/core/half.hpp"
#include "stepzero/core/running.hpp"
#include "stepzero/core/stop.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/weights/tensor_draw.hpp"

namespace stepzero {

namespace {

using Kind = TensorDifference::Kind;
using Stored = Encoding::Kind;
using Read = std::function<Expected<void>(std::uint64_t first, std::span<float> out)>;

constexpr std::uint64_t kCompared = 1 << 16;

double deviation(const Running& r) { return r.count > 1 ? std::sqrt(r.deviations / r.count) : 0; }

// A float as the type would hold it.
float rounded(float x, Stored kind) {
  if (kind == Stored::bf16) return bfloat16_to_float(float_to_bfloat16(x));
  if (kind == Stored::f16) return half_to_float(float_to_half(x));
  return x;
}

bool is_16_bits(Stored kind) { return kind == Stored::bf16 || kind == Stored::f16; }

struct Pair {
  Read left, right;
  Stored left_kind, right_kind;
  std::optional<SideStats> right_law;  // known, not sampled
};

// |a - b| in its own standard errors; the same number on both sides is no difference whatever its error.
double in_errors(double a, double b, double error) {
  if (a == b) return 0;
  return error > 0 ? std::abs(a - b) / error : std::numeric_limits<double>::infinity();
}

// How far through the numbers of a checkpoint.
class Way {
 public:
  Way(const CheckpointFiles& files, const Told& tell) : tell_(tell) {
    for (const auto& [name, tensor] : files.tensors()) whole_ += static_cast<double>(tensor.elements);
  }
  void done(std::uint64_t elements) {
    done_ += static_cast<double>(elements);
    if (tell_ && whole_ > 0) tell_(std::min(done_ / whole_, 1.0));
  }

 private:
  const Told& tell_;
  double whole_ = 0, done_ = 0;
};

Expected<void> compare_numbers(const Pair& pair, TensorDifference& d, Way& way) {
  std::vector<float> left(kCompared), right(kCompared);
  Running x, y;
  for (std::uint64_t first = 0; first < d.elements; first += kCompared) {
    end_if_stopped();
    const std::size_t n = std::min(kCompared, d.elements - first);
    if (auto done = pair.left(first, std::span(left).first(n)); !done) return done;
    if (auto done = pair.right(first, std::span(right).first(n)); !done) return done;
    for (std::size_t i = 0; i < n; ++i) {
      x.add(left[i]);
      y.add(right[i]);
      const float a = is_16_bits(pair.right_kind) ? rounded(left[i], pair.right_kind) : left[i];
      const float b = is_16_bits(pair.left_kind) ? rounded(right[i], pair.left_kind) : right[i];
      if (std::memcmp(&a, &b, sizeof a) == 0) continue;
      ++d.different;
      d.largest = std::max(d.largest, std::abs(static_cast<double>(a) - b));
    }
    way.done(n);
  }
  d.left = {x.mean, deviation(x)};
  d.right = pair.right_law.value_or(SideStats{y.mean, deviation(y)});
  const double n = static_cast<double>(d.elements);
  const double two = pair.right_law ? 1 : 2;  // sides that are samples
  const double spread = std::max(d.left.std, d.right.std);
  d.z = std::max(in_errors(d.left.mean, d.right.mean, spread * std::sqrt(two / n)),
                 in_errors(d.left.std, d.right.std, spread * std::sqrt(two / (2 * n))));
  d.kind = d.different == 0 ? Kind::same_bits : d.z <= kSameLaw ? Kind::same_law : Kind::other_law;
  return {};
}

Read reader(const CheckpointFiles& files, const CheckpointTensor& tensor) {
  return [&](std::uint64_t first, std::span<float> out) { return files.read_f32(tensor, first, out); };
}

TensorDifference one_sided(const CheckpointTensor& tensor, bool left) {
  TensorDifference d;
  d.name = tensor.name;
  d.kind = left ? Kind::only_left : Kind::only_right;
  (left ? d.left_shape : d.right_shape) = tensor.shape;
  (left ? d.left_dtype : d.right_dtype) = tensor.encoding.name;
  return d;
}

TensorDifference both_sides(const CheckpointTensor& left, std::vector<std::uint64_t> right_shape, std::string right_dtype) {
  TensorDifference d;
  d.name = left.name;
  d.left_shape = left.shape;
  d.right_shape = std::move(right_shape);
  d.left_dtype = left.encoding.name;
  d.right_dtype = std::move(right_dtype);
  d.elements = left.elements;
  if (d.left_shape != d.right_shape) d.kind = Kind::shape;
  return d;
}

}  // namespace

Expected<std::vector<TensorDifference>> difference(const CheckpointFiles& left, const CheckpointFiles& right, const Told& tell) {
  Way way(left, tell);
  std::vector<TensorDifference> list;
  for (const auto& [name, a] : left.tensors()) {
    const CheckpointTensor* const b = right.find(name);
    if (b == nullptr) {
      list.push_back(one_sided(a, true));
      continue;
    }
    TensorDifference d = both_sides(a, b->shape, std::string(b->encoding.name));
    if (d.kind != Kind::shape) {
      const Pair pair{reader(left, a), reader(right, *b), a.encoding.kind, b->encoding.kind, {}};
      if (auto done = compare_numbers(pair, d, way); !done) return std::unexpected(done.error());
    }
    list.push_back(std::move(d));
  }
  for (const auto& [name, b] : right.tensors()) {
    if (left.find(name) == nullptr) list.push_back(one_sided(b, false));
  }
  return list;
}

Expected<std::vector<TensorDifference>> difference(const CheckpointFiles& left, const Drawn& right, const Told& tell) {
  Way way(left, tell);
  std::vector<TensorDifference> list;
  std::map<std::string, std::size_t> params;
  for (std::size_t i = 0; i < right.graph.params.size(); ++i) params[right.graph.params[i].name] = i;
  for (const auto& [name, tensor] : left.tensors()) {
    if (!params.contains(name)) list.push_back(one_sided(tensor, true));
  }
  for (const auto& [name, i] : params) {
    const Param& p = right.graph.params[i];
    const std::vector<std::uint64_t> shape(p.shape.begin(), p.shape.end());
    const CheckpointTensor* const a = left.find(name);
    if (a == nullptr) {
      list.push_back(one_sided({.name = name, .shape = shape, .encoding = encoding_of(DType::F32)}, false));
      continue;
    }
    TensorDifference d = both_sides(*a, shape, "");
    if (d.kind != Kind::shape) {
      const auto whole = right.assignment.structured(i) ? draw_tensor(right.graph, right.assignment, i, right.seed) : std::vector<float>();
      const Read draw = [&, param = i](std::uint64_t first, std::span<float> out) -> Expected<void> {
        if (!whole.empty())
          std::copy_n(whole.begin() + static_cast<Index>(first), out.size(), out.begin());
        else
          draw_elements(right.graph, right.assignment, param, right.seed, first, out);
        return {};
      };
      const Pair pair{reader(left, *a), draw, a->encoding.kind, Stored::f32, SideStats{right.assignment.mean(i), right.assignment.std(i)}};
      if (auto done = compare_numbers(pair, d, way); !done) return std::unexpected(done.error());
    }
    list.push_back(std::move(d));
  }
  return list;
}

}  // namespace stepzero
