#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/branches.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/claims/model.hpp"
#include "stepzero/theory/predict.hpp"

namespace stepzero::claims {

namespace {

constexpr Index width = 96, layers = 8;

std::vector<Signal> signals(const Settings& s, const char* placement, double gain, double* predicted_loss = nullptr) {
  Model m =
      make_model({.set = {fmt::format("width={}", width), fmt::format("layers={}", layers), fmt::format("norm_placement={}", placement)},
                  .tokens = 16});
  m.set(Role::gain, Distribution::constant(gain));
  if (predicted_loss != nullptr) *predicted_loss = predicted(m).loss.predicted.value_or(std::nan(""));
  return measured(m, s, std::max(2, s.draws() / 2));
}

double growth(const Signal& x) { return stream(x, layers) / stream(x, 0); }
double returned(const Signal& x) { return stream_gradient(x, 0) / stream_gradient(x, layers); }

// Draw by draw, the same weights under two gains.
Running ratio(const std::vector<Signal>& a, const std::vector<Signal>& b, double (*of)(const Signal&)) {
  Running r;
  for (std::size_t i = 0; i < a.size(); ++i) r.add(of(a[i]) / of(b[i]));
  return r;
}

// |LN(x)| of unit tokens
Running norm_of_output(const Settings& s, double gain) {
  Lab lab(8);
  const int y =
      lab.add(LayerNorm{.width = width, .bias = false}, {lab.source(width, Distribution::normal(1))}, {Distribution::constant(gain)});
  return lab.run(s, s.draws(), [&](const Shot& shot) { return std::vector{std::sqrt(static_cast<double>(width) * shot.square(y))}; })[0];
}

Evidence ln_scale_evidence(const Settings& s) {
  Evidence e;
  const double d = static_cast<double>(width), gain = std::pow(d, -s("power"));
  double loss = 0;
  const auto pre = signals(s, "pre", gain, &loss), post = signals(s, "post", gain), plain = signals(s, "pre", 1);
  e.equal(Kind::statement, "norm of a norm's output: 1 instead of sqrt(d)", 1, norm_of_output(s, gain));
  e.equal(Kind::statement, "E[x^2] after 8 layers over before, pre-norm", 1, over(pre, growth), 0.25);
  e.equal(Kind::statement, "gradient at the first layer over the last, pre-norm", 1, over(pre, returned), 0.25);
  e.at_most(Kind::statement, "norm of the whole gradient over that at gain 1, pre-norm", 0.5,
            ratio(pre, plain, [](const Signal& x) { return value_of(x.gradient_norm); }));
  e.equal(Kind::contrast, "E[x^2] after 8 layers over before, pre-norm, gain 1", 1, over(plain, growth), 0.25);
  e.equal(Kind::contrast, "gradient at the first layer over the last, pre-norm, gain 1", 1, over(plain, returned), 0.25);
  e.equal(Kind::counter, "E[x^2] after 8 layers over before, post-norm", 1, over(post, growth), 0.25);
  e.equal(Kind::counter, "gradient at the first layer over the last, post-norm", 1, over(post, returned), 0.25);
  const Branches b{.count = 16, .gain = 1 / std::sqrt(96.0)};
  e.equal(Kind::correction, "E[x^2] after 16 branches of unit gain behind norms of gain g = 1/sqrt(d): 1 + 16 g^2", b.forward(),
          measure_forward(s, s.draws(), b));
  e.equal(Kind::correction, "loss at step zero, pre-norm: ln V + half the logits' variance", loss,
          over(pre, [](const Signal& x) { return value_of(x.loss); }));
  const Running scores = ratio(pre, plain, [](const Signal& x) { return value_of(x.attention[0].score_variance); });
  const double shrunk = std::pow(gain, 4);
  e.exact(Kind::correction, "variance of the first layer's scores over that at gain 1: g^4", shrunk, scores.mean, 1e-5 * shrunk, 1e-4);
  e.plot = {"stream of a pre-norm transformer of 8 layers", "gain of its norms", "E[x^2] after over before", true, true};
  const auto mean_growth = [&](double g) { return over(signals(s, "pre", g), growth).mean; };
  const Curve measured{
      "measured", {gain, 0.2, 0.5, 1}, {over(pre, growth).mean, mean_growth(0.2), mean_growth(0.5), over(plain, growth).mean}};
  e.plot.curves = {measured};
  return e;
}

}  // namespace

Claim ln_scale() {
  return {.id = "ln-scale",
          .source = kInitialization,
          .statement =
              "Layer normalization scale: gamma_init is about 1/sqrt(d_model); it controls the initial step size, prevents layer output "
              "explosion and maintains the gradient scale across layers.",
          .tested =
              "With gains 1/sqrt(d) a norm's output has norm 1, and in a pre-norm transformer of 8 layers neither the stream nor its "
              "gradient changes by more than a quarter.",
          .recorded = Verdict::holds_if,
          .condition =
              "the model is pre-norm and its embeddings have unit size; in post-norm the first norm shrinks the stream by d and the "
              "gradient by sqrt(d)",
          .correction =
              "Behind a norm of gain g a branch adds g^2 of the variance it would add at g = 1: with g^2 = 1/d the branches are all but "
              "switched off, and the loss starts at ln V because the logits "
              "shrink as well.",
          .why =
              "Pre-norm branches read the norm's output, so the gain scales what they add to the stream: 1/sqrt(d) makes 2N branches add "
              "2N/d of the stream's variance, too little to explode. The price is paid where it does "
              "not show: attention scores shrink by d (attention is uniform), logits by sqrt(d), and with them the gradients of all "
              "matrices. In post-norm the stream itself passes the norm, its size becomes 1/sqrt(d), branches "
              "shrink alike and nothing is gained. A gain of 1 with branches scaled by depth does the same without the price.",
          .settings = {draws(80), {"power", 0.5, "gamma = d^-power", -1, 2}},
          .run = ln_scale_evidence};
}

}  // namespace stepzero::claims
