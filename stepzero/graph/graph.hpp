#pragma once
// A model is a graph: nodes in the order they run, each an op with the wires it reads and the parameters it uses.
// Wire i is the output of node i. Interpreters (theory/, pass/) go down and up this list.
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/graph/param.hpp"
#include "stepzero/ops/all.hpp"

namespace stepzero {

// Where a node stands, by its name: [STACK.]stream.LAYER, the residual stream in front of a block, or [STACK.]blocks.LAYER.PART.
struct Place {
  std::string stack;  // "encoder" or "decoder" of a model of two; else empty
  Index layer = -1;   // -1: neither
  std::string part;   // "stream", "attn.out"; empty: neither

  [[nodiscard]] bool is_stream() const { return part == "stream"; }
};
Place place_of(std::string_view name);

struct Node {
  std::string name;
  AnyOp op;
  std::vector<int> inputs;
  std::vector<ParamUse> params;

  [[nodiscard]] bool is_stream() const { return place_of(name).is_stream(); }
};

[[nodiscard]] const char* kind_of(const AnyOp& op);
[[nodiscard]] Index channels_of(const AnyOp& op);

struct Graph {
  std::vector<Param> params;
  std::vector<Node> nodes;  // the last one is the loss: the sum of its output

  int add_param(Param param);
  // Checks that wires, channels and parameter blocks fit what the op asks for: a mismatch is a bug in the builder.
  int add_node(std::string name, AnyOp op, std::vector<int> inputs, std::vector<ParamUse> params = {});

  // Rows of every wire.
  [[nodiscard]] std::vector<Index> rows(const Batch& batch) const;
  [[nodiscard]] ParamUse whole(int param) const;
  [[nodiscard]] Index parameter_count() const;
  [[nodiscard]] Index trainable_count() const;                 // of parameters that are not frozen
  [[nodiscard]] int find_node(const std::string& name) const;  // -1: none
};

}  // namespace stepzero
