#include "stepzero/solve/solve.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/core/stop.hpp"
#include "stepzero/models/rope.hpp"
#include "stepzero/theory/direct_effects.hpp"
#include "stepzero/theory/predict_long.hpp"

namespace stepzero::solve {

namespace {

constexpr Index few_tokens = 24, fewer_tokens = 12;  // of the short prediction; with the effects of updates, which cost more
constexpr double little_effort = 0.02;
constexpr int most_rounds = 6;
constexpr double agrees = 0.003;  // of the logarithm of a target, between the tied prediction and the full one
constexpr double kept = 0.02;     // by so much a constraint may be missed

class Solver {
 public:
  explicit Solver(const Problem& problem) : problem_(problem) {}

  Expected<Solution> run() {
    Solution out;
    out.z.assign(problem_.unknowns.size(), 0);
    auto full = look(out.z);
    if (!full) return std::unexpected(full.error());
    out.before = full->targets;
    out.signal_before = std::move(full->signal);
    if (out.before.empty()) return fail("the objective speaks of nothing that this model has", "stepzero solve --help lists objectives");
    out.cost_before = cost_of(out.before);
    if (auto done = rounds(out, full->targets); !done) return std::unexpected(done.error());
    out.cost = cost_of(out.after);
    return judged(std::move(out));
  }

 private:
  struct Look {
    std::vector<Target> targets;
    Signal signal;
  };

  Expected<Look> look(const std::vector<double>& z) {
    auto full = predict_at(problem_, z);
    if (!full) return std::unexpected(full.error());
    const Readout reading(*full->point.graph, full->signal, &Value::predicted, full->effects);
    auto targets = targets_of(problem_, reading);
    return Look{std::move(targets), std::move(full->signal)};
  }

  // Targets by the short prediction; empty: there is none.
  std::vector<Target> glance(const std::vector<double>& z) const {
    const auto point = problem_.unknowns.at(z);
    if (!point) return {};
    const auto batch = problem_.input(point->architecture, problem_.steps() ? fewer_tokens : few_tokens);
    if (!batch) return {};
    const Signal signal =
        predict(*point->graph, point->architecture, *batch, point->laws, {}, {.order = Order::limit, .effort = little_effort});
    std::vector<std::optional<double>> effects;
    if (problem_.steps())
      effects = direct_effects(*point->graph, *batch, point->laws,
                               {.optimizer = problem_.optimizer, .rates = problem_.rates, .order = Order::limit, .effort = little_effort});
    return targets_of(problem_, Readout(*point->graph, signal, &Value::predicted, effects));
  }

  // What full predictions are above short ones, of every target.
  static std::vector<double> ties(const std::vector<Target>& full, const std::vector<Target>& brief) {
    std::vector<double> out;
    for (std::size_t i = 0; i < full.size(); ++i) {
      const double tie = std::log(std::max(full[i].value, 1e-30) / std::max(brief[i].value, 1e-30));
      out.push_back(std::isfinite(tie) ? tie : 0);
    }
    return out;
  }

  std::vector<Target> tied(std::vector<Target> brief, const std::vector<double>& ties) const {
    for (std::size_t i = 0; i < brief.size(); ++i) brief[i].value *= std::exp(ties[i]);
    settle_levels(brief);
    return brief;
  }

  // First with a pull that keeps a little from being traded against a long way; then all but without, unless that leads far and still
  // does not meet what is asked for. None: no more is to be had.
  std::optional<LeastSquaresResult> nearest(const std::vector<double>& start, const std::vector<double>& tie, bool first) const {
    constexpr double strong = 0.03, weak = 0.003, near = 0.5, met = 1e-3;
    const Residuals residuals = [&](const std::vector<double>& z) {
      std::vector<double> r;
      const std::vector<Target> targets = glance(z);
      if (targets.size() != tie.size()) return r;
      for (const Target& t : tied(targets, tie)) r.push_back(t.miss());
      return r;
    };
    auto found = least_squares(residuals, start, {.most_steps = first ? 12 : 5, .pull = first ? strong : weak});
    if (!found || first) return found;
    double moved = 0;
    for (std::size_t u = 0; u < start.size(); ++u) moved = std::max(moved, std::abs(found->z[u] - start[u]));
    if (moved > near && found->after > met) return {};
    return found;
  }

  Expected<void> rounds(Solution& out, std::vector<Target> full) {
    double best = INFINITY;
    std::vector<double> at = out.z;
    for (out.rounds = 0; out.rounds < most_rounds; ++out.rounds) {
      const std::vector<Target> brief = glance(at);
      if (brief.size() != full.size()) return fail("the model's short prediction is of another shape", "this should not have happened");
      const std::vector<double> tie = ties(full, brief);
      const auto found = nearest(at, tie, out.rounds == 0);
      if (!found && out.rounds > 0) break;
      if (!found) return fail("the model's prediction has no numbers to go by", "stepzero predict tells what is not finite");
      out.evaluations += found->evaluations;
      const std::vector<Target> hoped = tied(glance(found->z), tie);
      auto seen = look(found->z);
      if (!seen) return std::unexpected(seen.error());
      double apart = 0;
      for (std::size_t i = 0; i < hoped.size(); ++i) apart = std::max(apart, std::abs(hoped[i].off() - seen->targets[i].off()));
      const double all = everything(seen->targets);
      if (all < best) {
        best = all;
        out.z = found->z;
        out.free = found->free;
        out.after = seen->targets;
        out.signal = std::move(seen->signal);
      }
      at = found->z;
      full = std::move(seen->targets);
      if (problem_.progress) problem_.progress(static_cast<double>(out.rounds + 1) / most_rounds);
      if (out.rounds > 0 && apart < agrees) break;
    }
    return {};
  }

  static double everything(const std::vector<Target>& targets) {
    double sum = 0;
    for (const Target& t : targets) sum += t.miss() * t.miss();
    return sum;
  }

  Expected<Solution> judged(Solution out) const {
    const Target* worst = nullptr;
    for (const Target& t : out.after) {
      if (t.binds.empty() && t.kind == Target::Kind::equal && t.value == 0 && t.wanted > 0)
        return fail(fmt::format("{} is exactly 0, which no factor changes; {:.3g} is asked for", t.what, t.wanted),
                    "begin with another --scheme");
      if (t.binds.empty()) continue;
      if (std::abs(t.off()) > kept && (worst == nullptr || std::abs(t.off()) > std::abs(worst->off()))) worst = &t;
      if (std::abs(std::log(t.value / t.wanted)) < kept) out.binding.push_back(t);
    }
    if (worst == nullptr) return out;
    return fail(fmt::format("--subject-to {} cannot be met: {} comes to {:.3g} at best, and {} {:.3g} is asked for", worst->binds,
                            worst->what, worst->value, worst->kind == Target::Kind::at_most ? "at most" : "at least", worst->wanted),
                "let more move (--free), by layer (--by layer), or loosen the constraint");
  }

  const Problem& problem_;
};

}  // namespace

bool Problem::steps() const {
  return std::ranges::any_of(objectives, [](const Weighted& w) { return w.objective->steps; });
}

std::vector<Target> targets_of(const Problem& problem, const Readout& reading) {
  std::vector<Target> out = targets_of(problem.objectives, reading);
  for (const Constraint& c : problem.constraints) {
    const auto more = c.targets(reading);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

double cost_of(std::span<const Target> targets) {
  double sum = 0;
  for (const Target& t : targets) sum += t.binds.empty() ? t.miss() * t.miss() : 0;
  return sum;
}

Expected<Predicted> predict_at(const Problem& problem, const std::vector<double>& z) {
  auto point = problem.unknowns.at(z);
  if (!point) return std::unexpected(point.error());
  auto batch = problem.input(point->architecture, 0);
  if (!batch) return std::unexpected(batch.error());
  if (auto done = check_kernels(*point->graph, point->architecture, *batch); !done) return std::unexpected(done.error());
  Predicted out{std::move(*point), std::move(*batch), {}, {}};
  out.signal = predict(*out.point.graph, out.point.architecture, out.batch, out.point.laws, "solved", {.order = problem.order});
  if (problem.steps()) {
    const Order order = problem.order == Order::limit ? Order::limit : Order::fluctuations;
    out.effects = direct_effects(*out.point.graph, out.batch, out.point.laws,
                                 {.optimizer = problem.optimizer, .rates = problem.rates, .order = order});
  }
  return out;
}

Expected<Solution> solve(const Problem& problem) { return Solver(problem).run(); }

}  // namespace stepzero::solve
