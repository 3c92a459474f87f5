#pragma once
// What tensors are, by their names and shapes alone: for checkpoints that come without a config.json.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

struct NamedShape {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::optional<Role> role = {};  // as it is told; none: by its name
};

struct Inferred {
  Architecture architecture;  // sizes that can be seen; heads cannot, and are taken as 64 wide
  Graph graph;                // parameters only
};

// Tensors whose name says nothing, and whose role is not told, are left out.
Inferred infer_model(const std::vector<NamedShape>& tensors);

// What GGUF calls a tensor of this family, for each name it has elsewhere.
std::vector<std::pair<std::string, std::string>> gguf_names(const Architecture& a);

}  // namespace stepzero
