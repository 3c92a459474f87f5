#pragma once
// One or more small, awkward examples of every op: odd sizes, more than one sequence, every switch turned at least once.
#include <string>
#include <vector>

#include "stepzero/ops/all.hpp"

namespace stepzero::laws {

struct Example {
  std::string name;
  AnyOp op;
  std::vector<Index> input_channels;
};

// Rows of an op's inputs: the pixels of all images where it moves over them, else the tokens.
template <class T>
Index rows_before(const T& op, const Batch& batch) {
  if constexpr (requires { op.pixels(); })
    return batch.sequences * op.pixels();
  else
    return batch.tokens();
}

// Two sequences of five tokens, ids that repeat, one position that is not scored. For vision models, two images of four patches.
inline Batch example_batch() {
  Batch batch;
  batch.sequences = 2;
  batch.length = 5;
  batch.ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  batch.targets = {1, 4, 1, 5, 9, 2, 6, 5, 3, -100};
  batch.seed = 7;
  batch.encoder_ids = {2, 2, 7, 1, 8, 2, 8, 1, 8, 2};
  for (int i = 0; i < 2 * 2 * 5 * 5; ++i) batch.pixels.push_back(static_cast<float>(i * 37 % 101) / 50 - 1);
  batch.features = batch.pixels;
  return batch;
}

// Every switch of a router turned.
inline Routing every_switch(Index chosen) {
  return {
      .experts = 8, .chosen = chosen, .sigmoid = true, .factor = 2.5, .groups = 4, .kept_groups = 2, .group_best = 2, .corrected = true};
}

template <class... Ops>
void add_elementwise(std::vector<Example>& list, const std::variant<Ops...>*) {
  const auto add = [&]<class T>(const T*) {
    if constexpr (requires { typename T::phi; }) list.push_back({T::kind, T{.width = 7}, {7}});
  };
  (add(static_cast<const Ops*>(nullptr)), ...);
}

inline std::vector<Example> examples() {
  std::vector<Example> list = {
      {"tokens", TokenEmbedding{.vocab = 11, .width = 7}, {}},
      {"tokens-encoder", TokenEmbedding{.vocab = 11, .width = 3, .encoder = true}, {}},
      {"patches", PatchEmbedding{.side = 5, .patch = 2, .colours = 2, .width = 7}, {}},
      {"learned", LearnedPosition{.positions = 6, .width = 7}, {7}},
      {"learned-constant", LearnedPosition{.positions = 2, .width = 7, .constant = true}, {7}},
      {"learned-offset", LearnedPosition{.positions = 5, .width = 3, .offset = 2}, {3}},
      {"sinusoidal", SinusoidalPosition{.width = 7}, {7}},
      {"linear", Linear{.in = 7, .out = 5}, {7}},
      {"linear-bias", Linear{.in = 3, .out = 11, .bias = true}, {3}},
      {"linear-conv1d", Linear{.in = 7, .out = 5, .bias = true, .storage = Storage::in_out}, {7}},
      {"linear-pieces", Linear{.in = 5, .out = 6, .bias = true, .pieces = 3}, {5}},
      {"linear-one", Linear{.in = 1, .out = 1, .bias = true}, {1}},
      {"lora", LoraLinear{.base = {.in = 7, .out = 5, .bias = true}, .rank = 2, .scale = 1.5}, {7}},
      {"lora-conv1d", LoraLinear{.base = {.in = 7, .out = 5, .storage = Storage::in_out}, .rank = 3, .scale = 0.7}, {7}},
      {"lora-pieces", LoraLinear{.base = {.in = 5, .out = 6, .bias = true, .pieces = 3}, .rank = 2, .scale = 1.5}, {5}},
      {"layer-norm", LayerNorm{.width = 7}, {7}},
      {"layer-norm-bare", LayerNorm{.width = 7, .gain = false, .bias = false}, {7}},
      {"layer-norm-heads", LayerNorm{.width = 5, .bias = false, .groups = 3, .gain_per_group = true}, {15}},
      {"layer-norm-heads-bias", LayerNorm{.width = 5, .groups = 3, .gain_per_group = true}, {15}},
      {"rms-norm", RmsNorm{.width = 7, .eps = 1e-6}, {7}},
      {"rms-norm-gemma", RmsNorm{.width = 17, .unit_offset = true}, {17}},
      {"rms-norm-heads", RmsNorm{.width = 5, .groups = 3}, {15}},
      {"multiply", Multiply{.width = 7}, {7, 7}},
      {"rotary", Rotary{.heads = 3, .head_dim = 6, .turned = 6, .base = 100}, {18}},
      {"rotary-partial", Rotary{.heads = 2, .head_dim = 7, .turned = 4, .base = 100}, {14}},
      {"rotary-interleaved", Rotary{.heads = 2, .head_dim = 6, .turned = 4, .base = 100, .interleaved = true}, {12}},
      {"rotary-last", Rotary{.heads = 2, .head_dim = 7, .turned = 4, .first = 3, .base = 100}, {14}},
      {"rotary-stretched", Rotary{.heads = 2, .head_dim = 6, .turned = 4, .base = 100, .frequencies = {0.7, 0.2}, .stretch = 1.3}, {12}},
      {"attention", Attention{.heads = 3, .kv_heads = 3, .key_dim = 5, .value_dim = 5, .scale = 0.7}, {15, 15, 15}},
      {"attention-gqa", Attention{.heads = 6, .kv_heads = 2, .key_dim = 3, .value_dim = 4, .scale = 0.9, .causal = false}, {18, 6, 8}},
      {"attention-mqa-window", Attention{.heads = 2, .kv_heads = 1, .key_dim = 3, .value_dim = 3, .scale = 1.1, .window = 2}, {6, 3, 3}},
      {"attention-window-both",
       Attention{.heads = 2, .kv_heads = 2, .key_dim = 3, .value_dim = 3, .scale = 1.1, .causal = false, .window = 2},
       {6, 6, 6}},
      {"attention-alibi-softcap",
       Attention{.heads = 2, .kv_heads = 2, .key_dim = 3, .value_dim = 3, .scale = 0.8, .softcap = 1.5, .alibi = {0.5, 0.25}},
       {6, 6, 6}},
      {"attention-relative",
       Attention{.heads = 2, .kv_heads = 2, .key_dim = 3, .value_dim = 3, .scale = 1, .buckets = 6, .farthest = 4},
       {6, 6, 6}},
      {"attention-relative-both",
       Attention{.heads = 2, .kv_heads = 1, .key_dim = 3, .value_dim = 2, .causal = false, .softcap = 2, .buckets = 8, .farthest = 5},
       {6, 3, 2}},
      {"attention-chunks", Attention{.heads = 2, .kv_heads = 2, .key_dim = 3, .value_dim = 3, .scale = 1.1, .chunk = 2}, {6, 6, 6}},
      {"attention-chunks-both",
       Attention{.heads = 2, .kv_heads = 1, .key_dim = 3, .value_dim = 3, .scale = 1.1, .causal = false, .chunk = 3},
       {6, 3, 3}},
      {"attention-sinks",
       Attention{.heads = 4, .kv_heads = 2, .key_dim = 3, .value_dim = 2, .scale = 0.9, .window = 3, .sinks = true},
       {12, 6, 4}},
      {"attention-sinks-relative",
       Attention{.heads = 4,
                 .kv_heads = 4,
                 .key_dim = 3,
                 .value_dim = 3,
                 .causal = false,
                 .softcap = 2,
                 .buckets = 8,
                 .farthest = 5,
                 .sinks = true},
       {12, 12, 12}},
      {"attention-cross",
       Attention{.heads = 2, .kv_heads = 2, .key_dim = 3, .value_dim = 3, .scale = 0.8, .causal = false, .cross = true},
       {6, 6, 6}},
      {"dropout", Dropout{.width = 7, .p = 0.3, .node = 2}, {7}},
      {"residual", Residual{.width = 7, .skip_scale = 1.7, .branch_scale = 0.3}, {7, 7}},
      {"scale", Scale{.width = 7, .factor = 2.5}, {7}},
      {"repeat", Repeat{.width = 3, .times = 4}, {3}},
      {"gain", Gain{.width = 7}, {7}},
      {"gain-one", Gain{.width = 7, .one = true}, {7}},
      {"softcap", Softcap{.width = 7, .cap = 1.3}, {7}},
      {"clip", Clip{.width = 7, .most = 1.1}, {7}},
      {"join", Join{.heads = 3, .own = 4, .shared = 3}, {12, 3}},
      {"experts", Experts{.width = 7, .ffn = 5, .routing = {.experts = 4, .chosen = 2}, .act = Elementwise<Silu>{.width = 5}}, {7, 4}},
      {"experts-scaled",
       Experts{.width = 3,
               .ffn = 6,
               .routing = {.experts = 6, .chosen = 2, .normalise = false, .factor = 1.5, .groups = 3, .kept_groups = 2},
               .act = Elementwise<GeluErf>{.width = 6}},
       {3, 6}},
      {"experts-corrected", Experts{.width = 5, .ffn = 3, .routing = every_switch(3), .act = Elementwise<Silu>{.width = 3}}, {5, 8}},
      {"experts-fused",
       Experts{.width = 5, .ffn = 4, .routing = {.experts = 4, .chosen = 2}, .act = Elementwise<Silu>{.width = 4}, .fused = true},
       {5, 4}},
      {"experts-interleaved",
       Experts{.width = 5,
               .ffn = 4,
               .routing = {.experts = 4, .chosen = 2},
               .act = Elementwise<QuickGelu>{.width = 4},
               .storage = Storage::in_out,
               .fused = true,
               .interleaved = true,
               .bias = true,
               .most = 1.5,
               .offset = 1},
       {5, 4}},
      {"experts-scaled-inputs",
       Experts{.width = 5,
               .ffn = 3,
               .routing = {.experts = 4, .chosen = 2, .sigmoid = true, .normalise = false},
               .act = Elementwise<Silu>{.width = 3},
               .storage = Storage::in_out,
               .fused = true,
               .bias = true,
               .scales_input = true},
       {5, 4}},
      {"patches-alone", PatchEmbedding{.side = 5, .patch = 1, .colours = 1, .width = 3, .bias = false, .class_token = false}, {}},
      {"pool-first", TokenPool{.width = 7}, {7}},
      {"pool-mean", TokenPool{.width = 7, .count = 0}, {7}},
      {"pool-rest", TokenPool{.width = 7, .first = 1, .count = 0}, {7}},
      {"pool-last", TokenPool{.width = 7, .last = true}, {7}},
      {"pool-largest", TokenPool{.width = 7, .largest = true}, {7}},
      {"pool-id", TokenPool{.width = 7, .id = 5}, {7}},
      {"probe", Probe{.width = 7}, {}},
      {"features", Features{.frames = 5, .width = 4}, {}},
      {"time-conv", TimeConv{.in = 3, .out = 4, .size = 3, .stride = 2, .before = 1, .after = 1, .bias = true}, {3}},
      {"time-conv-depthwise", TimeConv{.in = 7, .out = 7, .size = 4, .before = 3, .depthwise = true, .bias = true}, {7}},
      {"temperature", Temperature{.width = 7, .by = 0.3, .every = 2}, {7}},
      {"shift", Shift{.width = 7}, {7}},
      {"concat", Concat{.n = 3, .m = 4}, {3, 4}},
      {"take", Take{.from = 7, .first = 2, .width = 3}, {7}},
      {"scan", Scan{.heads = 4, .head_dim = 1, .states = 3}, {4, 4, 3, 3}},
      {"scan-heads", Scan{.heads = 4, .head_dim = 2, .states = 3, .groups = 2, .each = false, .least = 0.2, .most = 1.5}, {8, 4, 6, 6}},
      {"xielu", XIelu{.width = 7}, {7}},
      {"pixels", Pixels{.side = 5, .colours = 2}, {}},
      {"conv", Conv{.window = {.side = 4, .size = 2}, .in = 3, .out = 5}, {3}},
      {"conv-groups", Conv{.window = {.side = 5, .size = 3, .stride = 2, .padding = 1}, .in = 4, .out = 6, .bias = true, .groups = 2}, {4}},
      {"conv-leaves-over", Conv{.window = {.side = 5, .size = 2, .stride = 3}, .in = 1, .out = 2, .bias = true}, {1}},
      {"average-pool", AveragePool{.window = {.side = 5, .size = 3, .stride = 2, .padding = 1}, .width = 3}, {3}},
      {"average-pool-all", AveragePool{.window = {.side = 3, .size = 3}, .width = 7}, {7}},
      {"max-pool", MaxPool{.window = {.side = 5, .size = 2, .stride = 2}, .width = 3}, {3}},
      {"max-pool-overlaps", MaxPool{.window = {.side = 5, .size = 3, .stride = 2, .padding = 1}, .width = 3}, {3}},
      {"batch-norm", BatchNorm{.width = 7, .eps = 0.1}, {7}},
      {"flatten", Flatten{.side = 3, .width = 2}, {2}},
      {"cross-entropy", CrossEntropy{.vocab = 13}, {13}},
  };
  add_elementwise(list, static_cast<const AnyOp*>(nullptr));
  return list;
}

}  // namespace stepzero::laws
