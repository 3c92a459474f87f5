#pragma once
// A graph as the third walk sees it: nodes that move by themselves, nodes that are drawn together, and the head with the loss.
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/graph/graph.hpp"

namespace stepzero {

struct StepPart {
  enum class Kind : std::uint8_t { single, pointwise, heads, experts, logits };
  Kind kind = Kind::single;
  std::vector<std::size_t> nodes;  // ascending
  std::vector<std::size_t> from;   // nodes outside that they read, each once
};

// In running order: a part comes after all that it reads. An op without a rule is an error that names it.
Expected<std::vector<StepPart>> step_parts(const Graph& graph);

}  // namespace stepzero
