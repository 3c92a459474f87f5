#pragma once
// The models and optimizers that the predicted first step is judged on.
#include <string>
#include <vector>

#include "bench/accuracy_grid.hpp"
#include "stepzero/optim/optimizer.hpp"

namespace stepzero {

struct StepCase {
  std::string name, preset;
  std::vector<std::string> set;
  std::string scheme;
  std::string tokens = "zipf";
  Index length = 64, sequences = 1;
};

inline std::vector<StepCase> step_grid() {
  const std::string l = "llama-2-7b";
  const std::vector<std::string> bert = {"norm_placement=post", "causal=false", "activation=gelu"};
  return {
      {"untied gpt2, 4 x 256", "gpt2", gpt2(4, 256) + std::vector<std::string>{"tied=false"}, "gpt2"},
      {"gpt2, 4 x 256", "gpt2", gpt2(4, 256), "gpt2"},
      {"llama, 4 x 256", l, llama(4, 256), "hf"},
      {"plain, 4 x 256", l, plain(4, 256), "gpt2"},
      {"xavier, 4 x 256", l, plain(4, 256), "xavier-normal"},
      {"llama xavier, 4 x 256", l, llama(4, 256), "xavier-normal"},
      {"bert, 4 x 256", l, plain(4, 256) + bert, "xavier-normal"},
      {"parallel, 4 x 256", l, plain(4, 256) + std::vector<std::string>{"parallel_block=true"}, "gpt2"},
  };
}

struct StepOptimizer {
  std::string name;
  OptimizerOptions options;
};

// Rates that change streams by at most a tenth of their size in models of the small schemes; and rates that people use.
inline std::vector<StepOptimizer> step_optimizers() {
  return {
      {"sgd", {.name = "sgd", .rate = 0.01}},
      {"adamw", {.name = "adamw", .rate = 1e-5}},
      {"lion", {.name = "lion", .rate = 1e-5}},
      {"muon", {.name = "muon", .rate = 2e-4, .rate_adamw = 1e-5}},
      {"muon ns5", {.name = "muon", .rate = 2e-4, .rate_adamw = 1e-5, .newton_schulz = 5}},
      {"adamw 1e-4", {.name = "adamw", .rate = 1e-4}},
      {"adamw 1e-3", {.name = "adamw", .rate = 1e-3}},
  };
}

}  // namespace stepzero
