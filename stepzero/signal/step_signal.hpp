#pragma once
// What one update of the weights does: the state after it, and what has changed since before it. A change is the root mean square,
// over tokens and channels, of after - before; relative: over the root mean square before.
#include <string>
#include <utility>
#include <vector>

#include "stepzero/signal/value.hpp"

namespace stepzero {

struct StepSignal {
  // direct: what the new weights do to the old input; carried: what the changed input does to the old weights. Together they are the
  // change, but for what the new weights do to the change of the input.
  struct Wire {
    std::string name = {};
    std::string kind = {};
    Value second_moment = {}, token_cosine = {}, change = {}, relative = {}, direct = {}, carried = {};
  };
  struct Scores {
    std::string name = {};
    Value change = {}, score_variance = {}, entropy = {};
  };
  struct Parameter {
    std::string name = {};
    // norm of the update, also over that of the weights; its largest singular value; what it alone does to the outputs of the nodes that
    // use it; what it takes from the loss to first order
    Value update_norm = {}, relative = {}, spectral_norm = {}, direct_change = {}, decrease = {};
  };
  struct Rate {
    double rate = 0;
    Value loss = {};  // after this step, had it been taken at this rate
  };

  static constexpr const char* searched = "loss at a searched rate";

  Value before, after, first_order;  // the loss; first_order: its change, to first order
  std::vector<Wire> wires;
  std::size_t logits = 0;  // which wire they are
  std::vector<Scores> attention;
  std::vector<Parameter> parameters;
  std::vector<Rate> rates;  // ascending; empty: not searched
};

struct OptimizerSignal {
  std::string name;  // empty: no step was taken
  double rate = 0;
  std::vector<std::pair<std::string, double>> settings;
};

// Visits every Value in a fixed order: f(value, average, where, what).
template <class Step, class F>
void for_each_step_value(Step& s, const F& f) {
  constexpr auto square = Average::root_mean_square;
  f(s.before, Average::mean, "step", "loss before");
  f(s.after, Average::mean, "step", "loss after");
  f(s.first_order, Average::mean, "step", "change of the loss to first order");
  for (auto& w : s.wires) {
    f(w.second_moment, Average::mean, w.name, "second moment after the step");
    f(w.token_cosine, Average::mean, w.name, "token cosine after the step");
    f(w.change, square, w.name, "change");
    f(w.relative, square, w.name, "relative change");
    f(w.direct, square, w.name, "direct change");
    f(w.carried, square, w.name, "carried change");
  }
  for (auto& a : s.attention) {
    f(a.change, square, a.name, "change of the scores");
    f(a.score_variance, Average::mean, a.name, "score variance after the step");
    f(a.entropy, Average::mean, a.name, "entropy after the step");
  }
  for (auto& p : s.parameters) {
    f(p.update_norm, square, p.name, "update norm");
    f(p.relative, square, p.name, "relative update");
    f(p.spectral_norm, square, p.name, "spectral norm of the update");
    f(p.direct_change, square, p.name, "direct change");
    f(p.decrease, Average::mean, p.name, "decrease of the loss");
  }
  for (auto& r : s.rates) f(r.loss, Average::mean, "rate", StepSignal::searched);
}

}  // namespace stepzero
