#include "stepzero/theory/step_parts.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "stepzero/graph/sources.hpp"
#include "stepzero/ops/move/heads.hpp"
#include "stepzero/ops/move/pointwise.hpp"
#include "stepzero/ops/move/rules.hpp"

namespace stepzero {

namespace {

class Parts {
 public:
  explicit Parts(const Graph& graph) : graph_(graph), readers_(graph.nodes.size()), taken_(graph.nodes.size(), false) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const int wire : graph.nodes[i].inputs) readers_[static_cast<std::size_t>(wire)].push_back(i);
    }
  }

  Expected<std::vector<StepPart>> run() {
    std::vector<StepPart> parts;
    const std::size_t last = graph_.nodes.size() - 1;
    if (const auto covered = check_sources(graph_); !covered) return std::unexpected(covered.error());
    if (shares_values(graph_))
      return fail("the first step of several maps over the same values is not predicted", "measure MODEL --steps 1 takes it");
    for (const Node& node : graph_.nodes) {
      if (const std::string why = not_moved(node.op); !why.empty())
        return fail(fmt::format("the first step of {} ({}) is not predicted", node.name, why), "measure MODEL --steps 1 takes it");
    }
    if (!std::holds_alternative<CrossEntropy>(graph_.nodes[last].op))
      return fail(fmt::format("the first step of {} is not predicted", graph_.nodes[last].name));
    parts.push_back(logits(last));
    const Node& head = graph_.nodes[parts[0].nodes.front()];
    if (!std::holds_alternative<Linear>(head.op) || std::get<Linear>(head.op).pieces != 1)
      return fail(fmt::format("the first step of {} is not predicted: no matrix makes its logits", head.name));
    for (std::size_t i = last; i-- > 0;) {
      if (taken_[i]) continue;
      const AnyOp& op = graph_.nodes[i].op;
      if (std::holds_alternative<Attention>(op)) {
        parts.push_back(chain(i, StepPart::Kind::heads, [](const AnyOp& any) { return for_heads(any, 1).has_value(); }));
      } else if (std::holds_alternative<Experts>(op)) {
        parts.push_back(chain(i, StepPart::Kind::experts, [](const AnyOp&) { return false; }));
      } else if (pointwise(op, 1)) {
        parts.push_back(chain(i, StepPart::Kind::pointwise, [](const AnyOp& any) { return pointwise(any, 1).has_value(); }));
      } else if (for_heads(op, 1)) {
        return fail(fmt::format("the first step of {} is not predicted: no attention reads it alone", graph_.nodes[i].name));
      } else {
        taken_[i] = true;
        StepPart& part = parts.emplace_back(StepPart{StepPart::Kind::single, {i}, {}});
        fill(part);
      }
    }
    std::ranges::sort(parts, {}, [](const StepPart& p) { return p.nodes.back(); });
    return parts;
  }

 private:
  void fill(StepPart& part) const {
    std::ranges::sort(part.nodes);
    for (const std::size_t i : part.nodes) {
      for (const int wire : graph_.nodes[i].inputs) {
        const auto w = static_cast<std::size_t>(wire);
        if (std::ranges::find(part.nodes, w) == part.nodes.end() && std::ranges::find(part.from, w) == part.from.end())
          part.from.push_back(w);
      }
    }
  }

  StepPart logits(std::size_t last) {
    StepPart part{StepPart::Kind::logits, {last}, {}};
    std::size_t i = static_cast<std::size_t>(graph_.nodes[last].inputs[0]);
    while (std::holds_alternative<Scale>(graph_.nodes[i].op) || std::holds_alternative<Softcap>(graph_.nodes[i].op)) {
      part.nodes.push_back(i);
      i = static_cast<std::size_t>(graph_.nodes[i].inputs[0]);
    }
    part.nodes.push_back(i);
    for (const std::size_t k : part.nodes) taken_[k] = true;
    fill(part);
    return part;
  }

  // Node i and what stands in front of it and is read by none else.
  template <class Fits>
  StepPart chain(std::size_t i, StepPart::Kind kind, const Fits& fits) {
    StepPart part{kind, {i}, {}};
    taken_[i] = true;
    for (std::size_t k = 0; k < part.nodes.size(); ++k) {
      for (const int wire : graph_.nodes[part.nodes[k]].inputs) {
        const auto w = static_cast<std::size_t>(wire);
        if (taken_[w] || readers_[w].size() != 1 || !fits(graph_.nodes[w].op)) continue;
        taken_[w] = true;
        part.nodes.push_back(w);
      }
    }
    fill(part);
    return part;
  }

  const Graph& graph_;
  std::vector<std::vector<std::size_t>> readers_;
  std::vector<bool> taken_;
};

}  // namespace

Expected<std::vector<StepPart>> step_parts(const Graph& graph) { return Parts(graph).run(); }

}  // namespace stepzero
