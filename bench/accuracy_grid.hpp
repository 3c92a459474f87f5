#pragma once
// The models that predict is judged on: architectures, schemes, widths, depths and token statistics.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "stepzero/core/view.hpp"

namespace stepzero {

struct Case {
  std::string name;
  std::string preset;
  std::vector<std::string> set;
  std::string scheme;
  std::string tokens = "zipf";
  Index length = 64;
  Index sequences = 1;
  bool real = false;  // witness: real weights instead of the weightless pass
};

inline std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Separate q, k, v so that their gradients are seen apart; a small vocabulary, since the head is not the subject.
inline std::vector<std::string> gpt2(Index layers, Index width) {
  return {fmt::format("layers={}", layers), fmt::format("width={}", width), fmt::format("heads={}", width / 64), "vocab=2000"};
}
inline std::vector<std::string> llama(Index layers, Index width) {
  return {fmt::format("layers={}", layers),        fmt::format("width={}", width),       fmt::format("heads={}", width / 64),
          fmt::format("kv_heads={}", width / 128), fmt::format("ffn={}", width * 8 / 3), "vocab=2000"};
}
// GPT-2's block under llama's tensor names, which keep q, k and v apart
inline std::vector<std::string> plain(Index layers, Index width) {
  return {fmt::format("layers={}", layers),
          fmt::format("width={}", width),
          fmt::format("heads={}", width / 64),
          fmt::format("kv_heads={}", width / 64),
          fmt::format("ffn={}", width * 4),
          "vocab=2000",
          "rotary=0",
          "position=learned",
          "norm=layernorm",
          "gated=false",
          "activation=gelu_tanh",
          "bias=true"};
}

inline std::vector<Case> grid() {
  const std::string l = "llama-2-7b";
  const std::vector<std::string> bert = {"norm_placement=post", "causal=false", "activation=gelu"};
  return {
      {"gpt2", "gpt2", gpt2(6, 256), "gpt2"},
      {"gpt2 real weights", "gpt2", gpt2(6, 256), "gpt2", "zipf", 64, 1, true},
      {"gpt2, deep", "gpt2", gpt2(48, 256), "gpt2", "zipf", 16},
      {"gpt2, untied", "gpt2", gpt2(12, 768) + std::vector<std::string>{"tied=false"}, "gpt2"},
      {"gpt2, distinct", "gpt2", gpt2(12, 768), "gpt2", "distinct", 64},
      {"gpt2, all equal", "gpt2", gpt2(6, 256), "gpt2", "equal", 64},
      {"gpt2, one token", "gpt2", gpt2(6, 256), "gpt2", "zipf", 1, 4},
      {"gpt2, two tokens", "gpt2", gpt2(6, 256), "gpt2", "zipf", 2, 4},
      {"pre-norm xavier", l, plain(6, 256), "xavier-normal"},
      {"pre-norm xavier, wide", l, plain(2, 1536), "xavier-normal"},
      {"pre-norm xavier, long", l, plain(4, 768), "xavier-normal", "zipf", 256},
      {"pre-norm xavier, deep", l, plain(24, 256), "xavier-normal", "zipf", 16},
      {"pre-norm he, relu, not causal", l, plain(6, 768) + std::vector<std::string>{"causal=false", "activation=relu"}, "he"},
      {"pre-norm he, relu, narrow", l, plain(6, 256) + std::vector<std::string>{"causal=false", "activation=relu"}, "he", "distinct", 64},
      {"pre-norm score variance 4", l, plain(6, 256) + std::vector<std::string>{"attention_scale=0.25"}, "xavier-normal"},
      {"score variance 4, not causal", l, plain(6, 768) + std::vector<std::string>{"attention_scale=0.25", "causal=false"}, "xavier-normal",
       "distinct", 64},
      {"bert", l, plain(12, 768) + bert, "hf", "zipf", 64},
      {"bert xavier", l, plain(6, 256) + bert, "xavier-normal", "zipf", 64},
      {"bert xavier, deep", l, plain(24, 256) + bert, "xavier-normal", "zipf", 16},
      {"post-norm causal he", l, plain(6, 256) + std::vector<std::string>{"norm_placement=post"}, "he", "distinct", 16},
      {"deepnet", l, plain(12, 256) + bert, "deepnet", "zipf", 64},
      {"deepnet, deep and causal", l, plain(48, 256), "deepnet", "distinct", 16},
      {"llama", l, llama(6, 256), "hf"},
      {"llama real weights", l, llama(6, 256), "hf", "zipf", 64, 1, true},
      {"llama wide", l, llama(4, 1536), "hf"},
      {"llama xavier", l, llama(6, 768), "xavier-normal"},
      {"llama he", l, llama(6, 768), "he", "distinct", 64},
      {"llama score variance 4", l, llama(6, 768) + std::vector<std::string>{"attention_scale=0.25"}, "xavier-normal"},
      {"llama deep", l, llama(32, 256), "xavier-normal", "zipf", 16},
      {"llama long", l, llama(2, 768), "xavier-normal", "zipf", 256},
      {"llama two sequences, window", l, llama(6, 256) + std::vector<std::string>{"window=8"}, "xavier-normal", "zipf", 32, 2},
      {"parallel", l, plain(6, 256) + std::vector<std::string>{"parallel_block=true"}, "xavier-normal"},
      {"parallel llama, deep", l, llama(16, 768) + std::vector<std::string>{"parallel_block=true"}, "hf", "zipf", 16},
      {"qk-norm", l, llama(6, 256) + std::vector<std::string>{"qk_norm=true"}, "hf"},
      {"qk-norm, wide", l, llama(4, 768) + std::vector<std::string>{"qk_norm=true"}, "he"},
      {"sandwich", l, llama(6, 256) + std::vector<std::string>{"norm_placement=sandwich"}, "hf"},
      {"sandwich, gelu", l, plain(6, 768) + std::vector<std::string>{"norm_placement=sandwich"}, "xavier-normal"},
      {"branch norm", l, llama(6, 256) + std::vector<std::string>{"norm_placement=branch"}, "xavier-normal"},
      {"no norm, relu", l, plain(6, 256) + std::vector<std::string>{"norm=none", "activation=relu", "init_std=0.3", "residual_scale=0.3"},
       "xavier-normal", "zipf", 16},
      {"no norm, gelu, wide", l, plain(4, 1536) + std::vector<std::string>{"norm=none", "init_std=0.3", "residual_scale=0.3"}, "lecun",
       "distinct", 16},
      {"sinusoidal, not causal", l, plain(6, 256) + std::vector<std::string>{"position=sinusoidal", "causal=false", "init_std=1"},
       "xavier-normal"},
      {"untied large logits", "gpt2", gpt2(4, 256) + std::vector<std::string>{"tied=false", "init_std=0.1"}, "hf"},
      {"tied, embeddings of 1", "gpt2", gpt2(4, 256) + std::vector<std::string>{"init_std=0.1"}, "hf"},
  };
}

// The rows that the test suite judges, by stored measurements: what makes the corrections of finite width act.
inline bool in_suite(const Case& c) {
  constexpr std::string_view rows[] = {
      "gpt2",         "pre-norm xavier", "pre-norm score variance 4", "bert xavier, deep",    "llama", "qk-norm",
      "llama xavier", "branch norm",     "no norm, gelu, wide",       "tied, embeddings of 1"};
  return std::ranges::find(rows, c.name) != std::end(rows);
}

}  // namespace stepzero
