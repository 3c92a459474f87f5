#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/branches.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/claims/training.hpp"

namespace stepzero::claims {

namespace {

Evidence residual_alpha_evidence(const Settings& s) {
  Evidence e;
  const double alpha = s("alpha");
  const auto deep = [&](int layers) { return Branches{.count = 2 * layers, .scale = alpha, .width = 64, .hidden = 64}; };
  const int shallow = static_cast<int>(s.size("shallow")), far = static_cast<int>(s.size("deep"));
  const Running few = measure_forward(s, 3 * s.draws(), deep(shallow)), many = measure_forward(s, 3 * s.draws(), deep(far));
  const Model model = make_model({.set = {"width=64", "heads=4", "layers=12", residual_scale(alpha)}, .tokens = 12});
  e.at_most(Kind::statement, fmt::format("E[x^2] at the end, {} layers of two branches of unit gain", shallow), 1.5, few);
  e.at_most(Kind::statement, "E[x^2] at the end over the start, pre-norm transformer of 12 layers", 1.5,
            over(measured(model, s, std::max(2, s.draws() / 4)), [](const Signal& x) { return stream(x, 12) / stream(x, 0); }));
  const Course scaled = train_deep(s, "xavier-normal", {"norm_placement=post", residual_scale(alpha)}, static_cast<int>(s.size("runs")));
  e.at_most(Kind::statement, "loss after training / ln V, 12 layers post-norm", 0.5, scaled.last);
  e.at_most(Kind::counter, fmt::format("E[x^2] at the end, {} layers of two branches of unit gain", far), 1.5, many);
  e.equal(Kind::correction, fmt::format("E[x^2] = 1 + 2 N alpha^2, N = {}", shallow), deep(shallow).forward(), few);
  e.equal(Kind::correction, fmt::format("E[x^2] = 1 + 2 N alpha^2, N = {}", far), deep(far).forward(), many);
  e.plot = {fmt::format("growth of the stream, branches times {}", alpha), "layers N", "E[x^2]", true, true};
  Curve measured{"measured", {static_cast<double>(shallow), static_cast<double>(far)}, {few.mean, many.mean}, false},
      normed{"1 + 2 N alpha^2", {}, {}}, bare{"without norms: (1 + alpha^2)^(2N)", {}, {}};
  for (const int layers : {5, 10, 20, 40, 80, 160, 320}) {
    const double a = alpha * alpha;
    for (Curve* c : {&normed, &bare}) c->x.push_back(layers);
    normed.y.push_back(1 + 2 * layers * a);
    bare.y.push_back(std::pow(1 + a, 2 * layers));
  }
  e.plot.curves = {normed, bare, measured};
  e.course = {"training 12 post-norm layers: say the token before", "step", "loss", false, false};
  e.course.curves = {loss_curve(fmt::format("Xavier, branches times {}", alpha), scaled)};
  return e;
}

}  // namespace

Claim residual_alpha() {
  return {
      .id = "residual-alpha",
      .source = kInitialization,
      .statement = "Scale residual connections by alpha = 0.1 initially.",
      .tested =
          "With branches times 0.1 the variance of the stream grows by less than half over the whole depth, and 12 post-norm layers train.",
      .recorded = Verdict::holds_if,
      .condition = "the depth N is well below 1/(2 alpha^2) = 50 layers (branches of unit gain)",
      .correction =
          "E[x^2] = 1 + 2 N alpha^2 v behind norms, (1 + alpha^2 v)^(2N) without: a constant scale is safe to a depth of about 1/(2 "
          "alpha^2), beyond that the scale has to fall with N.",
      .why =
          "Each of 2N branches adds alpha^2 of its variance. For 12 layers that is a quarter at most; at a hundred layers the stream has "
          "three times the variance it began with. The constant 0.1 is 1/sqrt(2N) at N = 50, and the same rule as "
          "residual-depth near that depth. In shallower models it is smaller than need be, which costs a few steps at the start of "
          "training and nothing later.",
      .settings = {draws(80),
                   size("runs", 10, 100, "trainings from different draws"),
                   size("steps", 80, 10000, "of each training"),
                   size("shallow", 12, 400, "layers, few"),
                   size("deep", 100, 400, "layers, many"),
                   {"alpha", 0.1, "the scale", -10, 10}},
      .run = residual_alpha_evidence};
}

}  // namespace stepzero::claims
