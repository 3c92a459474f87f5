#include "stepzero/theory/direct_effects.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/core/stop.hpp"
#include "stepzero/graph/questions.hpp"
#include "stepzero/ops/move/direct.hpp"
#include "stepzero/ops/move/tables.hpp"
#include "stepzero/theory/moment_walk.hpp"
#include "stepzero/theory/step_updates.hpp"

namespace stepzero {

namespace {

double mean_square(const Square& size) { return size.trace() / static_cast<double>(size.tokens()); }

double of_matrix(const Update& u, const Linear& op, const DownWire& x, const Kernel& G) {
  if (!u.moves()) return 0;
  const double n_out = static_cast<double>(op.out);
  const MatrixUse use{.K = Square::of(x.K),
                      .G = Square::of(G),
                      .whole = {},
                      .n_in = static_cast<double>(op.in),
                      .n_out = n_out,
                      .whole_out = n_out,
                      .noise = std::max(x.f.noise + x.f.mean_jitter(), 1 / static_cast<double>(op.in))};
  return u.rate * u.rate * mean_square(direct(u, use).size(use.G, n_out));
}

// A bias gets the sum of the gradient over tokens.
double of_bias(const Update& u, const Kernel& G, double n_out) {
  if (!u.moves()) return 0;
  const double square = std::max(G.sum(), 0.0) / n_out;
  const double size = u.rule == Update::Rule::sgd ? u.times * u.times * square
                      : square > 0                ? numbers_at(u.eps / std::sqrt(square)).second
                                                  : 0;
  return u.rate * u.rate * size;
}

template <class Op>
double of_table(const Op& op, const MoveDoor& door) {
  if (!door.updates[0].moves()) return 0;
  const Mover mover = move(op, door);
  return mover.params.empty() ? 0 : door.updates[0].rate * door.updates[0].rate * mover.params[0].direct;
}

}  // namespace

std::vector<std::optional<double>> direct_effects(const Graph& graph, const Batch& batch, const Assignment& laws,
                                                  const DirectOptions& options) {
  const NodeLaws theta = laws_of(graph, laws);
  const auto attentions = std::ranges::count_if(graph.nodes, [](const Node& n) { return has_summary(n.op); });
  const double heads = std::max(1.0, static_cast<double>(attentions));
  MomentWalk walk(graph, batch, theta,
                  {.order = options.order, .effort = [&](std::size_t node, bool) { return Draws{node, options.effort * 2e10 / heads}; }});
  std::vector<DownWire> down(graph.nodes.size());
  std::vector<Kernel> up(graph.nodes.size());
  walk.down([&](std::size_t i, DownWire& m) { down[i] = m; });
  const Kernel start = Kernel::from(batch.tokens(), [](Index, Index) { return 1.0; });
  walk.up(graph.nodes.size() - 1, start, true, [&](std::size_t i, const UpWire& d, const Spread&) { up[i] = d.G; });
  double squares = 0;
  for (const double s : walk.squares()) squares += s;
  const std::vector<Update> first = first_updates(graph, options.optimizer, options.rates, std::sqrt(squares));
  std::vector<std::optional<double>> out(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    end_if_stopped();
    const Node& node = graph.nodes[i];
    if (node.params.empty() || up[i].empty()) continue;
    std::vector<Update> updates;
    for (const ParamUse& use : node.params) updates.push_back(first[static_cast<std::size_t>(use.param)]);
    std::vector<const DownWire*> x;
    for (const int wire : node.inputs) x.push_back(&down[static_cast<std::size_t>(wire)]);
    const MoveDoor door{.batch = batch, .x = x, .y = down[i], .G = up[i], .theta = theta[i], .updates = updates, .place = i};
    double square = -1;
    if (const auto* op = std::get_if<Linear>(&node.op)) {
      square = of_matrix(updates[0], *op, *x[0], up[i]);
      if (op->bias) square += of_bias(updates[static_cast<std::size_t>(op->pieces)], up[i], static_cast<double>(op->out));
    } else if (const auto* table = std::get_if<TokenEmbedding>(&node.op)) {
      square = of_table(*table, door);
    }
    if (square > 0) out[i] = std::sqrt(square);
  }
  return out;
}

}  // namespace stepzero
