#include <fmt/format.h>

#include "stepzero/api/guarded.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/report/check_step.hpp"
#include "stepzero/report/step.hpp"
#include "stepzero/theory/predict_step.hpp"

namespace stepzero {

namespace {

Expected<StepSubject> step_of(const Setup& setup, const StepRequest& r, const Watch& watch) {
  const auto optimizer = settled(r.optimizer);
  if (!optimizer) return std::unexpected(optimizer.error());
  if (!r.predicted && !r.measured) return fail("a step is predicted, measured or both", "neither was asked for");
  if (r.seeds < 1) return fail(fmt::format("{} seeds: at least one is needed", r.seeds));
  auto step = step_options(1, *optimizer, r.rates, setup.graph);
  if (!step) return std::unexpected(step.error());
  step->search = r.search;
  StepSubject out;
  if (r.predicted) {
    Teller tell(watch, "predicting", 0, r.measured ? 0.2 : 1);
    auto predicted = predict_step(setup.graph, setup.architecture, setup.batch, Assignment(setup.graph, setup.architecture, *setup.scheme),
                                  std::string(setup.scheme->name),
                                  {.optimizer = *optimizer,
                                   .rates = step->rates,
                                   .factors = r.search ? searched_rates() : std::vector<double>(),
                                   .effort = r.effort,
                                   .progress = [&](double share) { tell(share); }});
    if (!predicted) {
      std::string& hint = predicted.error().hint;
      hint += std::string(hint.empty() ? "" : "; ") + "--measured takes the step with real weights instead";
      return std::unexpected(predicted.error());
    }
    out.below_eps = std::move(predicted->below_eps);
    out.below_eps_of_all = predicted->below_eps_of_all;
    out.limited_by = predicted->limited_by;
    out.signal = std::move(predicted->signal);
  }
  if (r.measured) {
    Teller tell(watch, "measuring", r.predicted ? 0.2 : 0, 1);
    auto measured =
        measure(setup.graph, setup.architecture, setup.batch,
                {.scheme = setup.scheme, .step = *step, .seed = r.seed, .seeds = r.seeds, .progress = [&](double share) { tell(share); }});
    if (!measured) return std::unexpected(measured.error());
    out.signal = r.predicted ? join(out.signal, *measured) : std::move(*measured);
  }
  out.signal.optimizer = described(*optimizer);
  out.signal.tokens = input_name(r.input, setup.batch);
  out.signal.findings = diagnose_step(out);
  return out;
}

}  // namespace

Expected<StepResult> Model::step(const StepRequest& request, const Watch& watch) const {
  return guarded(watch, [&]() -> Expected<StepResult> {
    const auto setup = prepare(architecture_, *scheme_, request.input, {request_.lora});
    if (!setup) return std::unexpected(setup.error());
    auto done = step_of(*setup, request, watch);
    if (!done) return std::unexpected(done.error());
    return StepResult(std::make_shared<const StepSubject>(std::move(*done)));
  });
}

const Signal& StepResult::signal() const { return subject_->signal; }
std::string StepResult::json() const { return step_json(*subject_); }
std::string StepResult::text() const { return step_text(*subject_, kPlainLook, false); }
std::string StepResult::html(const std::string& command) const { return step_html(*subject_, command, version()); }

}  // namespace stepzero
