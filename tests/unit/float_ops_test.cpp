// What ships is float: every op's two value doors in float against the same doors in double, and the same bits whatever
// the number of threads.
#include <cfloat>
#include <cstdlib>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "tests/laws/duality.hpp"

namespace stepzero::laws {
namespace {

constexpr double eps = FLT_EPSILON;

// 3 sequences of 37 tokens, or one that is longer than two blocks of queries.
Batch larger_batch(Index sequences, Index length) {
  Batch batch;
  batch.sequences = sequences;
  batch.length = length;
  batch.seed = 11;
  for (Index t = 0; t < batch.tokens(); ++t) {
    batch.ids.push_back(static_cast<std::int32_t>(t * t % 211));
    batch.targets.push_back(t % 10 == 9 ? -100 : static_cast<std::int32_t>(t * 7 % 211));
    batch.encoder_ids.push_back(static_cast<std::int32_t>(t * 5 % 211));
  }
  for (Index i = 0; i < sequences * 3 * 24 * 24; ++i) batch.pixels.push_back(static_cast<float>(i * 37 % 101) / 50 - 1);
  batch.features = batch.pixels;
  return batch;
}

std::vector<Example> larger_examples() {
  std::vector<Example> list = {
      {"tokens", TokenEmbedding{.vocab = 211, .width = 96}, {}},
      {"tokens-encoder", TokenEmbedding{.vocab = 211, .width = 96, .encoder = true}, {}},
      {"patches", PatchEmbedding{.side = 24, .patch = 2, .colours = 3, .width = 96}, {}},
      {"learned", LearnedPosition{.positions = 150, .width = 96}, {96}},
      {"sinusoidal", SinusoidalPosition{.width = 96}, {96}},
      {"linear", Linear{.in = 96, .out = 384, .bias = true}, {96}},
      {"linear-down", Linear{.in = 384, .out = 96}, {384}},
      {"linear-conv1d", Linear{.in = 96, .out = 288, .bias = true, .storage = Storage::in_out}, {96}},
      {"linear-pieces", Linear{.in = 96, .out = 96, .bias = true, .pieces = 4}, {96}},
      {"linear-head", Linear{.in = 96, .out = 401}, {96}},
      {"lora", LoraLinear{.base = {.in = 96, .out = 96, .bias = true}, .rank = 8, .scale = 2}, {96}},
      {"layer-norm", LayerNorm{.width = 96}, {96}},
      {"layer-norm-wide", LayerNorm{.width = 401}, {401}},
      {"rms-norm", RmsNorm{.width = 96, .unit_offset = true}, {96}},
      {"rms-norm-heads", RmsNorm{.width = 24, .groups = 4}, {96}},
      {"multiply", Multiply{.width = 384}, {384, 384}},
      {"rotary", Rotary{.heads = 4, .head_dim = 24, .turned = 24}, {96}},
      {"attention", Attention{.heads = 4, .kv_heads = 4, .key_dim = 24, .value_dim = 24, .scale = 0.2}, {96, 96, 96}},
      {"attention-both", Attention{.heads = 4, .kv_heads = 4, .key_dim = 24, .value_dim = 24, .scale = 0.2, .causal = false}, {96, 96, 96}},
      {"attention-gqa", Attention{.heads = 4, .kv_heads = 2, .key_dim = 24, .value_dim = 16, .scale = 0.2}, {96, 48, 32}},
      {"attention-window", Attention{.heads = 4, .kv_heads = 1, .key_dim = 24, .value_dim = 24, .scale = 0.2, .window = 50}, {96, 24, 24}},
      {"attention-window-both",
       Attention{.heads = 4, .kv_heads = 4, .key_dim = 24, .value_dim = 24, .scale = 0.2, .causal = false, .window = 33},
       {96, 96, 96}},
      {"attention-one-head",
       Attention{.heads = 1, .kv_heads = 1, .key_dim = 96, .value_dim = 96, .scale = 0.1, .softcap = 2, .alibi = {0.1}},
       {96, 96, 96}},
      {"attention-relative",
       Attention{.heads = 4, .kv_heads = 4, .key_dim = 24, .value_dim = 24, .scale = 0.2, .buckets = 8, .farthest = 40},
       {96, 96, 96}},
      {"repeat", Repeat{.width = 16, .times = 12}, {16}},
      {"join", Join{.heads = 4, .own = 16, .shared = 8}, {64, 8}},
      {"experts", Experts{.width = 96, .ffn = 48, .routing = {.experts = 8, .chosen = 2}, .act = Elementwise<Silu>{.width = 48}}, {96, 8}},
      {"dropout", Dropout{.width = 96, .p = 0.3, .node = 2}, {96}},
      {"residual", Residual{.width = 96, .skip_scale = 1.7, .branch_scale = 0.3}, {96, 96}},
      {"scale", Scale{.width = 96, .factor = 2.5}, {96}},
      {"gain", Gain{.width = 96}, {96}},
      {"gain-one", Gain{.width = 96, .one = true}, {96}},
      {"softcap", Softcap{.width = 401, .cap = 1.3}, {401}},
      {"clip", Clip{.width = 401, .most = 1.1}, {401}},
      {"pixels", Pixels{.side = 9, .colours = 3}, {}},
      {"conv", Conv{.window = {.side = 9, .size = 3, .padding = 1}, .in = 24, .out = 40, .bias = true}, {24}},
      {"conv-groups", Conv{.window = {.side = 9, .size = 3, .stride = 2, .padding = 1}, .in = 24, .out = 36, .groups = 4}, {24}},
      {"average-pool", AveragePool{.window = {.side = 9, .size = 3, .stride = 2, .padding = 1}, .width = 40}, {40}},
      {"max-pool", MaxPool{.window = {.side = 9, .size = 3, .stride = 2, .padding = 1}, .width = 40}, {40}},
      {"batch-norm", BatchNorm{.width = 96}, {96}},
      {"flatten", Flatten{.side = 9, .width = 5}, {5}},
      {"pool-mean", TokenPool{.width = 96, .count = 0}, {96}},
      {"pool-largest", TokenPool{.width = 96, .largest = true}, {96}},
      {"probe", Probe{.width = 96}, {}},
      {"features", Features{.frames = 24, .width = 72}, {}},
      {"time-conv", TimeConv{.in = 24, .out = 40, .size = 3, .stride = 2, .before = 1, .after = 1, .bias = true}, {24}},
      {"time-conv-depthwise", TimeConv{.in = 96, .out = 96, .size = 4, .before = 3, .depthwise = true, .bias = true}, {96}},
      {"temperature", Temperature{.width = 96, .by = 0.3, .every = 16}, {96}},
      {"shift", Shift{.width = 96}, {96}},
      {"concat", Concat{.n = 40, .m = 56}, {40, 56}},
      {"take", Take{.from = 96, .first = 32, .width = 48}, {96}},
      {"scan", Scan{.heads = 48, .head_dim = 1, .states = 16}, {48, 48, 16, 16}},
      {"scan-heads", Scan{.heads = 6, .head_dim = 16, .states = 16, .groups = 2, .each = false}, {96, 6, 32, 32}},
      {"xielu", XIelu{.width = 384}, {384}},
      {"cross-entropy", CrossEntropy{.vocab = 401}, {401}},
  };
  std::vector<Example> phis;
  add_elementwise(phis, static_cast<const AnyOp*>(nullptr));
  for (Example& phi : phis) {
    std::visit(
        [](auto& op) {
          if constexpr (requires { op.width; }) op.width = 384;
        },
        phi.op);
    phi.input_channels = {384};
    list.push_back(phi);
  }
  return list;
}

// A stage on another batch than the laws' own.
Stage stage_of(const Example& example, const Batch& batch, std::uint64_t seed) {
  Stage stage(example, seed);
  std::mt19937_64 random(seed);
  stage.batch = batch;
  for (std::size_t k = 0; k < stage.places.size(); ++k) {
    const bool input = static_cast<int>(k) < stage.inputs;
    const Index rows = std::visit([&](const auto& op) { return rows_before(op, batch); }, example.op);
    stage.places[k] = Stage::draw(input ? rows : stage.places[k].rows(), stage.places[k].cols(), random);
  }
  return stage;
}

Tensor<float> rounded(Tensor<double>& exact) {
  Tensor<float> out(exact.rows(), exact.cols());
  for (Index i = 0; i < exact.size(); ++i) {
    out.data()[i] = static_cast<float>(exact.data()[i]);
    exact.data()[i] = static_cast<double>(out.data()[i]);
  }
  return out;
}

struct Row {
  std::string what;
  double error = 0, size = 0;  // largest error, largest magnitude
  [[nodiscard]] double in_eps() const { return error == 0 ? 0 : error / (eps * size); }
};

Row compare(const std::string& what, const Tensor<float>& got, const Tensor<double>& want) {
  Row row{what};
  for (Index i = 0; i < want.size(); ++i) {
    const double error = std::abs(static_cast<double>(got.data()[i]) - want.data()[i]);
    if (!(error <= row.error)) row.error = std::isnan(row.error) ? row.error : error;  // a NaN stays
    row.size = std::max(row.size, std::abs(want.data()[i]));
  }
  return row;
}

// Forward, and backward both written and added, in float against double.
std::vector<Row> compare_doors(const Example& example, Stage& stage) {
  return std::visit(
      [&](const auto& op) {
        std::vector<Tensor<float>> places;
        for (auto& place : stage.places) places.push_back(rounded(place));
        Tensor<double> keep;
        Tensor<float> keep_f;
        const Tensor<double> y = run_forward(op, stage, stage.places, keep);
        const Tensor<float> y_f = run_forward(op, stage, places, keep_f);
        std::mt19937_64 random(99);
        Tensor<double> dy = Stage::draw(y.rows(), y.cols(), random);
        const Tensor<float> dy_f = rounded(dy);
        std::vector<Row> rows = {compare("output", y_f, y)};
        for (const bool add : {false, true}) {
          const auto g = run_backward(op, stage, stage.places, y, keep, dy, add, add ? 0.5 : std::nan(""));
          const auto g_f = run_backward(op, stage, places, y_f, keep_f, dy_f, add, add ? 0.5F : std::nanf(""));
          for (std::size_t k = 0; k < g.size(); ++k) {
            rows.push_back(compare(fmt::format("{}gradient of place {}", add ? "added " : "", k), g_f[k], g[k]));
          }
        }
        return rows;
      },
      example.op);
}

// Terms in the longest sum an op can make: over channels, over tokens, or over both where they share a learned number.
double terms(const Example& example, const Stage& stage) {
  Index n = stage.batch.tokens();
  for (const auto& place : stage.places) n = std::max(n, place.cols());
  n = std::max(n, std::visit([](const auto& op) { return op.channels(); }, example.op));
  const bool shared = std::holds_alternative<XIelu>(example.op) || std::holds_alternative<Scan>(example.op);
  return static_cast<double>(shared ? n * stage.batch.tokens() : n);
}

void expect_close(const Example& example, Stage stage, double c) {
  const double n = terms(example, stage);
  for (const Row& row : compare_doors(example, stage)) {
    if (std::getenv("STEPZERO_SHOW_WORST") != nullptr)
      fmt::print("{:<24} {:<28} {:8.3f} eps  {:.4f} eps n\n", example.name, row.what, row.in_eps(), row.in_eps() / n);
    EXPECT_TRUE(row.error <= c * eps * n * row.size) << fmt::format(
        "{:<24} {:<28} error {:.2e} of {:.2e} = {:.2f} eps, bound {:.2f} eps = {} n, n {}\n"
        "run again: stepzero_tests --gtest_filter='FloatOps.*'",
        example.name, row.what, row.error, row.size, row.in_eps(), c * n, c, n);
  }
}

TEST(FloatOps, AgreeWithDouble) {
  for (const Example& example : examples()) {
    // (7) of attention is a difference that cancels where a softmax is nearly one-hot, as with two visible keys
    const double c = std::holds_alternative<Attention>(example.op) ? 4 : 1;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) expect_close(example, Stage(example, seed), c);
  }
}

TEST(FloatOps, AgreeWithDoubleOnLargerShapes) {
  for (const Example& example : larger_examples()) {
    expect_close(example, stage_of(example, larger_batch(3, 37), 1), 0.1);
    expect_close(example, stage_of(example, larger_batch(1, 130), 2), 0.1);
  }
}

TEST(FloatOps, EveryOpHasALargerExample) {
  std::set<std::size_t> seen;
  for (const Example& example : larger_examples()) seen.insert(example.op.index());
  EXPECT_EQ(seen.size(), std::variant_size_v<AnyOp>) << "an op of all.hpp has no example in larger_examples()";
}

// Everything an op writes, as bytes.
std::vector<Tensor<float>> everything(const Example& example, const Stage& stage) {
  return std::visit(
      [&](const auto& op) {
        std::vector<Tensor<float>> places;
        for (const auto& place : stage.places) {
          auto& to = places.emplace_back(place.rows(), place.cols());
          for (Index i = 0; i < to.size(); ++i) to.data()[i] = static_cast<float>(place.data()[i]);
        }
        Tensor<float> keep;
        Tensor<float> y = run_forward(op, stage, places, keep);
        Tensor<float> dy(y.rows(), y.cols());
        for (Index i = 0; i < dy.size(); ++i) dy.data()[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
        std::vector<Tensor<float>> out;
        for (const bool add : {false, true}) {
          for (auto& g : run_backward(op, stage, places, y, keep, dy, add, add ? 0.5F : 0.0F)) out.push_back(std::move(g));
        }
        out.push_back(std::move(y));
        if (op.keep() > 0) out.push_back(std::move(keep));
        return out;
      },
      example.op);
}

void expect_same_bits(const Example& example, const Batch& batch) {
  const int before = threads();
  const Stage stage = stage_of(example, batch, 3);
  set_threads(1);
  const auto one = everything(example, stage);
  for (const int n : {2, 3}) {
    set_threads(n);
    const auto more = everything(example, stage);
    ASSERT_EQ(one.size(), more.size());
    for (std::size_t k = 0; k < one.size(); ++k) {
      const auto bytes = static_cast<std::size_t>(one[k].size()) * sizeof(float);
      EXPECT_EQ(std::memcmp(one[k].data(), more[k].data(), bytes), 0) << fmt::format(
          "{:<24} {} x {} tokens, tensor {} of {}: {} threads and 1 differ", example.name, batch.sequences, batch.length, k, one.size(), n);
    }
  }
  set_threads(before);
}

TEST(FloatOps, SameBitsForAnyNumberOfThreads) {
  for (const Example& example : larger_examples()) {
    expect_same_bits(example, larger_batch(3, 37));
    expect_same_bits(example, larger_batch(2, 130));
  }
}

// One sequence, one head: nothing is left to cut into pieces but the products themselves.
TEST(FloatOps, SameBitsForAnyNumberOfThreadsWithOneHead) {
  const Attention op{.heads = 1, .kv_heads = 1, .key_dim = 96, .value_dim = 96, .scale = 0.1};
  expect_same_bits({"attention", op, {96, 96, 96}}, larger_batch(1, 150));
}

TEST(FloatOps, SameBitsForAnyNumberOfThreadsWithOneToken) {
  expect_same_bits({"linear-conv1d", Linear{.in = 768, .out = 96, .storage = Storage::in_out}, {768}}, larger_batch(1, 1));
  expect_same_bits({"linear", Linear{.in = 768, .out = 96}, {768}}, larger_batch(1, 1));
}

}  // namespace
}  // namespace stepzero::laws
