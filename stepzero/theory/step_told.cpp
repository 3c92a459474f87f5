#include "stepzero/theory/step_told.hpp"

#include <algorithm>
#include <cmath>

namespace stepzero {

StepTold::StepTold(const Graph& graph, const Assignment& laws) : graph_(graph), sums_(graph.params.size()) {
  for (std::size_t k = 0; k < graph.params.size(); ++k) {
    const double square = laws.std(k) * laws.std(k) + laws.mean(k) * laws.mean(k);
    weights_.push_back(std::sqrt(static_cast<double>(graph.params[k].size()) * square));
  }
}

void StepTold::add(std::size_t i, const std::vector<ParameterMove>& list) {
  const Node& node = graph_.nodes[i];
  for (std::size_t k = 0; k < list.size() && k < node.params.size(); ++k) {
    Sums& to = sums_[static_cast<std::size_t>(node.params[k].param)];
    // a tensor that the node uses in pieces makes a part of its channels by each
    const auto uses = std::ranges::count(node.params, node.params[k].param, &ParamUse::param);
    const double entries = static_cast<double>(channels_of(node.op)) / static_cast<double>(uses),
                 size = static_cast<double>(node.params[k].rows * node.params[k].cols);
    to.norm2 += list[k].norm2;
    to.decrease += list[k].decrease;
    to.squares += list[k].direct * entries;
    to.entries += entries;
    if (list[k].below >= 0) to.below += list[k].below * size, to.numbers += size;
    to.parts.emplace_back(i, list[k].decrease);
  }
}

void StepTold::refine(std::size_t i, const Mover& mover, double decrease, double direct, StepSignal& step) {
  if (!mover.matrix || !(decrease > 0)) return;
  Sums& to = sums_[static_cast<std::size_t>(graph_.nodes[i].params[mover.matrix->param].param)];
  const Update::Rule rule = mover.matrix->weight.rule;
  const double told = mover.matrix->direct.decrease;
  // of SGD the norm of the gradient is known better
  const double known = rule == Update::Rule::sgd ? told / decrease : 1;
  if (rule != Update::Rule::polar)
    to.squares += (known * direct - mover.params[mover.matrix->param].direct) * static_cast<double>(channels_of(graph_.nodes[i].op));
  if (rule != Update::Rule::polar) {
    const double rate = mover.matrix->weight.rate, rate_b = mover.matrix->bias.rate;
    const double of_bias = mover.matrix->of_bias.size(mover.matrix->use.G, mover.matrix->use.n_out).trace() /
                           static_cast<double>(mover.matrix->use.G.tokens());
    step.wires[i].direct.predicted = std::sqrt(std::max(rate * rate * known * direct + rate_b * rate_b * of_bias, 0.0));
  }
  if (rule == Update::Rule::sgd) return;
  double before = 0;
  for (const auto& [node, part] : to.parts) before += node == i ? part : 0;
  to.decrease += decrease - before;
  for (auto& [node, part] : to.parts) {
    if (node == i && before > 0) part *= decrease / before;
  }
}

StepTold::BelowEps StepTold::tell(const std::vector<Update>& updates, StepSignal& step) const {
  BelowEps out;
  double total = 0, below = 0, numbers = 0;
  for (std::size_t k = 0; k < sums_.size(); ++k) {
    const Sums& m = sums_[k];
    const Update& u = updates[k];
    StepSignal::Parameter& to = step.parameters[k];
    out.of_each.emplace_back();
    if (graph_.params[k].frozen || m.parts.empty()) continue;
    to.update_norm.predicted = u.rate * std::sqrt(m.norm2 + u.decay * u.decay * weights_[k] * weights_[k]);
    if (weights_[k] > 0) to.relative.predicted = *to.update_norm.predicted / weights_[k];
    to.direct_change.predicted = u.rate * std::sqrt(std::max(m.squares, 0.0) / m.entries);
    to.decrease.predicted = u.rate * m.decrease;
    total += u.rate * m.decrease;
    if (m.numbers > 0) {
      out.of_each.back() = m.below / m.numbers;
      below += m.below;
      numbers += m.numbers;
    }
  }
  out.of_all = numbers > 0 ? below / numbers : 0;
  step.first_order.predicted = -total;
  return out;
}

}  // namespace stepzero
