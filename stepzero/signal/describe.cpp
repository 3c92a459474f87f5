#include "stepzero/signal/describe.hpp"

#include "stepzero/graph/questions.hpp"

namespace stepzero {

namespace {

std::string attention_name(const std::string& node) { return node.substr(0, node.rfind('.')); }

}  // namespace

Signal describe(const Graph& graph, const Architecture& a, const Batch& batch) {
  Signal signal;
  signal.architecture = a;
  signal.parameter_count = graph.parameter_count();
  signal.trainable_count = graph.trainable_count();
  signal.batch = batch.sequences;
  signal.seq_len = batch.length;
  for (std::size_t i = 0; i + 1 < graph.nodes.size(); ++i) {  // all but the loss
    const Node& node = graph.nodes[i];
    signal.nodes.push_back({.name = node.name, .kind = kind_of(node.op), .grade = "measured", .forward = {}, .backward = {}});
    if (has_summary(node.op)) signal.attention.push_back({attention_name(node.name), {}, {}, {}});
  }
  for (const Param& p : graph.params) signal.parameters.push_back({p.name, p.shape, {}, {}, p.role, p.layer, p.frozen});
  return signal;
}

}  // namespace stepzero
