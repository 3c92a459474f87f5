#include "stepzero/theory/moment_walk.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "stepzero/core/stop.hpp"
#include "stepzero/graph/questions.hpp"
#include "stepzero/ops/attention_moments.hpp"
#include "stepzero/ops/finite/add_adjoints.hpp"
#include "stepzero/ops/finite/all.hpp"

namespace stepzero {

namespace {

DownWire push_op(const AnyOp& any, const PushDoor& door, Order order) {
  return std::visit(
      [&](const auto& op) {
        DownWire y = order == Order::draws ? push_drawn(op, door) : push_finite(op, door);
        if constexpr (requires { op.note(door); }) y.note = op.note(door);
        if (order == Order::limit) y.f = Fluctuation::none();
        if (order == Order::draws) y.f.settle();
        y.width = op.channels();
        return y;
      },
      any);
}

Pulled pull_op(const AnyOp& any, const PullDoor& door, Order order) {
  return std::visit(
      [&](const auto& op) {
        if (order == Order::limit) {
          Pulled up = op.pull(door);
          for (UpWire& d : up.dx) d.r = {};
          return up;
        }
        Pulled up = order == Order::draws ? pull_drawn(op, door) : pull_finite(op, door);
        if (order == Order::draws) {
          for (UpWire& d : up.dx) d.r.settle();
        }
        return up;
      },
      any);
}

}  // namespace

std::span<const FluctuationField> fluctuation_fields() {
  using F = Fluctuation;
  using R = Response;
  static constexpr std::array fields = std::to_array<FluctuationField>({
      {"noise", [](F& f, R&) { f.noise = 0; }},
      {"drift", [](F& f, R&) { f.drift = 0; }},
      {"token_drift", [](F& f, R&) { f.token_drift = 0; }},
      {"lone", [](F& f, R&) { f.lone = 0; }},
      {"sampling", [](F& f, R&) { f.sampling = 0; }},
      {"swing", [](F& f, R&) { f.swing = 0; }},
      {"along", [](F& f, R&) { f.along = 1; }},
      {"jitter", [](F& f, R&) { f.jitter.clear(), f.fresh.clear(); }},
      {"fresh", [](F& f, R&) { f.fresh.clear(); }},
      {"thins", [](F& f, R&) { f.thins = 0; }},
      {"flat", [](F& f, R&) { f.flat = 1; }},
      {"response.along", [](F&, R& r) { r.along = 1; }},
      {"response.twin", [](F&, R& r) { r.twin = 0; }},
      {"response.flat", [](F&, R& r) { r.flat = 1; }},
      {"response.damp", [](F&, R& r) { r.damp = 0; }},
      {"response.stretch", [](F&, R& r) { r.stretch = 0; }},
      {"response.weight_gain", [](F&, R& r) { r.weight_gain = 1; }},
  });
  return fields;
}

MomentWalk::MomentWalk(const Graph& graph, const Batch& batch, const NodeLaws& laws, Options options)
    : graph_(graph),
      batch_(batch),
      options_(std::move(options)),
      theta_(laws),
      moments_(graph.nodes.size()),
      adjoints_(graph.nodes.size()),
      spreads_(graph.nodes.size()),
      last_use_(graph.nodes.size(), 0),
      squares_(graph.params.size(), 0.0),
      deviations_(graph.params.size(), 0.0),
      untold_(graph.params.size(), false),
      maps_(find_maps(graph, theta_)),
      weights_(graph.nodes.size()),
      to_values_(graph.nodes.size()) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const int wire : graph.nodes[i].inputs) last_use_[static_cast<std::size_t>(wire)] = i;
  }
  if (check_sources(graph).value_or(false)) {
    sources_.emplace(graph.nodes.size());
    gradient_sources_.emplace(graph.nodes.size());
  }
}

std::vector<const DownWire*> MomentWalk::inputs_of(const Node& node) const {
  std::vector<const DownWire*> list;
  for (const int wire : node.inputs) list.push_back(&moments_[static_cast<std::size_t>(wire)]);
  return list;
}

void MomentWalk::push(std::size_t i) {
  const Node& node = graph_.nodes[i];
  const auto x = inputs_of(node);
  moments_[i] = push_op(node.op, {batch_, x, theta_[i], options_.effort(i, true)}, options_.order);
  if (sources_ && node.inputs.size() == 2 && passes_on(node, 1).linear) {
    const auto part = [&](std::size_t k) {
      const Kernel& K = x[k]->K;
      return Expansions::times(sources_->of(static_cast<std::size_t>(node.inputs[k])), passes_on(node, k, theta_[i]), K, K);
    };
    if (const Kernel both = sources_->cross(part(0), part(1)); !both.empty()) moments_[i].K = moments_[i].K + both;
  }
  share_values(i);
  Response none;
  if (options_.without != nullptr) options_.without->hold(moments_[i].f, none);
}

namespace {

// A K B' + (A K B')'
Kernel around(const Matrix& a, const Kernel& K, const Matrix& b, bool turned) {
  const Index n = K.tokens();
  Matrix k(n, n), half(n, n), all(n, n);
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s < n; ++s) k(t, s) = K(t, s);
  }
  gemm(turned ? Trans::yes : Trans::no, Trans::no, 1.0, View<const double>(a), View<const double>(k), 0.0, half.view());
  gemm(Trans::no, turned ? Trans::no : Trans::yes, 1.0, View<const double>(half), View<const double>(b), 0.0, all.view());
  return Kernel::from(n, [&](Index t, Index s) { return all(t, s) + all(s, t); });
}

}  // namespace

// Several maps of scores over the same values: beyond what each makes of them, E[A] K_v E[B]' for each two, since the maps are drawn
// apart.
void MomentWalk::share_values(std::size_t i) {
  const Node& node = graph_.nodes[i];
  const auto* sum = std::get_if<Residual>(&node.op);
  if (sum == nullptr) return;
  const Maps &a = maps_[static_cast<std::size_t>(node.inputs[0])], &b = maps_[static_cast<std::size_t>(node.inputs[1])];
  if (!over_same_values(graph_, a, b)) return;
  const auto weights = [&](int attention) -> const Matrix& {
    const auto at = static_cast<std::size_t>(attention);
    if (weights_[at].size() == 0) {
      const Node& map = graph_.nodes[at];
      for (const int wire : map.inputs) restore(static_cast<std::size_t>(wire));
      const auto x = inputs_of(map);
      weights_[at] = mean_weights(std::get<Attention>(map.op), {batch_, x, theta_[at], options_.effort(at, true)});
    }
    return weights_[at];
  };
  for (const Map& one : a) {
    for (const Map& other : b) {
      const auto values = static_cast<std::size_t>(graph_.nodes[static_cast<std::size_t>(one.attention)].inputs[2]);
      restore(values);
      const double times = sum->skip_scale * one.times * sum->branch_scale * other.times;
      const Kernel both = around(weights(one.attention), moments_[values].K, weights(other.attention), false);
      moments_[i].K = moments_[i].K + both.scaled(times);
    }
  }
}

// The way up: the values get one gradient through all maps. Of a learned number between maps the gradient is not told: it hangs on what
// a norm behind the sum has taken out.
void MomentWalk::send_to_values(std::size_t i) {
  const Node& node = graph_.nodes[i];
  const auto* sum = std::get_if<Residual>(&node.op);
  if (sum == nullptr) return;
  const Maps &a = maps_[static_cast<std::size_t>(node.inputs[0])], &b = maps_[static_cast<std::size_t>(node.inputs[1])];
  if (!over_same_values(graph_, a, b)) return;
  for (const Map& one : a) {
    for (const Map& other : b) {
      const double times = sum->skip_scale * one.times * sum->branch_scale * other.times;
      const Kernel both = around(weights_[static_cast<std::size_t>(one.attention)], adjoints_[i].G,
                                 weights_[static_cast<std::size_t>(other.attention)], true);
      Matrix& to = to_values_[static_cast<std::size_t>(graph_.nodes[static_cast<std::size_t>(one.attention)].inputs[2])];
      if (to.size() == 0) {
        to = Matrix(both.tokens(), both.tokens());
        std::fill_n(to.data(), to.size(), 0.0);
      }
      for (Index t = 0; t < both.tokens(); ++t) {
        for (Index s = 0; s < both.tokens(); ++s) to(t, s) += times * both(t, s);
      }
      for (const Map& map : {one, other}) {
        if (map.scalar >= 0) untold_[static_cast<std::size_t>(map.scalar)] = true;
      }
    }
  }
}

// What the wire is a sum of.
void MomentWalk::expand(std::size_t i) {
  const Node& node = graph_.nodes[i];
  const Kernel& K = moments_[i].K;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const auto wire = static_cast<std::size_t>(node.inputs[k]);
    const PassesOn how = passes_on(node, k, theta_[i]);
    if (how.linear) sources_->add(i, Expansions::times(sources_->of(wire), how, moments_[wire].K, K));
  }
  if (i + 1 < graph_.nodes.size()) sources_->complete(i, K);
}

// The gradient of a wire from one of its readers, added to what the others have sent.
void MomentWalk::meet(std::size_t to, const Expansions::Expansion& gradient) {
  const Kernel both = gradient_sources_->cross(gradient_sources_->of(to), gradient);
  if (!both.empty()) adjoints_[to].G = adjoints_[to].G + both;
  gradient_sources_->add(to, gradient);
}

// Kept in memory: the streams and the outputs of attention. Everything else is made again on the way up. In a draw of kernels all is
// kept, since `see` may have replaced a wire's kernel by a drawn one.
bool MomentWalk::kept(std::size_t i) const {
  if (options_.order == Order::draws) return true;
  const Node& node = graph_.nodes[i];
  const Remake remake = remake_of(node.op);
  return node.inputs.empty() || remake == Remake::never || (options_.keep_all && remake == Remake::if_long);
}

void MomentWalk::restore(std::size_t i) {
  if (!moments_[i].K.empty()) return;
  for (const int wire : graph_.nodes[i].inputs) restore(static_cast<std::size_t>(wire));
  push(i);
}

void MomentWalk::down(const SeeDown& see) {
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    end_if_stopped();
    push(i);
    if (sources_) expand(i);
    see(i, moments_[i]);
    if (!options_.keep_all && kept(i)) moments_[i].note.reset();
    for (const int wire : graph_.nodes[i].inputs) {
      const auto w = static_cast<std::size_t>(wire);
      if (last_use_[w] == i && !kept(w)) moments_[w] = {};
    }
  }
}

void MomentWalk::up(std::size_t last, const Kernel& start, bool last_time, const SeeUp& see) {
  std::ranges::fill(squares_, 0.0);
  std::ranges::fill(deviations_, 0.0);
  adjoints_[last].G = start;
  if (gradient_sources_) {
    gradient_sources_->clear();
    gradient_sources_->add(last, gradient_sources_->fresh(start));
  }
  for (std::size_t i = last + 1; i-- > 0;) {
    if (adjoints_[i].G.empty()) continue;
    end_if_stopped();
    if (to_values_[i].size() > 0) adjoints_[i].G = adjoints_[i].G + Kernel(std::exchange(to_values_[i], {}));
    see(i, adjoints_[i], spreads_[i]);
    restore(i);
    for (const int wire : graph_.nodes[i].inputs) restore(static_cast<std::size_t>(wire));
    send_to_values(i);
    pull(i);
    adjoints_[i] = {};
    spreads_[i] = {};
    if (last_time || !kept(i)) moments_[i] = {};
  }
}

void MomentWalk::pull(std::size_t i) {
  const Node& node = graph_.nodes[i];
  const auto x = inputs_of(node);
  const Spread own = spreads_[i];
  Pulled pulled = pull_op(node.op, {batch_, x, theta_[i], moments_[i], adjoints_[i], options_.effort(i, false)}, options_.order);
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const auto to = static_cast<std::size_t>(node.inputs[k]);
    Fluctuation none;
    if (options_.without != nullptr) options_.without->hold(none, pulled.dx[k].r);
    const Spread more = pulled.spread.empty() ? Spread{} : pulled.spread[k];
    const Spread spread{.level = own.level + more.level, .noise = own.noise + more.noise};
    if (adjoints_[to].G.empty())
      spreads_[to] = spread;
    else
      add_spreads(spreads_[to], adjoints_[to].G.trace(), spread, pulled.dx[k].G.trace());
    add_adjoints(adjoints_[to], pulled.dx[k], x[k]->width);
    if (!gradient_sources_) continue;
    const PassesOn how = passes_on(node, k, theta_[i]);
    const Kernel& G = pulled.dx[k].G;
    const auto gradient = how.linear ? Expansions::times(gradient_sources_->of(i), how, adjoints_[i].G, G) : gradient_sources_->fresh(G);
    meet(to, gradient);
    if (how.learned) untold_[static_cast<std::size_t>(node.params[0].param)] = true;
  }
  double level = own.level;
  for (const DownWire* m : x) level += m->level();
  for (std::size_t k = 0; k < node.params.size(); ++k) {
    const auto param = static_cast<std::size_t>(node.params[k].param);
    const double squares = std::max(pulled.dtheta[k], 0.0);  // a gradient of 0 (the bias of k) is 0 up to rounding
    squares_[param] += squares;
    deviations_[param] += squares * std::sqrt(level + (pulled.levels.empty() ? 0 : pulled.levels[k]));
  }
}

}  // namespace stepzero
