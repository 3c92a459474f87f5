#include "stepzero/report/depth.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

namespace stepzero {

namespace {

using Nodes = std::map<std::string_view, const NodeSignal*>;

const NodeSignal* find(const Nodes& nodes, const std::string& name) {
  const auto it = nodes.find(name);
  return it == nodes.end() ? nullptr : it->second;
}

// The last node of a branch is what is added.
const NodeSignal* branch_end(const Nodes& nodes, const std::string& branch) {
  for (const char* last : {".gain", ".post_norm", ".out", ""}) {
    if (const NodeSignal* n = find(nodes, branch + last)) return n;
  }
  return nullptr;
}

double scale_of(const std::vector<double>& each, double all, std::size_t branch) { return branch < each.size() ? each[branch] : all; }

double square(double x) { return x * x; }

}  // namespace

std::vector<Stack> stacks(const Signal& signal) {
  Nodes nodes;
  for (const NodeSignal& n : signal.nodes) nodes[n.name] = &n;
  std::map<std::string_view, const AttentionSignal*> attention;
  for (const AttentionSignal& a : signal.attention) attention[a.name] = &a;
  std::vector<Stack> found;
  for (const char* prefix : {"", "encoder.", "decoder."}) {
    Stack stack{prefix, {}};
    for (std::size_t l = 0; const NodeSignal* stream = find(nodes, stack.stream(l)); ++l) {
      const std::string block = stack.block(l);
      const auto a = attention.find(block + ".attn");
      stack.layers.push_back({.stream = stream,
                              .attention_branch = branch_end(nodes, block + ".attn"),
                              .ffn_branch = branch_end(nodes, block + (signal.architecture.stages.empty() ? ".ffn" : ".conv2")),
                              .query = find(nodes, block + ".attn.q"),
                              .value = find(nodes, block + ".attn.v"),
                              .attention = a == attention.end() ? nullptr : a->second});
    }
    if (!stack.layers.empty()) found.push_back(std::move(stack));
  }
  return found;
}

double uniform_entropy(const Signal& s, const Stack& stack, std::size_t layer) {
  const Architecture& a = s.architecture;
  const Index window = has_window(a, static_cast<Index>(layer)) ? a.window : s.seq_len;
  if (!a.causal || stack.prefix == "encoder.") return std::log(static_cast<double>(s.seq_len));
  double sum = 0;
  for (Index t = 1; t <= s.seq_len; ++t) sum += std::log(static_cast<double>(std::min(t, window)));
  return sum / static_cast<double>(s.seq_len);
}

double added_share(const Signal& s, const Stack& stack, std::size_t l) {
  const Architecture& a = s.architecture;
  const Layer& layer = stack.layers[l];
  const auto part = [&](const NodeSignal* branch, std::size_t which) {
    if (branch == nullptr) return 0.0;
    return square(scale_of(a.residual_scales, a.residual_scale, 2 * l + which)) * best(branch->forward.second_moment);
  };
  const double skip = square(scale_of(a.skip_scales, a.skip_scale, 2 * l));
  return (part(layer.attention_branch, 0) + part(layer.ffn_branch, 1)) / (skip * best(layer.stream->forward.second_moment));
}

}  // namespace stepzero
