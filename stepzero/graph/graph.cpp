#include "stepzero/graph/graph.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace stepzero {

const char* kind_of(const AnyOp& op) {
  return std::visit([](const auto& o) -> const char* { return o.kind; }, op);
}

Index channels_of(const AnyOp& op) {
  return std::visit([](const auto& o) { return o.channels(); }, op);
}

Place place_of(std::string_view name) {
  Place place;
  for (const std::string_view stack : {"encoder", "decoder"}) {
    if (!name.starts_with(std::string(stack) + ".")) continue;
    place.stack = stack;
    name.remove_prefix(stack.size() + 1);
  }
  const bool stream = name.starts_with("stream.");
  if (!stream && !name.starts_with("blocks.")) return place;
  name.remove_prefix(7);
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), place.layer);
  if (error != std::errc()) return {place.stack, -1, {}};
  name.remove_prefix(static_cast<std::size_t>(end - name.data()));
  place.part = stream ? "stream" : name.substr(std::min<std::size_t>(1, name.size()));
  return place;
}

int Graph::add_param(Param param) {
  params.push_back(std::move(param));
  return static_cast<int>(params.size()) - 1;
}

int Graph::add_node(std::string name, AnyOp op, std::vector<int> inputs, std::vector<ParamUse> uses) {
  const auto expected = std::visit([](const auto& o) { return o.params(); }, op);
  const int wanted = std::visit([](const auto& o) { return o.inputs(); }, op);
  STEPZERO_CHECK(wanted == static_cast<int>(inputs.size()));
  STEPZERO_CHECK(expected.size() == uses.size());
  for (std::size_t i = 0; i < uses.size(); ++i) {
    STEPZERO_CHECK(uses[i].rows == expected[i].rows && uses[i].cols == expected[i].cols);
  }
  for (const int input : inputs) STEPZERO_CHECK(input >= 0 && input < static_cast<int>(nodes.size()));
  nodes.push_back({std::move(name), std::move(op), std::move(inputs), std::move(uses)});
  return static_cast<int>(nodes.size()) - 1;
}

std::vector<Index> Graph::rows(const Batch& batch) const {
  std::vector<Index> list;
  for (const Node& node : nodes) {
    const Index before = node.inputs.empty() ? batch.tokens() : list[static_cast<std::size_t>(node.inputs[0])];
    list.push_back(std::visit([&](const auto& op) { return rows_after(op, batch, before); }, node.op));
  }
  return list;
}

ParamUse Graph::whole(int param) const {
  const Param& p = params[static_cast<std::size_t>(param)];
  return {param, 0, 0, p.rows(), p.cols()};
}

Index Graph::parameter_count() const {
  Index total = 0;
  for (const Param& p : params) total += p.size();
  return total;
}

Index Graph::trainable_count() const {
  Index total = 0;
  for (const Param& p : params) total += p.frozen ? 0 : p.size();
  return total;
}

int Graph::find_node(const std::string& name) const {
  const auto it = std::ranges::find(nodes, name, &Node::name);
  return it == nodes.end() ? -1 : static_cast<int>(it - nodes.begin());
}

}  // namespace stepzero
