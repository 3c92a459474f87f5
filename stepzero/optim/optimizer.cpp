#include "stepzero/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

double muon_scale(MuonScale scale, Index in, Index out) {
  const double ratio = static_cast<double>(out) / static_cast<double>(in);
  switch (scale) {
    case MuonScale::max1:
      return std::sqrt(std::max(1.0, ratio));
    case MuonScale::kimi:
      return 0.2 * std::sqrt(static_cast<double>(std::max(in, out)));
    case MuonScale::spectral:
      return std::sqrt(ratio);
  }
  return 1;
}

double default_rate(const OptimizerOptions& options) {
  if (options.name == "sgd") return 0.1;
  if (options.name == "lion") return 1e-4;
  if (options.name == "muon") return options.muon_scale == MuonScale::kimi ? 1e-3 : 0.02;
  return 1e-3;
}

std::vector<std::string> optimizer_names() { return {Sgd::name, AdamW::name, Lion::name, Muon::name}; }

namespace {

Expected<void> check(const char* what, double value, double low, double high) {
  if (value >= low && value < high && std::isfinite(value)) return {};
  const std::string range = std::isinf(high) ? fmt::format("from {} on", low) : fmt::format("from {} to below {}", low, high);
  return fail(fmt::format("{} {} is not a number {}", what, value, range));
}

}  // namespace

Expected<OptimizerOptions> settled(OptimizerOptions o) {
  const std::vector<std::string> names = optimizer_names();
  if (std::ranges::find(names, o.name) == names.end()) {
    return fail(fmt::format("there is no optimizer \"{}\"", show(o.name)), fmt::format("{}", fmt::join(names, ", ")));
  }
  if (!o.rate) o.rate = default_rate(o);
  if (!o.rate_adamw) o.rate_adamw = o.muon_scale == MuonScale::kimi ? *o.rate : 1e-3;
  if (!o.momentum) o.momentum = o.name == "muon" ? 0.95 : 0;
  if (!o.beta1) o.beta1 = 0.9;
  if (!o.beta2) o.beta2 = o.name == "lion" ? 0.99 : 0.999;
  constexpr double any = std::numeric_limits<double>::infinity();
  for (const auto& done : {check("--rate", *o.rate, 0, any), check("--rate-adamw", *o.rate_adamw, 0, any),
                           check("--momentum", *o.momentum, 0, 1), check("--betas", *o.beta1, 0, 1), check("--betas", *o.beta2, 0, 1),
                           check("--eps", o.eps, 0, any), check("--decay", o.decay, 0, any), check("--clip", o.clip, 0, any)}) {
    if (!done) return std::unexpected(done.error());
  }
  return o;
}

bool is_hidden_matrix(const Param& p) {
  const bool table = p.role == Role::token_embedding || p.role == Role::position_embedding || p.role == Role::head;
  return !table && (p.shape.size() == 2 || p.conv) && p.rows() > 1 && p.cols() > 1;
}

double clipped_share(double norm, double clip) {
  constexpr double guard = 1e-6;  // as torch.nn.utils.clip_grad_norm_ has it
  return clip > 0 ? std::min(1.0, clip / (norm + guard)) : 1;
}

namespace {

Rule rule_for(const Param& p, const OptimizerOptions& o) {
  if (o.name == "sgd") return Sgd{*o.momentum, o.nesterov};
  if (o.name == "lion") return Lion{*o.beta1, *o.beta2};
  if (o.name == "adamw" || !is_hidden_matrix(p)) return AdamW{*o.beta1, *o.beta2};
  const Index in = p.in_out ? p.rows() : p.cols(), out = p.in_out ? p.cols() : p.rows();
  return Muon{*o.momentum, o.nesterov, o.newton_schulz, muon_scale(o.muon_scale, in, out)};
}

template <class S>
bool all_zero(View<const S> g) {
  return std::all_of(g.data, g.data + g.size(), [](S x) { return x == S(0); });
}

}  // namespace

template <class S>
Optimizer<S>::Optimizer(const Graph& graph, const OptimizerOptions& o, const RateTable& rates) {
  for (const Param& p : graph.params) {
    PerTensor t;
    t.rule = rule_for(p, o);
    const bool by_adamw = o.name == "muon" && std::holds_alternative<AdamW>(t.rule);
    t.rate.rate = by_adamw ? *o.rate_adamw : *o.rate;
    t.rate.decay = o.decay_matrices && (p.rows() == 1 || p.cols() == 1) ? 0 : o.decay;
    t.rate.eps = o.eps;
    t.rate = rates.apply(p, t.rate);
    const int memories = p.frozen ? 0 : std::visit([](const auto& rule) { return rule.memories(); }, t.rule);
    for (int k = 0; k < memories; ++k) {
      t.memory.emplace_back(p.rows(), p.cols());
      std::memset(t.memory.back().data(), 0, static_cast<std::size_t>(p.size()) * sizeof(S));
    }
    tensors_.push_back(std::move(t));
  }
  for (const Node& node : graph.nodes) {
    if (!std::holds_alternative<Experts>(node.op)) continue;
    for (const ParamUse& use : node.params) tensors_[static_cast<std::size_t>(use.param)].skips_zero = true;
  }
}

template <class S>
void Optimizer<S>::take(int param, View<S> w, View<const S> g, double share, double shrink) {
  PerTensor& t = tensors_[static_cast<std::size_t>(param)];
  if (t.skips_zero && all_zero(g)) return;
  Turn<S> turn{w, g, shrink, t.rate, t.updates, t.memory};
  turn.rate.rate *= share;
  std::visit(
      [&](const auto& rule) {
        if constexpr (requires { rule.update(turn); }) {
          rule.update(turn);
        } else {
          t.waiting.push_back(rule.take(turn));
        }
      },
      t.rule);
  ++t.updates;
}

// The matrices side by side, each in one thread.
template <class S>
void Optimizer<S>::finish() {
  std::vector<PerTensor*> late;
  for (PerTensor& t : tensors_) {
    if (!t.waiting.empty()) late.push_back(&t);
  }
  parallel_for(std::ssize(late), [&](Index i) {
    PerTensor& t = *late[static_cast<std::size_t>(i)];
    std::get<Muon>(t.rule).finish(t.waiting[0], t.memory[0]);
    t.waiting.clear();
  });
}

template class Optimizer<float>;
template class Optimizer<double>;

}  // namespace stepzero
