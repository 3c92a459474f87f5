#include "stepzero/report/check_step.hpp"

#include <cmath>

#include <fmt/format.h>

#include "stepzero/graph/graph.hpp"
#include "stepzero/report/depth.hpp"

namespace stepzero {

namespace {

std::optional<Finding> stream_jumps(const StepSubject& s) {
  const StepSignal::Wire* worst = nullptr;
  for (const StepSignal::Wire& w : s.step().wires) {
    if (place_of(w.name).is_stream() && best(w.relative) > most_relative_change &&
        (worst == nullptr || best(w.relative) > best(worst->relative)))
      worst = &w;
  }
  if (worst == nullptr) return {};
  int zero = 0;  // matrices of branches that began at 0: their updates have nothing to be small beside, and point the same way
  for (const ParameterSignal& p : s.signal.parameters)
    zero += (p.role == Role::attention_out || p.role == Role::ffn_out) && best(p.std) == 0 ? 1 : 0;
  const double share = 1 / best(worst->relative);
  return Finding{
      .id = "step-moves-stream",
      .severity = Severity::warning,
      .where = worst->name,
      .evidence = fmt::format(
          "the first update changes the stream by {:.2g} times its size (from {:g} on){}", best(worst->relative), most_relative_change,
          zero > 1 ? fmt::format("; {} matrices that write to it begin at 0, and their first updates add up", zero) : ""),
      .remedy = fmt::format("a first rate of {:.2g} or less, as by a warm-up of {:.0f} updates", s.signal.optimizer.rate * share,
                            std::ceil(best(worst->relative))),
      .reading = {"relative change of the stream", best(worst->relative), std::log(best(worst->relative) / most_relative_change)}};
}

std::optional<Finding> scores_jump(const StepSubject& s) {
  const StepSignal::Scores* worst = nullptr;
  for (const StepSignal::Scores& a : s.step().attention) {
    if (best(a.change) > most_score_change && (worst == nullptr || best(a.change) > best(worst->change))) worst = &a;
  }
  if (worst == nullptr) return {};
  return Finding{
      .id = "step-moves-scores",
      .severity = Severity::warning,
      .where = worst->name,
      .evidence = fmt::format("the first update changes scores of attention by {:.2g} (from {:g} on: a weight changes by a factor of e)",
                              best(worst->change), most_score_change),
      .remedy = "a lower first rate of queries and keys, or a warm-up",
      .reading = {"change of the scores", best(worst->change), std::log(best(worst->change) / most_score_change)}};
}

std::optional<Finding> swallowed_by_eps(const StepSubject& s) {
  if (s.below_eps.empty() || s.below_eps_of_all <= most_below_eps) return {};
  return Finding{.id = "step-below-eps",
                 .severity = Severity::warning,
                 .where = "model",
                 .evidence = fmt::format(
                     "{:.0f} % of the gradient's numbers are smaller than Adam's eps (from {:.0f} % on): their updates are not of the "
                     "size of the rate",
                     100 * s.below_eps_of_all, 100 * most_below_eps),
                 .remedy = "a smaller --eps",
                 .reading = {"share below eps", s.below_eps_of_all, std::log(s.below_eps_of_all / most_below_eps)}};
}

std::optional<Finding> raises_the_loss(const StepSubject& s) {
  const double before = best(s.step().before), after = best(s.step().after);
  if (!(after > before)) return {};
  const GoodRates good = s.step().after.measured ? measured_rates(s.step()) : predicted_rates(s.step());
  return Finding{.id = "step-raises-loss",
                 .severity = Severity::warning,
                 .where = "model",
                 .evidence = fmt::format("the loss of the same batch rises from {:.4g} to {:.4g} at this rate", before, after),
                 .remedy = good.best ? fmt::format("{:.2g} takes most from it{}", *good.best,
                                                   s.limited_by.empty() ? "" : "; the limit is set by " + s.limited_by)
                                     : "a lower rate",
                 .reading = {"rise of the loss", after - before, after - before}};
}

}  // namespace

std::vector<Finding> diagnose_step(const StepSubject& s) {
  std::vector<Finding> out;
  for (auto finding : {raises_the_loss(s), stream_jumps(s), scores_jump(s), swallowed_by_eps(s)}) {
    if (finding) out.push_back(std::move(*finding));
  }
  worst_first(out);
  return out;
}

}  // namespace stepzero
