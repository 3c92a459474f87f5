#pragma once
// The first step as `step` shows it: text and JSON (stepzero.step/1).
#include <optional>
#include <string>
#include <vector>

#include "stepzero/report/terminal_style.hpp"
#include "stepzero/signal/good_rates.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

struct StepSubject {
  Signal signal;                                 // with one step, predicted, measured or both
  std::vector<std::optional<double>> below_eps;  // of every parameter: share of its gradient's entries below Adam's eps; empty: not known
  double below_eps_of_all = 0;
  std::string limited_by;  // the tensors that set the rate where the loss stops falling; empty: not known, or it stops nowhere

  [[nodiscard]] const StepSignal& step() const { return signal.steps.front(); }
};

// What the loss over the rate says: of the measured curve, or of the predicted one.
GoodRates measured_rates(const StepSignal& step);
GoodRates predicted_rates(const StepSignal& step);

std::string step_text(const StepSubject& subject, const Look& look, bool full);
std::string step_json(const StepSubject& subject);
// One page without scripts.
std::string step_html(const StepSubject& subject, const std::string& command, const std::string& version);

}  // namespace stepzero
