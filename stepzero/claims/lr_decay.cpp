#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/list.hpp"
#include "stepzero/claims/training.hpp"

namespace stepzero::claims {

namespace {

Course trained(const Settings& s, double rate, double decay, bool from_output) {
  constexpr Index depth = 6;
  const Description d{.set = {"width=32", "heads=2", "position=sinusoidal", fmt::format("layers={}", depth)}};
  const Training options{.steps = static_cast<int>(s.size("steps")), .rate = rate, .rates = layer_decay(depth, decay, from_output)};
  return train_runs(d, {.vocab = 8, .length = 8, .sequences = 6}, options, s, static_cast<int>(s.size("runs")));
}

// Mean loss over the course, run by run from the same draw and tokens. At a rate that is too high it is spread by a sixth of the
// difference: 16 runs make an interval that reaches less than half of it.
Running difference(const Course& a, const Course& b) {
  Running r;
  for (std::size_t i = 0; i < a.means.size(); ++i) r.add(a.means[i] - b.means[i]);
  return r;
}

Evidence lr_decay_evidence(const Settings& s) {
  Evidence e;
  const double high = s("high_rate"), good = s("good_rate"), alpha = s("alpha");
  e.plot = {"training 6 pre-norm layers: say the token before", "step", "loss", false, false};
  for (const bool too_high : {true, false}) {
    const double rate = too_high ? high : good;
    const Course one = trained(s, rate, 1, false);
    e.plot.curves.push_back(loss_curve(fmt::format("rate {}, the same for all layers", rate), one));
    for (const bool from_output : {false, true}) {
      const Course decayed = trained(s, rate, alpha, from_output);
      const char* end = from_output ? "last" : "first";
      e.at_most(too_high ? Kind::statement : Kind::counter,
                fmt::format("mean loss, decayed from the {} layer, less that without decay; base rate {}", end, rate), 0,
                difference(decayed, one));
      e.plot.curves.push_back(loss_curve(fmt::format("rate {}, times {}^l from the {} layer", rate, alpha, end), decayed));
    }
  }
  return e;
}

}  // namespace

Claim lr_decay() {
  return {.id = "lr-decay",
          .source = kInitialization,
          .statement = "Layer-wise learning rate decay: lr_l = base_lr * alpha^l.",
          .tested =
              "A transformer of 6 layers, trained from scratch by AdamW with alpha = 1/2 counted from either end, has a lower mean loss "
              "over its first steps than with one rate for all layers.",
          .recorded = Verdict::holds_if,
          .condition = "the base rate is too high for the model; at a good base rate the decay slows training, from either end",
          .correction =
              "From scratch the decay acts as a lower rate, and which end it is counted from matters little. (It was made for fine-tuning, "
              "counted from the output, to keep what the first layers have learned; there is nothing to keep at step zero.)",
          .why =
              "AdamW's steps do not depend on the size of the gradients, so a layer's rate is how far it moves. With a good rate for all, "
              "moving some layers less only makes them late. With a rate that is too high for all, the decay leaves a "
              "part of the network at a rate that works. The document does not say which end is l = 0; for a network that has learned "
              "nothing neither end is to be protected.",
          .settings = {size("runs", 16, 100, "trainings from different draws"),
                       size("steps", 50, 10000, "of each training"),
                       {"alpha", 0.5, "lr_l = base alpha^l", 0.01, 2},
                       {"high_rate", 0.03, "a base rate that is too high", 1e-5, 1},
                       {"good_rate", 0.002, "a good base rate", 1e-5, 1}},
          .run = lr_decay_evidence};
}

}  // namespace stepzero::claims
