#include "stepzero/theory/predict_step.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/core/stop.hpp"
#include "stepzero/ops/move/heads.hpp"
#include "stepzero/ops/move/linear.hpp"
#include "stepzero/ops/move/logits.hpp"
#include "stepzero/ops/move/norm.hpp"
#include "stepzero/ops/move/pointwise.hpp"
#include "stepzero/ops/move/sums.hpp"
#include "stepzero/ops/move/tables.hpp"
#include "stepzero/signal/describe.hpp"
#include "stepzero/theory/moment_walk.hpp"
#include "stepzero/theory/predict.hpp"
#include "stepzero/theory/step_parts.hpp"

namespace stepzero {

namespace {

// An optimizer's first update of one tensor. shrink: what clipping leaves of the gradient.
Update update_of(const TensorPlan& plan, bool frozen, double shrink) {
  Update u{.rate = plan.rate.rate, .decay = plan.rate.decay};
  if (frozen) return u;
  const auto first = [](const auto& rule) { return rule.nesterov ? 1 + rule.momentum : 1; };
  if (const auto* sgd = std::get_if<Sgd>(&plan.rule)) {
    u.rule = Update::Rule::sgd;
    u.times = shrink * first(*sgd);
  } else if (std::holds_alternative<AdamW>(plan.rule)) {
    u.rule = Update::Rule::sign;
    u.eps = plan.rate.eps / shrink;
  } else if (std::holds_alternative<Lion>(plan.rule)) {
    u.rule = Update::Rule::sign;
  } else {
    const auto& muon = std::get<Muon>(plan.rule);
    u.rule = Update::Rule::polar;
    u.newton_schulz = muon.newton_schulz;
    u.times = muon.scale;
  }
  return u;
}

class StepWalk {
 public:
  StepWalk(const Graph& graph, const Batch& batch, const Assignment& laws, const PredictStepOptions& options, Signal& signal)
      : graph_(graph),
        batch_(batch),
        options_(options),
        signal_(signal),
        theta_(laws_of(graph, laws)),
        down_(graph.nodes.size()),
        up_(graph.nodes.size()),
        noise_up_(graph.nodes.size(), 0.0),
        movers_(graph.nodes.size()),
        updates_(graph.params.size()),
        moves_(graph.params.size()) {
    MomentWalk walk(graph, batch, theta_,
                    {.order = Order::fluctuations, .keep_all = true, .effort = [this](std::size_t node, bool) {
                       return Draws{node, options_.effort * 2e10 / static_cast<double>(std::max<std::size_t>(1, signal_.attention.size()))};
                     }});
    walk.down([&](std::size_t i, DownWire& m) { down_[i] = m; });
    const Kernel start = Kernel::from(batch.tokens(), [](Index, Index) { return 1.0; });
    walk.up(graph.nodes.size() - 1, start, true, [&](std::size_t i, const UpWire& d, const Spread& spread) {
      up_[i] = d;
      noise_up_[i] = spread.noise;
    });
    const std::vector<TensorPlan> plans = plan_tensors(graph, options.optimizer, options.rates);
    const double shrink = clipped_share(*signal.gradient_norm.predicted, options.optimizer.clip);
    for (std::size_t k = 0; k < plans.size(); ++k) updates_[k] = update_of(plans[k], graph.params[k].frozen, shrink);
    for (std::size_t k = 0; k < graph.params.size(); ++k) {
      const Param& param = graph.params[k];
      weights_.push_back(std::sqrt(static_cast<double>(param.size()) * (laws.std(k) * laws.std(k) + laws.mean(k) * laws.mean(k))));
    }
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      if (!std::holds_alternative<Linear>(graph.nodes[i].op) || up_[i].G.empty()) continue;
      const auto& op = std::get<Linear>(graph.nodes[i].op);
      TensorGram& to = grams_[graph.nodes[i].params[0].param];
      to.uses += 1;
      to.out += static_cast<double>(op.out);
      to.G += Square::of(up_[i].G);
      to.squares += inner(Square::of(wire(graph.nodes[i], 0).K), Square::of(up_[i].G)) * static_cast<double>(op.in);
    }
  }

  void run(const std::vector<StepPart>& parts, StepSignal& step, PredictedStep& out) {
    // the given rates, those that are searched, and one that is so small that the loss is straight
    factors_ = {1.0};
    factors_.insert(factors_.end(), options_.factors.begin(), options_.factors.end());
    factors_.push_back(1e-4 / std::max(rough_decrease(), 1e-12));
    walk(parts, step);
    tell_parameters(step, out);
    tell_losses(step);
  }

  // The group of tensors without whose updates the loss at this factor is lowest.
  std::string limited_by(const std::vector<StepPart>& parts, double factor, StepSignal scratch) {
    std::map<std::string, std::vector<std::size_t>> groups;
    for (std::size_t k = 0; k < updates_.size(); ++k) {
      if (updates_[k].moves()) groups[group_of(graph_.params[k].role)].push_back(k);
    }
    factors_ = {factor};
    const std::vector<Update> all = updates_;
    std::string worst;
    double lowest = std::numeric_limits<double>::infinity();
    for (const auto& [name, members] : groups) {
      for (const std::size_t k : members) updates_[k].rate = 0;
      movers_.assign(graph_.nodes.size(), {});
      last_sizes_.clear();
      tied_ = false;
      attention_ = 0;
      table_ = {};
      walk(parts, scratch);
      const double loss = changes_[0].back().loss;
      if (loss < lowest) lowest = loss, worst = name;
      updates_ = all;
    }
    return worst;
  }

 private:
  static const char* group_of(Role role) {
    switch (role) {
      case Role::token_embedding:
      case Role::position_embedding:
        return "embeddings";
      case Role::query:
      case Role::key:
      case Role::value:
      case Role::query_key_value:
        return "queries, keys and values";
      case Role::attention_out:
        return "attention outputs";
      case Role::ffn_in:
      case Role::ffn_gate:
        return "feed-forward inputs";
      case Role::ffn_out:
        return "feed-forward outputs";
      case Role::head:
        return "head";
      case Role::gain:
      case Role::bias:
      case Role::branch_gain:
        return "gains and biases";
      default:
        return "other matrices";
    }
  }

  void walk(const std::vector<StepPart>& parts, StepSignal& step) {
    changes_.assign(factors_.size(), std::vector<WireChange>(graph_.nodes.size()));
    prepare_logits(parts.back());
    std::vector<std::size_t> last_use(graph_.nodes.size(), 0);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (const std::size_t from : parts[i].from) last_use[from] = i;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      end_if_stopped();
      take(parts[i], step);
      for (const std::size_t from : parts[i].from) {
        if (last_use[from] != i) continue;
        for (auto& list : changes_) list[from] = {};
        movers_[from] = {};
      }
      if (options_.progress) options_.progress(static_cast<double>(i + 1) / static_cast<double>(parts.size()));
    }
  }

  struct TensorGram {
    int uses = 0;
    double out = 0, squares = 0;
    Square G;
  };

  [[nodiscard]] const DownWire& wire(const Node& node, std::size_t k) const { return down_[static_cast<std::size_t>(node.inputs[k])]; }
  [[nodiscard]] const Kernel& gradient(std::size_t i) const { return up_[i].G; }

  [[nodiscard]] double rough_decrease() const {
    double sum = 0;
    for (std::size_t k = 0; k < updates_.size(); ++k) {
      const double norm = signal_.parameters[k].gradient_norm.predicted.value_or(0);
      const Update& u = updates_[k];
      const double entries = static_cast<double>(graph_.params[k].size());
      sum += u.rate * norm * (u.rule == Update::Rule::sgd ? u.times * norm : u.rule == Update::Rule::sign ? std::sqrt(entries) : u.times);
    }
    return sum;
  }

  [[nodiscard]] std::vector<Update> updates_of(const Node& node) const {
    std::vector<Update> list;
    for (const ParamUse& use : node.params) list.push_back(updates_[static_cast<std::size_t>(use.param)]);
    return list;
  }

  void take(const StepPart& part, StepSignal& step) {
    switch (part.kind) {
      case StepPart::Kind::single:
        return take_single(part.nodes[0], step);
      case StepPart::Kind::logits:
        return take_logits(part, step);
      default:
        return take_chain(part, step);
    }
  }

  Mover prepare(std::size_t i) {
    const Node& node = graph_.nodes[i];
    std::vector<const DownWire*> x;
    for (const int w : node.inputs) x.push_back(&down_[static_cast<std::size_t>(w)]);
    const std::vector<Update> updates = updates_of(node);
    std::vector<Square> whole;
    std::vector<double> whole_out, squares;
    MoveDoor door{.batch = batch_,
                  .x = x,
                  .y = down_[i],
                  .G = gradient(i),
                  .theta = theta_[i],
                  .updates = updates,
                  .place = i,
                  .effort = options_.effort};
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
      squares.push_back(gram.squares > 0 ? norm * norm * own / gram.squares : 0);
      door.drawn = movers_[static_cast<std::size_t>(node.inputs[0])].drawn.get();
      door.drawn_from = movers_[static_cast<std::size_t>(node.inputs[0])].drawn_from;
    }
    if (!node.inputs.empty()) door.tables = movers_[static_cast<std::size_t>(node.inputs[0])].tables;
    if (std::holds_alternative<TokenEmbedding>(node.op) && tied(i)) door.more = logits_.row_squares;
    door.whole = whole;
    door.whole_out = whole_out;
    door.squares = squares;
    return std::visit(
        [&](const auto& op) -> Mover {
          if constexpr (requires { move(op, door); }) return move(op, door);
          return {};
        },
        node.op);
  }

  // A head that is the token table pulls at the rows that the stream holds, and its gradient knows of them:
  //     Y gets - response R / n - C K,  R_ts = (S_ts r_s - S_tt K_ts / (K_y,tt r_t)) / r_t,  C_tu = rate c_t D_z[u, id_t] / r_u
  // with y = x / r the last norm, S what the gradient shares with the table, c_t the sign's factor. For norms that read a stream: here R
  // K^-1 / n.
  [[nodiscard]] Square tied_part(std::size_t i) const {
    const Node& node = graph_.nodes[i];
    const bool norm = std::holds_alternative<LayerNorm>(node.op) || std::holds_alternative<RmsNorm>(node.op);
    if (!norm || !tied_ || last_sizes_.empty()) return {};
    const DownWire& x = wire(node, 0);
    const DownWire& y = wire(graph_.nodes[head_], 0);
    const auto& head = up_[static_cast<std::size_t>(graph_.nodes[head_].inputs[0])].tied;
    if (x.own.empty() || !head || !head->is_shared() ||
        !std::holds_alternative<Residual>(graph_.nodes[static_cast<std::size_t>(node.inputs[0])].op))
      return {};
    const double n = static_cast<double>(x.width);
    const Square R = Square::from(x.K.tokens(), [&](Index t, Index s) {
      const double r_t = last_sizes_[static_cast<std::size_t>(t)], r_s = last_sizes_[static_cast<std::size_t>(s)];
      const double along = y.K(t, t) > 0 ? head->shared_at(t, t) * x.K(t, s) / (y.K(t, t) * r_t) : 0;
      return (head->shared_at(t, s) * r_s - along) / r_t;
    });
    return (1 / n) * (R * inverse_of(Square::of(x.K)));
  }

  WireChange run_tied(std::size_t i, const WireChange& before, const Square& shared, double factor) {
    const DownWire& m = wire(graph_.nodes[i], 0);
    WireChange x = before;
    const double rate = factor * table_.update.rate;
    const Square pulled = Square::from(shared.tokens(), [&](Index t, Index u) {
      const auto j = static_cast<std::size_t>(t);
      const double c = table_.scale.empty() ? table_.update.times : table_.scale[j];
      return rate * c * m.own_at(t) * logits_.pulls(t, u) / last_sizes_[static_cast<std::size_t>(u)];
    });
    const Square more = -1.0 * (x.response * shared + pulled);
    x.stretch += more;
    const WireChange* const list[] = {&x};
    WireChange y = movers_[i].run(list, factor);
    if (static_cast<int>(i) != graph_.nodes[head_].inputs[0]) return y;
    // the gradient of the logits says it there
    const WireChange* const plain[] = {&before};
    y.stretch = movers_[i].run(plain, factor).stretch;
    return y;
  }

  // Whether a table is the head too.
  [[nodiscard]] bool tied(std::size_t i) const { return graph_.nodes[i].params[0].param == graph_.nodes[head_].params[0].param; }

  void take_single(std::size_t i, StepSignal& step) {
    const Node& node = graph_.nodes[i];
    movers_[i] = prepare(i);
    if (std::holds_alternative<TokenEmbedding>(node.op) && tied(i) && !movers_[i].tables.empty()) table_ = movers_[i].tables[0];
    tell(i, movers_[i].params);
    const Square tied = tied_part(i);
    for (std::size_t r = 0; r < factors_.size(); ++r) {
      std::vector<const WireChange*> x;
      for (const int w : node.inputs) x.push_back(&changes_[r][static_cast<std::size_t>(w)]);
      if (tied.empty()) {
        changes_[r][i] = movers_[i].run(x, factors_[r]);
      } else {
        changes_[r][i] = run_tied(i, *x[0], tied, factors_[r]);
      }
    }
    tell(i, step);
  }

  void take_chain(const StepPart& part, StepSignal& step) {
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
    }
    std::vector<std::vector<Update>> updates;
    for (std::size_t k = 0; k < part.nodes.size(); ++k) {
      updates.push_back(updates_of(graph_.nodes[part.nodes[k]]));
      for (const Law& law : theta_[part.nodes[k]]) nodes[k].theta.push_back(law.mean);
    }
    std::vector<DrawnFrom> from;
    for (const std::size_t i : part.from) {
      DrawnFrom& f = from.emplace_back(DrawnFrom{&down_[i], &gradient(i), movers_[i].matrix.get(), nullptr, i});
      if (f.matrix == nullptr) continue;
      const auto stem = static_cast<std::size_t>(graph_.nodes[i].inputs[0]);
      f.stem = &down_[stem];
      f.place = stem;
    }
    const std::size_t last = part.nodes.back();
    const ChainMover mover =
        part.kind == StepPart::Kind::heads
            ? move_heads(batch_, std::move(nodes), from, updates, gradient(last), last, options_.effort)
            : move_pointwise(batch_, std::move(nodes), from, gradient(last), channels_of(graph_.nodes[last].op), last, options_.effort);
    movers_[last].drawn = mover.drawn;
    if (part.kind == StepPart::Kind::pointwise) {
      double noise = 0;
      for (const DrawnFrom& f : from) noise = std::max(noise, f.stem != nullptr ? f.stem->f.noise : f.wire->f.noise);
      movers_[last].drawn_from = noise;
    }
    for (std::size_t k = 0; k < part.from.size(); ++k) refine(part.from[k], mover.decreases[k], mover.directs[k], step);
    for (std::size_t r = 0; r < factors_.size(); ++r) {
      std::vector<WireChange> inputs;
      std::vector<const WireChange*> x;
      for (std::size_t k = 0; k < part.from.size(); ++k) {
        const std::size_t i = part.from[k];
        inputs.push_back(with_channels(changes_[r][i], down_[i].K, gradient(i), static_cast<double>(down_[i].width)));
      }
      for (const WireChange& c : inputs) x.push_back(&c);
      std::vector<WireChange> y = mover.run(x, factors_[r]);
      for (std::size_t k = 0; k < part.nodes.size(); ++k) changes_[r][part.nodes[k]] = std::move(y[k]);
    }
    for (std::size_t k = 0; k < part.nodes.size(); ++k) {
      tell(part.nodes[k], mover.params[k]);
      tell(part.nodes[k], step);
    }
    if (part.kind == StepPart::Kind::heads) step.attention.at(attention_++).change.predicted = changes_[0][last].scores;
  }

  void prepare_logits(const StepPart& part) {
    head_ = part.nodes.front();
    const Node& head = graph_.nodes[head_];
    const auto& op = std::get<Linear>(head.op);
    LogitsDoor door{.batch = batch_,
                    .y = wire(head, 0),
                    .z = down_[head_],
                    .law = theta_[head_][0],
                    .weight = updates_[static_cast<std::size_t>(head.params[0].param)],
                    .bias = op.bias ? updates_[static_cast<std::size_t>(head.params[1].param)] : Update{},
                    .vocab = op.out,
                    .noise = wire(head, 0).f.noise + wire(head, 0).f.mean_jitter(),
                    .place = head_,
                    .effort = options_.effort};
    for (std::size_t k = 1; k + 1 < part.nodes.size(); ++k) door.after.push_back(graph_.nodes[part.nodes[k]].op);
    std::vector<double> rows;
    for (std::size_t i = 0; i < graph_.nodes.size() && !tied_; ++i) {
      if (!std::holds_alternative<TokenEmbedding>(graph_.nodes[i].op) || !tied(i) || up_[i].G.empty()) continue;
      tied_ = true;
      const auto& id = batch_.ids_for(std::get<TokenEmbedding>(graph_.nodes[i].op).encoder);
      for (Index t = 0; t < batch_.tokens(); ++t) {
        double sum = 0;
        for (Index a = 0; a < batch_.tokens(); ++a) {
          for (Index b = 0; id[a] == id[t] && b < batch_.tokens(); ++b) sum += id[b] == id[t] ? up_[i].G(a, b) : 0;
        }
        rows.push_back(sum / static_cast<double>(down_[i].width));
      }
    }
    door.rows = rows;
    logits_ = move_logits(door);
    const auto last = static_cast<std::size_t>(head.inputs[0]);
    const auto sizes_of = [&](const Kernel& K, double eps) {
      for (Index t = 0; t < K.tokens(); ++t) last_sizes_.push_back(std::sqrt(K(t, t) + eps));
    };
    if (const auto* norm = std::get_if<LayerNorm>(&graph_.nodes[last].op))
      sizes_of(LayerNorm::centred_kernel(wire(graph_.nodes[last], 0)), norm->eps);
    if (const auto* norm = std::get_if<RmsNorm>(&graph_.nodes[last].op)) sizes_of(wire(graph_.nodes[last], 0).K, norm->eps);
  }

  void take_logits(const StepPart& part, StepSignal& step) {
    const Node& head = graph_.nodes[head_];
    std::vector<ParameterMove> params = {logits_.weight};
    if (std::get<Linear>(head.op).bias) params.push_back(logits_.bias);
    tell(head_, params);
    for (std::size_t r = 0; r < factors_.size(); ++r) {
      std::vector<WireChange> y = logits_.run(changes_[r][static_cast<std::size_t>(head.inputs[0])], factors_[r]);
      for (std::size_t k = 0; k < part.nodes.size(); ++k) changes_[r][part.nodes[k]] = std::move(y[k]);
    }
    for (const std::size_t i : part.nodes) tell(i, step);
  }

  void tell(std::size_t i, const std::vector<ParameterMove>& list) {
    const Node& node = graph_.nodes[i];
    for (std::size_t k = 0; k < list.size() && k < node.params.size(); ++k) {
      Told& to = moves_[static_cast<std::size_t>(node.params[k].param)];
      const double entries = static_cast<double>(channels_of(node.op)),
                   size = static_cast<double>(node.params[k].rows * node.params[k].cols);
      to.norm2 += list[k].norm2;
      to.decrease += list[k].decrease;
      to.squares += list[k].direct * entries;
      to.entries += entries;
      if (list[k].below >= 0) to.below += list[k].below * size, to.numbers += size;
      to.parts.emplace_back(i, list[k].decrease);
    }
  }

  // What drawn channels say of a matrix in front of them.
  void refine(std::size_t i, double decrease, double direct, StepSignal& step) {
    if (!movers_[i].matrix || !(decrease > 0)) return;
    Told& to = moves_[static_cast<std::size_t>(graph_.nodes[i].params[0].param)];
    const Update::Rule rule = movers_[i].matrix->weight.rule;
    const double told = movers_[i].matrix->direct.decrease;
    // of SGD the norm of the gradient is known better
    const double known = rule == Update::Rule::sgd ? told / decrease : 1;
    if (rule != Update::Rule::polar)
      to.squares += (known * direct - movers_[i].params[0].direct) * static_cast<double>(channels_of(graph_.nodes[i].op));
    if (rule != Update::Rule::polar) {
      const double rate = movers_[i].matrix->weight.rate, rate_b = movers_[i].matrix->bias.rate;
      const double of_bias = movers_[i].params.size() > 1 ? movers_[i].params[1].direct : 0;
      step.wires[i].direct.predicted = std::sqrt(std::max(rate * rate * known * direct + rate_b * rate_b * of_bias, 0.0));
    }
    if (rule == Update::Rule::sgd) return;
    for (auto& [node, old] : to.parts) {
      if (node != i) continue;
      to.decrease += decrease - old;
      old = decrease;
    }
  }

  void tell(std::size_t i, StepSignal& step) const {
    if (i >= step.wires.size()) return;
    const WireChange& c = changes_[0][i];
    StepSignal::Wire& to = step.wires[i];
    const Kernel& K = down_[i].K;
    const double tokens = static_cast<double>(K.tokens());
    const double square = c.size.trace() / tokens, was = K.trace() / tokens;
    to.change.predicted = std::sqrt(std::max(square, 0.0));
    if (was > 0) to.relative.predicted = std::sqrt(std::max(square, 0.0) / was);
    const Node& node = graph_.nodes[i];
    if (node.params.empty() || i == head_) return;
    to.direct.predicted = std::sqrt(std::max(c.direct, 0.0));
    if (!node.inputs.empty()) to.carried.predicted = std::sqrt(std::max(c.carried, 0.0));
  }

  void tell_parameters(StepSignal& step, PredictedStep& out) const {
    double total = 0, below = 0, numbers = 0;
    for (std::size_t k = 0; k < moves_.size(); ++k) {
      const Told& m = moves_[k];
      const Update& u = updates_[k];
      StepSignal::Parameter& to = step.parameters[k];
      out.below_eps.emplace_back();
      if (graph_.params[k].frozen || m.parts.empty()) continue;
      to.update_norm.predicted = u.rate * std::sqrt(m.norm2 + u.decay * u.decay * weights_[k] * weights_[k]);
      if (weights_[k] > 0) to.relative.predicted = *to.update_norm.predicted / weights_[k];
      to.direct_change.predicted = u.rate * std::sqrt(std::max(m.squares, 0.0) / m.entries);
      to.decrease.predicted = u.rate * m.decrease;
      total += u.rate * m.decrease;
      if (m.numbers > 0) {
        out.below_eps.back() = m.below / m.numbers;
        below += m.below;
        numbers += m.numbers;
      }
    }
    out.below_eps_of_all = numbers > 0 ? below / numbers : 0;
    step.first_order.predicted = -total;
  }

  void tell_losses(StepSignal& step) const {
    const std::size_t loss = graph_.nodes.size() - 1;
    const double before = *signal_.loss.predicted, drawn = logits_.loss;
    const double slope = (drawn - changes_.back()[loss].loss) / factors_.back();
    const double straight = -*step.first_order.predicted;
    const double by = slope > 0 && straight > 0 ? straight / slope : 1;
    const auto after = [&](std::size_t r) { return before + by * (changes_[r][loss].loss - drawn); };
    step.before.predicted = before;
    step.after.predicted = after(0);
    for (std::size_t r = 0; r < options_.factors.size(); ++r) {
      StepSignal::Rate at{.rate = options_.optimizer.rate.value_or(0) * options_.factors[r]};
      at.loss.predicted = after(r + 1);
      step.rates.push_back(at);
    }
  }

  struct Told {
    double norm2 = 0, decrease = 0, squares = 0, entries = 0, below = 0, numbers = 0;
    std::vector<std::pair<std::size_t, double>> parts;  // node, its decrease
  };

  const Graph& graph_;
  const Batch& batch_;
  const PredictStepOptions& options_;
  const Signal& signal_;
  NodeLaws theta_;
  std::vector<DownWire> down_;
  std::vector<UpWire> up_;
  std::vector<double> noise_up_;
  std::vector<Mover> movers_;
  std::vector<Update> updates_;
  std::vector<double> weights_;  // norm of every tensor
  std::map<int, TensorGram> grams_;
  std::vector<Told> moves_;
  std::vector<double> factors_;
  std::vector<std::vector<WireChange>> changes_;  // by factor and node
  LogitsMover logits_;
  std::size_t head_ = 0, attention_ = 0;
  bool tied_ = false;
  TableMove table_;                 // of a head that is the token table
  std::vector<double> last_sizes_;  // of the tokens before the norm in front of the head
};

}  // namespace

Expected<void> check_moves(const Graph& graph) {
  if (auto parts = step_parts(graph); !parts) return std::unexpected(parts.error());
  return {};
}

Expected<PredictedStep> predict_step(const Graph& graph, const Architecture& a, const Batch& batch, const Assignment& laws,
                                     const std::string& scheme, const PredictStepOptions& options) {
  const auto parts = step_parts(graph);
  if (!parts) return std::unexpected(parts.error());
  PredictedStep out;
  out.signal = predict(graph, a, batch, laws, scheme, {.effort = options.effort});
  StepSignal step = describe_step(graph, out.signal);
  StepWalk walk(graph, batch, laws, options, out.signal);
  walk.run(*parts, step, out);
  if (!step.rates.empty()) {
    out.good_rates = good_rates(step, &Value::predicted);
    if (out.good_rates.stops) out.limited_by = walk.limited_by(*parts, *out.good_rates.stops / options.optimizer.rate.value_or(1), step);
  }
  out.signal.optimizer = OptimizerSignal{.name = options.optimizer.name, .rate = options.optimizer.rate.value_or(0), .settings = {}};
  out.signal.steps.push_back(std::move(step));
  return out;
}

}  // namespace stepzero
