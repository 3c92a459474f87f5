#pragma once
// The models and optimizers that the predicted first step is judged on.
#include <string>
#include <vector>

#include "bench/accuracy_grid.hpp"
#include "stepzero/optim/optimizer.hpp"

namespace stepzero {

using Set = std::vector<std::string>;

// A row for each family and way of wiring that has rules.
inline std::vector<Case> step_grid() {
  const std::string l = "llama-2-7b";
  const Set bert = {"norm_placement=post", "causal=false", "activation=gelu"};
  return {
      {"gpt2", "gpt2", gpt2(4, 256), "gpt2"},
      {"gpt2, untied", "gpt2", gpt2(4, 256) + Set{"tied=false"}, "gpt2"},
      {"gpt2, deep and narrow", "gpt2", gpt2(12, 128), "gpt2", "zipf", 32},
      {"llama", l, llama(4, 256), "hf"},
      {"llama, wide", l, llama(2, 512), "hf"},
      {"llama xavier", l, llama(4, 256), "xavier-normal"},
      {"pre-norm xavier", l, plain(4, 256), "xavier-normal"},
      {"pre-norm he, relu, not causal", l, plain(4, 256) + Set{"causal=false", "activation=relu"}, "he", "distinct"},
      {"post-norm xavier", l, plain(4, 256) + bert, "xavier-normal"},
      {"post-norm causal", l, plain(4, 256) + Set{"norm_placement=post"}, "hf", "distinct", 32},
      {"parallel", l, plain(4, 256) + Set{"parallel_block=true"}, "gpt2"},
      {"sandwich", l, llama(4, 256) + Set{"norm_placement=sandwich"}, "hf"},
      {"qk-norm", l, llama(4, 256) + Set{"qk_norm=true"}, "hf"},
      {"sinusoidal, two sequences", l, plain(4, 256) + Set{"position=sinusoidal", "init_std=1"}, "xavier-normal", "zipf", 32, 2},
      {"window, two sequences", l, llama(4, 256) + Set{"window=8"}, "xavier-normal", "zipf", 32, 2},
  };
}

// Small models whose loss is looked up along the step.
inline std::vector<Case> search_grid() {
  const std::string l = "llama-2-7b";
  std::vector<Case> list;
  for (const Index width : {Index{128}, Index{256}}) {
    for (const Index layers : {Index{2}, Index{4}}) {
      for (const char* scheme : {"hf", "xavier-normal", "gpt2"}) {
        const std::string size = fmt::format("{} x {}", layers, width);
        list.push_back({"gpt2, " + size, "gpt2", gpt2(layers, width), scheme, "zipf", 32});
        list.push_back({"llama, " + size, l, llama(layers, width), scheme, "zipf", 32});
        list.push_back({"plain, " + size, l, plain(layers, width), scheme, "zipf", 32});
        list.push_back({"post-norm, " + size, l, plain(layers, width) + Set{"norm_placement=post"}, scheme, "zipf", 32});
      }
    }
  }
  return list;
}

struct StepOptimizer {
  std::string name;
  OptimizerOptions options;
  double relative = 0;  // the rates are scaled so that the stream that changes most does by so much of its size; 0: as they are
};

inline std::vector<StepOptimizer> step_optimizers() {
  constexpr double small = 0.08;
  return {
      {"sgd", {.name = "sgd", .rate = 0.001}, small},
      {"adamw", {.name = "adamw", .rate = 1e-5}, small},
      {"lion", {.name = "lion", .rate = 1e-5}, small},
      {"muon", {.name = "muon", .rate = 2e-4, .rate_adamw = 1e-5}, small},
      {"muon, Newton-Schulz", {.name = "muon", .rate = 2e-4, .rate_adamw = 1e-5, .newton_schulz = 5}, small},
      {"adamw at 1e-4", {.name = "adamw", .rate = 1e-4}},
      {"adamw at 1e-3", {.name = "adamw", .rate = 1e-3}},
  };
}

}  // namespace stepzero
