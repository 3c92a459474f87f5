#pragma once
// The flags that say how weights are updated: of every verb that makes an update.
#include <string>

#include <CLI/CLI.hpp>

#include "stepzero/graph/graph.hpp"
#include "stepzero/optim/optimizer.hpp"
#include "stepzero/optim/rates.hpp"

namespace stepzero::cli {

struct OptimizerFlags {
  OptimizerOptions options;
  std::string betas, muon_scale = "max1", rates;

  void declare(CLI::App& app);
  [[nodiscard]] Expected<OptimizerOptions> given() const;
  // With the defaults of the optimizer filled in, and checked.
  [[nodiscard]] Expected<OptimizerOptions> settled() const;
  // The table of --rates; each of its rows must fit a tensor of the model.
  [[nodiscard]] Expected<RateTable> table(const Graph& graph) const;
};

}  // namespace stepzero::cli
