#pragma once
// LoRA: a transformation of a finished graph. Chosen matrices get a trainable neighbour of low rank (ops/lora.hpp), and all that was
// there before is frozen. Names, shapes and initialization are those of the peft library.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/graph/graph.hpp"

namespace stepzero {

struct Lora {
  Index rank = 8;
  double alpha = 8;
  bool root = false;                      // the neighbour's scale is alpha / sqrt(rank) (rsLoRA) rather than alpha / rank
  std::vector<std::string> roles = {};    // "query", "value", ... or "all-linear"
  std::vector<std::string> modules = {};  // names of modules, or how they end: "q_proj"
  std::optional<double> down_std = {};    // A is drawn from a normal law; without it from a uniform one up to 1 / sqrt(inputs)
  double up_std = 0;                      // B from a normal law; 0: B = 0

  [[nodiscard]] double scale() const;
};

// "rank=8,alpha=16,roles=query,value": what is left out is as above, and roles are query and value where nothing is named.
Expected<Lora> parse_lora(std::string_view text);

// Of the names of an adapter's tensors: behind it stands the module's.
inline constexpr std::string_view adapter_prefix = "base_model.model.";

// Where a matrix's adapter is found: "h.0.attn.c_attn.weight" -> "h.0.attn.c_attn".
std::string module_of(const Param& p);

// An error where a role or module is not there or cannot carry an adapter: it lists what can.
Expected<void> add_adapters(Graph& graph, const Lora& lora);

}  // namespace stepzero
