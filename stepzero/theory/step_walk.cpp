#include "stepzero/theory/step_walk.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/core/stop.hpp"
#include "stepzero/ops/move/experts.hpp"
#include "stepzero/ops/move/heads.hpp"
#include "stepzero/ops/move/pointwise.hpp"
#include "stepzero/ops/move/rules.hpp"

namespace stepzero {

StepWalk::StepWalk(const Graph& graph, const Batch& batch, const Assignment& laws, const std::vector<StepPart>& parts,
                   const std::vector<Update>& updates, const Signal& predicted, double effort)
    : graph_(graph),
      batch_(batch),
      parts_(parts),
      updates_(updates),
      signal_(predicted),
      effort_(effort),
      theta_(laws_of(graph, laws)),
      down_(graph.nodes.size()),
      up_(graph.nodes.size()),
      noise_up_(graph.nodes.size(), 0.0),
      told_(graph, laws),
      last_use_(graph.nodes.size(), 0),
      movers_(graph.nodes.size()),
      tied_shares_(graph.nodes.size()) {
  gather();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const std::size_t from : parts[i].from) last_use_[from] = i;
  }
  // what movers hold: some ten kernels a node
  constexpr double most = 2e9;
  const double tokens = static_cast<double>(batch.tokens());
  keeps_ = 80 * tokens * tokens * static_cast<double>(graph.nodes.size()) < most;
  look_at_head();
}

// Kernels down and up, as predict's walks have them.
void StepWalk::gather() {
  MomentWalk walk(graph_, batch_, theta_,
                  {.order = Order::fluctuations, .keep_all = true, .effort = [this](std::size_t node, bool) {
                     return Draws{node, effort_ * 2e10 / static_cast<double>(std::max<std::size_t>(1, signal_.attention.size()))};
                   }});
  walk.down([&](std::size_t i, DownWire& m) { down_[i] = m; });
  const Kernel start = Kernel::from(batch_.tokens(), [](Index, Index) { return 1.0; });
  walk.up(graph_.nodes.size() - 1, start, true, [&](std::size_t i, const UpWire& d, const Spread& spread) {
    up_[i] = d;
    noise_up_[i] = spread.noise;
  });
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    if (!std::holds_alternative<Linear>(node.op) || up_[i].G.empty()) continue;
    const auto& op = std::get<Linear>(node.op);
    TensorGram& to = grams_[node.params[0].param];
    to.uses += 1;
    to.out += static_cast<double>(op.out);
    to.G += Square::of(up_[i].G);
    to.squares += inner(Square::of(wire(node, 0).K), Square::of(up_[i].G)) * static_cast<double>(op.in);
  }
}

std::vector<double> StepWalk::first(std::vector<Factor> factors, StepSignal& step, const std::function<void(double)>& tell_share) {
  factors_ = std::move(factors);
  step_ = &step;
  changes_.assign(factors_.size(), std::vector<WireChange>(graph_.nodes.size()));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    end_if_stopped();
    take(parts_[i]);
    drop(i);
    if (tell_share) tell_share(static_cast<double>(i + 1) / static_cast<double>(parts_.size()));
  }
  prepared_ = true;
  step_ = nullptr;
  std::vector<double> losses;
  for (const auto& list : changes_) losses.push_back(list.back().loss);
  return losses;
}

std::vector<double> StepWalk::again(std::vector<Factor> factors) {
  STEPZERO_CHECK(prepared_ && keeps_);
  factors_ = std::move(factors);
  changes_.assign(factors_.size(), std::vector<WireChange>(graph_.nodes.size()));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    end_if_stopped();
    take(parts_[i]);
    drop(i);
  }
  std::vector<double> losses;
  for (const auto& list : changes_) losses.push_back(list.back().loss);
  return losses;
}

// What none reads after this part.
void StepWalk::drop(std::size_t part) {
  for (const std::size_t from : parts_[part].from) {
    if (last_use_[from] != part) continue;
    for (auto& list : changes_) list[from] = {};
    if (!keeps_) movers_[from] = {};
  }
}

void StepWalk::for_each_step(const std::function<void(std::size_t)>& f) const {
  std::size_t from = 0;
  if (factors_[0].told()) f(from++);
  parallel_for(static_cast<Index>(factors_.size() - from), [&](Index i) { f(from + static_cast<std::size_t>(i)); });
}

std::vector<Update> StepWalk::updates_of(const Node& node) const {
  std::vector<Update> list;
  for (const ParamUse& use : node.params) list.push_back(updates_[static_cast<std::size_t>(use.param)]);
  return list;
}

void StepWalk::take(const StepPart& part) {
  switch (part.kind) {
    case StepPart::Kind::single:
      return take_single(part.nodes[0]);
    case StepPart::Kind::logits:
      return take_logits(part);
    default:
      return take_chain(part);
  }
}

Mover StepWalk::prepare(std::size_t i) {
  const Node& node = graph_.nodes[i];
  std::vector<const DownWire*> x;
  for (const int w : node.inputs) x.push_back(&down_[static_cast<std::size_t>(w)]);
  const std::vector<Update> updates = updates_of(node);
  std::vector<Square> whole;
  std::vector<double> whole_out, squares;
  MoveDoor door{
      .batch = batch_, .x = x, .y = down_[i], .G = gradient(i), .theta = theta_[i], .updates = updates, .place = i, .effort = effort_};
  if (std::holds_alternative<Linear>(node.op)) {
    const auto param = static_cast<std::size_t>(node.params[0].param);
    const TensorGram& gram = grams_.at(node.params[0].param);
    door.tensor = node.params[0].param;
    door.noise_up = noise_up_[i];
    if (gram.uses > 1 && updates[0].rule == Update::Rule::polar) {
      whole.push_back(gram.G);
      whole_out.push_back(gram.out);
    }
    const double norm = signal_.parameters[param].gradient_norm.predicted.value_or(0);
    const double own = inner(Square::of(x[0]->K), Square::of(gradient(i))) * static_cast<double>(std::get<Linear>(node.op).in);
    // of all pieces, which are parts of one tensor or tensors alike
    const auto& op = std::get<Linear>(node.op);
    const auto first = node.params.begin();
    const auto same = std::ranges::count(first, first + op.pieces, node.params[0].param, &ParamUse::param);
    const double tensors = static_cast<double>(op.pieces) / static_cast<double>(same);
    squares.push_back(gram.squares > 0 ? norm * norm * tensors * own / gram.squares : 0);
    door.drawn = movers_[static_cast<std::size_t>(node.inputs[0])].drawn.get();
    door.drawn_from = movers_[static_cast<std::size_t>(node.inputs[0])].drawn_from;
  }
  if (const auto* lora = std::get_if<LoraLinear>(&node.op)) {
    door.tensor = node.params[lora->first() + 1].param;
    door.noise_up = noise_up_[i];
  }
  if (!node.inputs.empty()) door.tables = movers_[static_cast<std::size_t>(node.inputs[0])].tables;
  const OtherUses uses = other_uses(i);
  door.more = uses.squares;
  door.told_here = uses.told_here;
  door.whole = whole;
  door.whole_out = whole_out;
  door.squares = squares;
  return move_alone(node.op, door);
}

// Whether a table is the head too.
bool StepWalk::is_tied(std::size_t i) const { return graph_.nodes[i].params[0].param == graph_.nodes[tied_.head].params[0].param; }

// Of a table that is looked up at node i: by id, the square of its row's gradient by that.
std::map<std::int32_t, double> StepWalk::looked_up(std::size_t i) const {
  std::map<std::int32_t, double> rows;
  const auto& op = std::get<TokenEmbedding>(graph_.nodes[i].op);
  const auto& id = batch_.ids_for(op.encoder);
  for (Index a = 0; a < batch_.tokens(); ++a) {
    for (Index b = 0; id[a] != op.padding && b < batch_.tokens(); ++b) rows[id[a]] += id[b] == id[a] ? up_[i].G(a, b) : 0;
  }
  return rows;
}

// What a table is used for beside node i: as the head, and where it is looked up for other tokens.
StepWalk::OtherUses StepWalk::other_uses(std::size_t i) const {
  const Node& node = graph_.nodes[i];
  OtherUses out;
  if (!std::holds_alternative<TokenEmbedding>(node.op)) return out;
  std::map<std::int32_t, double> squares, uses;
  bool any = is_tied(i);
  if (any) squares = logits_.row_squares;
  for (std::size_t j = 0; j < graph_.nodes.size(); ++j) {
    const Node& other = graph_.nodes[j];
    if (j == i || !std::holds_alternative<TokenEmbedding>(other.op) || other.params[0].param != node.params[0].param || up_[j].G.empty())
      continue;
    any = true;
    for (const auto& [id, square] : looked_up(j)) squares[id] += square, uses[id] += 1;
  }
  if (!any) return out;
  for (const auto id : batch_.ids_for(std::get<TokenEmbedding>(node.op).encoder)) {
    out.squares.push_back(squares[id]);
    out.told_here.push_back(is_tied(i) ? 0 : 1 / (1 + uses[id]));  // of a table that is the head too, the head tells
  }
  return out;
}

void StepWalk::take_single(std::size_t i) {
  const Node& node = graph_.nodes[i];
  if (!prepared_) {
    movers_[i] = prepare(i);
    if (std::holds_alternative<TokenEmbedding>(node.op) && is_tied(i) && !movers_[i].tables.empty()) tied_.table = movers_[i].tables[0];
    told_.add(i, movers_[i].params);
    tied_shares_[i] = tied_.shared(graph_, down_, up_, i);
  }
  for_each_step([&](std::size_t r) {
    std::vector<const WireChange*> x;
    for (const int w : node.inputs) x.push_back(&changes_[r][static_cast<std::size_t>(w)]);
    const Square& shared = tied_shares_[i];
    changes_[r][i] =
        shared.empty() ? movers_[i].run(x, factors_[r]) : tied_.run(graph_, wire(node, 0), i, movers_[i], *x[0], shared, factors_[r]);
  });
  tell(i);
}

// What drawn channels and heads say is said once for layers that are alike: of the first, the second, the third, the fifth, ...
Likeness& StepWalk::likeness_of(const StepPart& part) {
  const Node& node = graph_.nodes[part.nodes.back()];
  const Place place = place_of(node.name);
  const auto* attention = std::get_if<Attention>(&node.op);
  const std::string name =
      place.layer < 0 ? node.name
                      : fmt::format("{} {} {} {}", kind_of(node.op), place.stack, place.part, attention != nullptr ? attention->window : 0);
  Kind& kind = kinds_[name];
  const int n = kind.seen++;
  constexpr double of_each = 2;  // with so much effort every layer is drawn
  if (kind.last == nullptr || (n & (n - 1)) == 0 || effort_ >= of_each) {
    kind.last = likenesses_.emplace_back(std::make_unique<Likeness>()).get();
    kind.last->at.resize(factors_.size());
  }
  return *kind.last;
}

std::vector<TableUse> StepWalk::tables_of(std::size_t i) const {
  std::vector<TableUse> out;
  for (const ParamUse& use : graph_.nodes[i].params) {
    const double norm = signal_.parameters[static_cast<std::size_t>(use.param)].gradient_norm.predicted.value_or(0);
    TableUse& to = out.emplace_back(TableUse{norm * norm, 0});
    for (const Node& node : graph_.nodes) to.uses += static_cast<int>(std::ranges::count(node.params, use.param, &ParamUse::param));
  }
  return out;
}

void StepWalk::prepare_chain(const StepPart& part, const std::vector<std::vector<WireChange>>& inputs) {
  std::vector<ChainNode> nodes;
  const auto place_in = [](const std::vector<std::size_t>& list, std::size_t i) {
    const auto it = std::ranges::find(list, i);
    return it == list.end() ? -1 : static_cast<int>(it - list.begin());
  };
  for (const std::size_t i : part.nodes) {
    ChainNode& node = nodes.emplace_back(ChainNode{graph_.nodes[i].op, {}, {}});
    for (const int w : graph_.nodes[i].inputs) {
      const int inside = place_in(part.nodes, static_cast<std::size_t>(w));
      node.inputs.push_back(inside >= 0 ? inside : -1 - place_in(part.from, static_cast<std::size_t>(w)));
    }
    for (const Law& law : theta_[i]) node.theta.push_back(law.mean), node.spread.push_back(std::sqrt(law.variance));
  }
  std::vector<std::vector<Update>> updates;
  for (const std::size_t i : part.nodes) updates.push_back(updates_of(graph_.nodes[i]));
  std::vector<DrawnFrom> from;
  for (const std::size_t i : part.from) {
    DrawnFrom& f = from.emplace_back(DrawnFrom{&down_[i], &gradient(i), movers_[i].matrix.get(), nullptr, i});
    if (f.matrix == nullptr) continue;
    const auto stem = static_cast<std::size_t>(graph_.nodes[i].inputs[0]);
    f.stem = &down_[stem];
    f.place = stem;
  }
  std::vector<const WireChange*> given;
  for (const WireChange& x : inputs[0]) given.push_back(&x);
  const std::size_t last = part.nodes.back();
  Likeness& alike = likeness_of(part);
  if (part.kind == StepPart::Kind::experts) {
    const ExpertsDoor door{.batch = batch_,
                           .inputs = from,
                           .theta = theta_[last],
                           .updates = updates[0],
                           .G = gradient(last),
                           .y = down_[last].K,
                           .given = given,
                           .place = last,
                           .effort = effort_};
    chains_[last] = move_experts(std::get<Experts>(graph_.nodes[last].op), door, alike);
  } else {
    chains_[last] = part.kind == StepPart::Kind::heads ? move_heads(batch_, std::move(nodes), from, updates, tables_of(last),
                                                                    gradient(last), down_[last].K, last, effort_, alike)
                                                       : move_pointwise(batch_, std::move(nodes), from, gradient(last),
                                                                        channels_of(graph_.nodes[last].op), last, effort_, given, alike);
  }
  const ChainMover& mover = chains_[last];
  movers_[last].drawn = mover.drawn;
  if (part.kind == StepPart::Kind::pointwise) {
    double noise = 0;
    for (const DrawnFrom& f : from) noise = std::max(noise, f.stem != nullptr ? f.stem->f.noise : f.wire->f.noise);
    movers_[last].drawn_from = noise;
  }
  for (std::size_t k = 0; k < part.from.size(); ++k)
    told_.refine(part.from[k], movers_[part.from[k]], mover.decreases[k], mover.directs[k], *step_);
  for (std::size_t k = 0; k < part.nodes.size(); ++k) told_.add(part.nodes[k], mover.params[k]);
}

void StepWalk::take_chain(const StepPart& part) {
  std::vector<std::vector<WireChange>> inputs(factors_.size());
  for_each_step([&](std::size_t r) {
    for (const std::size_t i : part.from)
      inputs[r].push_back(with_channels(changes_[r][i], down_[i].K, gradient(i), static_cast<double>(down_[i].width)));
  });
  const std::size_t last = part.nodes.back();
  if (!prepared_) prepare_chain(part, inputs);
  for_each_step([&](std::size_t r) {
    std::vector<const WireChange*> x;
    for (const WireChange& c : inputs[r]) x.push_back(&c);
    std::vector<WireChange> y = chains_[last].run(x, factors_[r]);
    for (std::size_t k = 0; k < part.nodes.size(); ++k) changes_[r][part.nodes[k]] = std::move(y[k]);
  });
  for (const std::size_t i : part.nodes) tell(i);
  if (step_ != nullptr && part.kind == StepPart::Kind::heads) step_->attention.at(attention_++).change.predicted = changes_[0][last].scores;
  if (!keeps_) chains_.erase(last);
}

void StepWalk::look_at_head() {
  const StepPart& part = parts_.back();
  tied_.head = part.nodes.front();
  const Node& head = graph_.nodes[tied_.head];
  const auto& op = std::get<Linear>(head.op);
  LogitsDoor door{.batch = batch_,
                  .y = wire(head, 0),
                  .z = down_[tied_.head],
                  .law = theta_[tied_.head][0],
                  .weight = updates_[static_cast<std::size_t>(head.params[0].param)],
                  .bias = op.bias ? updates_[static_cast<std::size_t>(head.params[1].param)] : Update{},
                  .vocab = op.out,
                  .noise = wire(head, 0).f.noise + wire(head, 0).f.mean_jitter(),
                  .place = tied_.head,
                  .effort = effort_};
  for (std::size_t k = 1; k + 1 < part.nodes.size(); ++k) door.after.push_back(graph_.nodes[part.nodes[k]].op);
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (!std::holds_alternative<TokenEmbedding>(graph_.nodes[i].op) || !is_tied(i) || up_[i].G.empty()) continue;
    tied_.tied = true;
    for (const auto& [id, square] : looked_up(i)) door.lookups[id] += square / static_cast<double>(down_[i].width);
  }
  logits_ = move_logits(door);
  tied_.pulls = std::move(logits_.pulls);
  const auto last = static_cast<std::size_t>(head.inputs[0]);
  tied_.stream.assign(graph_.nodes.size(), false);
  for (std::size_t i = last; !graph_.nodes[i].inputs.empty();) {
    i = static_cast<std::size_t>(graph_.nodes[i].inputs[0]);
    if (!std::holds_alternative<Residual>(graph_.nodes[i].op)) break;
    tied_.stream[i] = true;
  }
  const auto sizes_of = [&](const Kernel& K, double eps) {
    for (Index t = 0; t < K.tokens(); ++t) tied_.sizes.push_back(std::sqrt(K(t, t) + eps));
  };
  if (const auto* norm = std::get_if<LayerNorm>(&graph_.nodes[last].op))
    sizes_of(LayerNorm::centred_kernel(wire(graph_.nodes[last], 0)), norm->eps);
  if (const auto* norm = std::get_if<RmsNorm>(&graph_.nodes[last].op)) sizes_of(wire(graph_.nodes[last], 0).K, norm->eps);
}

void StepWalk::take_logits(const StepPart& part) {
  const Node& head = graph_.nodes[tied_.head];
  if (!prepared_) {
    std::vector<ParameterMove> params = {logits_.weight};
    if (std::get<Linear>(head.op).bias) params.push_back(logits_.bias);
    told_.add(tied_.head, params);
  }
  for_each_step([&](std::size_t r) {
    std::vector<WireChange> y = logits_.run(changes_[r][static_cast<std::size_t>(head.inputs[0])], factors_[r]);
    for (std::size_t k = 0; k < part.nodes.size(); ++k) changes_[r][part.nodes[k]] = std::move(y[k]);
  });
  for (const std::size_t i : part.nodes) tell(i);
}

void StepWalk::tell(std::size_t i) {
  if (step_ == nullptr || i >= step_->wires.size()) return;
  const WireChange& c = changes_[0][i];
  StepSignal::Wire& to = step_->wires[i];
  const Kernel& K = down_[i].K;
  const double tokens = static_cast<double>(K.tokens());
  const double square = c.size.trace() / tokens, was = K.trace() / tokens;
  to.change.predicted = std::sqrt(std::max(square, 0.0));
  if (was > 0) to.relative.predicted = std::sqrt(std::max(square, 0.0) / was);
  const Node& node = graph_.nodes[i];
  if (node.params.empty() || i == tied_.head) return;
  to.direct.predicted = std::sqrt(std::max(c.direct, 0.0));
  if (!node.inputs.empty()) to.carried.predicted = std::sqrt(std::max(c.carried, 0.0));
}

}  // namespace stepzero
