#include "stepzero/api/step.hpp"

#include "stepzero/api/guarded.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/report/check_step.hpp"
#include "stepzero/theory/predict_step.hpp"

namespace stepzero {

Expected<StepSubject> run_step(const StepRequest& r, const Watch& watch) {
  return guarded(watch, [&]() -> Expected<StepSubject> {
    const auto scheme = find_scheme(r.model.scheme);
    if (!scheme) return std::unexpected(scheme.error());
    auto a = describe_model(r.model.model, r.model.set, **scheme, r.model.like);
    if (!a) return std::unexpected(a.error());
    const auto setup = prepare(std::move(*a), **scheme, r.input, {.lora = r.model.lora});
    if (!setup) return std::unexpected(setup.error());
    const auto optimizer = settled(r.optimizer);
    if (!optimizer) return std::unexpected(optimizer.error());
    auto step = step_options(1, *optimizer, r.rates, setup->graph);
    if (!step) return std::unexpected(step.error());
    step->search = r.search;
    StepSubject out;
    if (r.predicted) {
      Teller tell(watch, "predicting", 0, r.measured ? 0.2 : 1);
      auto predicted = predict_step(setup->graph, setup->architecture, setup->batch,
                                    Assignment(setup->graph, setup->architecture, **scheme), r.model.scheme,
                                    {.optimizer = *optimizer,
                                     .rates = step->rates,
                                     .factors = r.search ? searched_rates() : std::vector<double>(),
                                     .progress = [&](double share) { tell(share); }});
      if (!predicted) {
        predicted.error().hint += predicted.error().hint.empty() ? "--measured takes the step with real weights instead"
                                                                 : "; --measured takes the step with real weights instead";
        return std::unexpected(predicted.error());
      }
      out.below_eps = std::move(predicted->below_eps);
      out.below_eps_of_all = predicted->below_eps_of_all;
      out.limited_by = predicted->limited_by;
      out.signal = std::move(predicted->signal);
      out.signal.optimizer = described(*optimizer);
    }
    if (r.measured) {
      Teller tell(watch, "measuring", r.predicted ? 0.2 : 0, 1);
      auto measured =
          measure(setup->graph, setup->architecture, setup->batch,
                  {.scheme = *scheme, .step = *step, .seed = r.seed, .seeds = r.seeds, .progress = [&](double share) { tell(share); }});
      if (!measured) return std::unexpected(measured.error());
      out.signal = r.predicted ? join(out.signal, *measured) : std::move(*measured);
      out.signal.optimizer = described(*optimizer);
    }
    out.signal.tokens = input_name(r.input, setup->batch);
    out.signal.findings = diagnose_step(out);
    return out;
  });
}

}  // namespace stepzero
