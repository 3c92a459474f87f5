#include "stepzero/theory/predict_step.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/signal/describe.hpp"
#include "stepzero/theory/predict.hpp"
#include "stepzero/theory/step_curve.hpp"
#include "stepzero/theory/step_parts.hpp"
#include "stepzero/theory/step_updates.hpp"
#include "stepzero/theory/step_walk.hpp"

namespace stepzero {

namespace {

// The group of tensors without whose updates the loss at this factor is lowest.
std::string limit_at(double factor, StepWalk& walk, const std::vector<Update>& updates) {
  std::vector<Factor> factors;
  for (std::size_t g = 0; g < update_groups().size(); ++g) {
    const bool moves = std::ranges::any_of(updates, [&](const Update& u) { return u.moves() && u.group == static_cast<int>(g); });
    if (moves) factors.emplace_back(factor, static_cast<int>(g), factors.size() + 1);
  }
  if (factors.empty()) return "";
  const std::vector<double> losses = walk.again(factors);
  const auto lowest = static_cast<std::size_t>(std::ranges::min_element(losses) - losses.begin());
  return update_groups()[static_cast<std::size_t>(factors[lowest].without)];
}

// The loss after the step, and over the rate. A factor so small that the loss is straight tells the slope of the drawn losses, which is
// scaled to the first order.
void tell_losses(StepWalk& walk, const std::vector<Update>& updates, const PredictStepOptions& options, double rough, PredictedStep& out,
                 StepSignal& step) {
  const double before = *out.signal.loss.predicted;
  const std::vector<double> walked = walked_factors(options.factors, rough, before);
  std::vector<Factor> factors = {Factor(1)};
  for (const double f : walked) {
    if (f != 1) factors.emplace_back(f, -1, factors.size());
  }
  factors.emplace_back(1e-4 / std::max(rough, 1e-12), -1, factors.size());
  const std::vector<double> losses = walk.first(factors, step, options.progress);
  StepTold::BelowEps below = walk.told().tell(updates, step);
  out.below_eps = std::move(below.of_each);
  out.below_eps_of_all = below.of_all;
  const double drawn = walk.drawn_loss(), slope = (drawn - losses.back()) / factors.back().times;
  const double straight = -*step.first_order.predicted;
  const double by = slope > 0 && straight > 0 ? straight / slope : 1;
  std::vector<double> decreases;
  std::size_t next = 1;
  for (const double f : walked) decreases.push_back(by * (drawn - losses[f == 1 ? 0 : next++]));
  const DecreaseCurve curve(straight, walked, decreases);
  step.before.predicted = before;
  step.after.predicted = before - by * (drawn - losses[0]);
  for (const double f : options.factors) {
    StepSignal::Rate at{.rate = options.optimizer.rate.value_or(0) * f};
    if (const auto decrease = curve.at(f)) at.loss.predicted = before - *decrease;
    step.rates.push_back(at);
  }
}

// Adapters have a rule where they begin as no change, beside a matrix that is frozen.
Expected<void> check_adapters(const Graph& graph, const Assignment& laws) {
  for (const Node& node : graph.nodes) {
    const auto* lora = std::get_if<LoraLinear>(&node.op);
    if (lora == nullptr) continue;
    const auto of = [&](std::size_t k) { return static_cast<std::size_t>(node.params[k].param); };
    const std::size_t up = of(lora->first() + 1);
    if (laws.std(up) != 0 || laws.mean(up) != 0 || !graph.params[of(0)].frozen)
      return fail(fmt::format("the first step of {} is not predicted: its adapter does not begin at 0", show(node.name)));
  }
  return {};
}

}  // namespace

Expected<void> check_moves(const Graph& graph) {
  if (auto parts = step_parts(graph); !parts) return std::unexpected(parts.error());
  return {};
}

Expected<PredictedStep> predict_step(const Graph& graph, const Architecture& a, const Batch& batch, const Assignment& laws,
                                     const std::string& scheme, const PredictStepOptions& options) {
  const auto parts = step_parts(graph);
  if (!parts) return std::unexpected(parts.error());
  if (auto done = check_adapters(graph, laws); !done) return std::unexpected(done.error());
  PredictedStep out;
  out.signal = predict(graph, a, batch, laws, scheme, {.effort = options.effort});
  StepSignal step = describe_step(graph, out.signal);
  const std::vector<Update> updates = first_updates(graph, options.optimizer, options.rates, *out.signal.gradient_norm.predicted);
  StepWalk walk(graph, batch, laws, *parts, updates, out.signal, options.effort);
  tell_losses(walk, updates, options, rough_decrease(graph, updates, out.signal), out, step);
  if (!step.rates.empty()) {
    out.good_rates = good_rates(step, &Value::predicted, Descent::first);
    if (out.good_rates.stops && walk.may_again())
      out.limited_by = limit_at(*out.good_rates.stops / options.optimizer.rate.value_or(1), walk, updates);
  }
  out.signal.optimizer = OptimizerSignal{.name = options.optimizer.name, .rate = options.optimizer.rate.value_or(0), .settings = {}};
  out.signal.steps.push_back(std::move(step));
  return out;
}

}  // namespace stepzero
