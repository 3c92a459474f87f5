#include "stepzero/theory/step_updates.hpp"

#include <cmath>

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

// A place in update_groups().
int group_of(Role role) {
  switch (role) {
    case Role::token_embedding:
    case Role::position_embedding:
      return 0;
    case Role::query:
    case Role::key:
    case Role::value:
    case Role::query_key_value:
      return 1;
    case Role::attention_out:
      return 2;
    case Role::ffn_in:
    case Role::ffn_gate:
      return 3;
    case Role::ffn_out:
      return 4;
    case Role::head:
      return 5;
    case Role::gain:
    case Role::bias:
    case Role::branch_gain:
      return 6;
    default:
      return 7;
  }
}

}  // namespace

const std::vector<std::string>& update_groups() {
  static const std::vector<std::string> names = {
      "embeddings", "queries, keys and values", "attention outputs", "feed-forward inputs", "feed-forward outputs",
      "head",       "gains and biases",         "other matrices"};
  return names;
}

std::vector<Update> first_updates(const Graph& graph, const OptimizerOptions& options, const RateTable& rates, double gradient_norm) {
  const std::vector<TensorPlan> plans = plan_tensors(graph, options, rates);
  const double shrink = clipped_share(gradient_norm, options.clip);
  std::vector<Update> updates;
  for (std::size_t k = 0; k < plans.size(); ++k) {
    updates.push_back(update_of(plans[k], graph.params[k].frozen, shrink));
    updates.back().group = group_of(graph.params[k].role);
  }
  return updates;
}

double rough_decrease(const Graph& graph, const std::vector<Update>& updates, const Signal& predicted) {
  double sum = 0;
  for (std::size_t k = 0; k < updates.size(); ++k) {
    const double norm = predicted.parameters[k].gradient_norm.predicted.value_or(0);
    const Update& u = updates[k];
    const double entries = static_cast<double>(graph.params[k].size());
    sum += u.rate * norm * (u.rule == Update::Rule::sgd ? u.times * norm : u.rule == Update::Rule::sign ? std::sqrt(entries) : u.times);
  }
  return sum;
}

}  // namespace stepzero
