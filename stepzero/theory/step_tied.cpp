#include "stepzero/theory/step_tied.hpp"

namespace stepzero {

Square TiedStep::shared(const Graph& graph, const std::vector<DownWire>& down, const std::vector<UpWire>& up, std::size_t i) const {
  const auto wire = [&](const Node& node, std::size_t k) -> const DownWire& { return down[static_cast<std::size_t>(node.inputs[k])]; };
  const Node& node = graph.nodes[i];
  const bool norm = std::holds_alternative<LayerNorm>(node.op) || std::holds_alternative<RmsNorm>(node.op);
  if (!norm || !tied || sizes.empty() || !stream[static_cast<std::size_t>(node.inputs[0])]) return {};
  const DownWire& x = wire(node, 0);
  const DownWire& y = wire(graph.nodes[head], 0);
  const auto& gradient = up[static_cast<std::size_t>(graph.nodes[head].inputs[0])].tied;
  if (x.own.empty() || !gradient || !gradient->is_shared()) return {};
  const double n = static_cast<double>(x.width);
  const Square R = Square::from(x.K.tokens(), [&](Index t, Index s) {
    const double r_t = sizes[static_cast<std::size_t>(t)], r_s = sizes[static_cast<std::size_t>(s)];
    const double along = y.K(t, t) > 0 ? gradient->shared_at(t, t) * x.K(t, s) / (y.K(t, t) * r_t) : 0;
    return (gradient->shared_at(t, s) * r_s - along) / r_t;
  });
  return (1 / n) * (R * inverse_of(Square::of(x.K)));
}

WireChange TiedStep::run(const Graph& graph, const DownWire& m, std::size_t i, const Mover& mover, const WireChange& before,
                         const Square& shared, const Factor& factor) const {
  WireChange x = before;
  const double rate = factor.of(table.update);
  const Square pulled = Square::from(shared.tokens(), [&](Index t, Index u) {
    const auto j = static_cast<std::size_t>(t);
    const double c = table.scale.empty() ? table.update.times : table.scale[j];
    return rate * c * m.own_at(t) * pulls(t, u) / sizes[static_cast<std::size_t>(u)];
  });
  const Square more = -1.0 * (x.response * shared + pulled);
  x.stretch += more;
  x.apart = {};
  const WireChange* const list[] = {&x};
  WireChange y = mover.run(list, factor);
  if (static_cast<int>(i) != graph.nodes[head].inputs[0]) return y;
  // the gradient of the logits says it there
  const WireChange* const plain[] = {&before};
  y.stretch = mover.run(plain, factor).stretch;
  y.apart = {};
  return y;
}

}  // namespace stepzero
