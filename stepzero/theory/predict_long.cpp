#include "stepzero/theory/predict_long.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/graph/questions.hpp"
#include "stepzero/graph/sources.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/signal/comparison.hpp"
#include "stepzero/theory/predict_batch.hpp"

namespace stepzero {

namespace {

Batch first_tokens(const Batch& batch, Index length) {
  Batch out = batch;
  out.length = length;
  out.ids.clear();
  out.targets.clear();
  out.encoder_ids.clear();
  for (Index b = 0; b < batch.sequences; ++b) {
    const auto copy = [&](const std::vector<std::int32_t>& from, std::vector<std::int32_t>& to) {
      const auto start = from.begin() + b * batch.length;
      to.insert(to.end(), start, start + length);
    };
    copy(batch.ids, out.ids);
    copy(batch.targets, out.targets);
    if (!batch.encoder_ids.empty()) copy(batch.encoder_ids, out.encoder_ids);
  }
  return out;
}

// Statistics of a batch are shared by its images.
bool shares_statistics(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const Node& node) { return std::holds_alternative<BatchNorm>(node.op); });
}

struct Model {
  Architecture a;
  Graph graph;
};

// The model for images of about half as many pixels; none where it cannot be made from its description alone, or has other tensors.
std::optional<Model> for_smaller_images(const Graph& graph, const Architecture& a) {
  if (a.image == 0 || a.own != nullptr) return std::nullopt;
  Model out{a, {}};
  const Index unit = a.stages.empty() ? a.patch : 4;
  out.a.image = (7 * a.image / 10 + unit - 1) / unit * unit;
  if (out.a.image >= a.image || !resolve(out.a)) return std::nullopt;
  out.graph = build_graph(out.a);
  if (!std::ranges::equal(out.graph.params, graph.params, {}, &Param::name, &Param::name)) return std::nullopt;
  return out;
}

// With rotary positions heads are sampled. That is expensive: at long sequences only few a layer can be afforded, and they are noisy.
bool turns(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const Node& node) { return turns_heads(node.op); });
}

// M(2^x n) from a = M(n/4), b = M(n/2), c = M(n)
double carry_on(double a, double b, double c, double x) {
  const double before = b - a, step = c - b;
  const double r = before != 0 ? std::clamp(step / before, 0.0, 1.0) : 0;
  return c + step * (r < 1 ? r * (1 - std::pow(r, x)) / (1 - r) : x);
}

// Sizes go like powers of the length: their logarithms are carried on.
bool is_size(std::string_view what) {
  return what.ends_with("moment") || what.ends_with("variance") || what.ends_with("norm") || what.ends_with("squares") ||
         what == "jacobian";
}

// The power of the length that is known: the loss is a mean over tokens, so the square of a token's gradient falls like 1/length^2.
double power_of(std::string_view what) { return what == "gradient second moment" ? -2 : 0; }

// Of a size, its logarithm without the known power.
std::optional<double> carry_on(std::optional<double> a, std::optional<double> b, std::optional<double> c, double x, bool size,
                               double power = 0) {
  if (!a || !b || !c) return c;
  if (!size || !(*a > 0 && *b > 0 && *c > 0)) return carry_on(*a, *b, *c, x);
  const double octave = power * std::numbers::ln2;
  return std::exp(carry_on(std::log(*a) + 2 * octave, std::log(*b) + octave, std::log(*c), x) + octave * x);
}

struct Item {
  Value* value;
  std::string_view what;
};
std::vector<Item> items_of(Signal& signal) {
  std::vector<Item> list;
  for_each_value(signal, [&](Value& value, Average, const auto&, const char* what) { list.push_back({&value, what}); });
  for (JacobianSignal& j : signal.jacobians) list.push_back({&j.square, "jacobian"});
  return list;
}

// `c` carried on by x doublings; a and b are a quarter and half as long.
Signal carry_on(Signal& a, Signal& b, const Signal& c, double x) {
  Signal out = c;
  const auto ia = items_of(a), ib = items_of(b), to = items_of(out);
  for (std::size_t i = 0; i < to.size(); ++i) {
    Value& v = *to[i].value;
    const bool size = is_size(to[i].what);
    const double power = power_of(to[i].what);
    v.predicted = carry_on(ia[i].value->predicted, ib[i].value->predicted, v.predicted, x, size, power);
    v.spread = carry_on(ia[i].value->spread, ib[i].value->spread, v.spread, x, true, power);
  }
  for (std::size_t i = 0; i < out.nodes.size(); ++i) {  // the norm is the root of the sum of squares
    const Value& before = c.nodes[i].backward.second_moment;
    if (!before.predicted || !(*before.predicted > 0)) continue;
    const double grown = std::sqrt(*out.nodes[i].backward.second_moment.predicted / *before.predicted * std::exp2(x));
    Value& norm = out.nodes[i].backward.norm;
    norm.predicted = *c.nodes[i].backward.norm.predicted * grown;
    if (norm.spread) norm.spread = *c.nodes[i].backward.norm.spread * grown;
  }
  return out;
}

// The distance of two signals: relative for sizes, absolute for the rest.
std::vector<double> misses(Signal& carried, Signal& real) {
  std::vector<double> out;
  const auto x = items_of(carried), y = items_of(real);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!y[i].value->predicted || x[i].what == "std") continue;
    const double p = *x[i].value->predicted, q = *y[i].value->predicted;
    if (!std::isfinite(p) || !std::isfinite(q)) continue;
    out.push_back(std::abs(p - q) / (is_size(x[i].what) ? std::max(std::abs(q), 1e-300) : 1));
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

Expected<Signal> predict_any(const Graph& graph, const Architecture& a, const Batch& batch, const Scheme& scheme,
                             const PredictOptions& options) {
  if (auto covered = check_sources(graph); !covered) {
    return fail(fmt::format("{}: {}", show(a.name), covered.error().message), covered.error().hint);
  }
  if (!options.every_sequence && stands_for_many(batch)) {
    std::size_t part = 0;
    const auto smaller = batch.pixels.empty() ? std::nullopt : for_smaller_images(graph, a);
    const Images images{a.vocab,
                        {smaller ? smaller->a.image : a.image, a.image, a.colours, smaller ? smaller->a.positions : batch.length},
                        shares_statistics(graph)};
    const auto predicts = [&](const Batch& few, double effort, bool small) {
      constexpr std::array<double, 7> share = {0, 0.5, 0.8, 0.85, 0.9, 0.95, 1};  // of the whole work, before each
      PredictOptions how = options;
      if (options.progress) {
        const double from = share[part], to = share[part + 1];
        how.progress = [&options, from, to](double x) { options.progress(from + x * (to - from)); };
      }
      part = std::min(part + 1, share.size() - 2);
      how.every_sequence = true;
      how.effort *= effort;
      return small ? predict_any(smaller->graph, smaller->a, few, scheme, how) : predict_any(graph, a, few, scheme, how);
    };
    return predict_batch(batch, predicts, images);
  }
  const Index n = options.longest > 0 ? options.longest : turns(graph) ? 256 : 512;
  if (batch.length <= n || !batch.pixels.empty() || batch.pooled()) {  // of an image all patches
    if (auto fits = check_kernels(graph, a, batch); !fits) return std::unexpected(fits.error());
    return predict(graph, a, batch, scheme, options);
  }
  if (auto fits = check_kernels(graph, a, first_tokens(batch, n)); !fits) return std::unexpected(fits.error());
  std::array<Signal, 4> at;                                         // n/8, n/4, n/2, n
  constexpr std::array<double, 5> share = {0, 0.05, 0.15, 0.4, 1};  // of the whole work, before each
  for (std::size_t i = 0; i < at.size(); ++i) {
    PredictOptions part = options;
    if (options.progress) part.progress = [&, i](double x) { options.progress(share[i] + x * (share[i + 1] - share[i])); };
    at[i] = predict(graph, a, first_tokens(batch, n >> (at.size() - 1 - i)), scheme, part);
  }
  Signal same_step = carry_on(at[0], at[1], at[2], 1);
  const auto missed = misses(same_step, at[3]);
  Signal out = carry_on(at[1], at[2], at[3], std::log2(static_cast<double>(batch.length) / static_cast<double>(n)));
  out.seq_len = batch.length;
  out.extension = Extension{n, percentile(missed, 0.5), percentile(missed, 0.99)};
  return out;
}

}  // namespace stepzero
