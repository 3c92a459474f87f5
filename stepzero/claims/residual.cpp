#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/branches.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/claims/training.hpp"

namespace stepzero::claims {

namespace {

constexpr Index train_layers = 12;

// Loss after a short training, in units of ln V: 1 is what knows nothing.
Course trained(const Settings& s, const char* scheme, const std::vector<std::string>& more) {
  Description d{.scheme = scheme, .set = {"width=32", "heads=2", "position=sinusoidal", fmt::format("layers={}", train_layers)}};
  d.set.insert(d.set.end(), more.begin(), more.end());
  const Task task{.vocab = 8, .length = 8, .sequences = 6};
  Course c = train_runs(d, task, {.steps = static_cast<int>(s.size("steps")), .rate = 3e-3, .clip = 1, .warmup = 5}, s, static_cast<int>(s.size("runs")));
  const double unit = std::log(static_cast<double>(task.vocab));
  c.final = {c.final.count, c.final.mean / unit, c.final.deviations / (unit * unit)};
  return c;
}

Curve loss_curve(const char* name, const Course& c) {
  Curve out{name, {}, {}};
  for (std::size_t i = 0; i < c.loss.size(); ++i) {
    out.x.push_back(static_cast<double>(i));
    out.y.push_back(c.loss[i]);
  }
  return out;
}

std::string scale_field(double scale) { return fmt::format("residual_scale={}", scale); }

// Slope of ln(growth of the stream's variance) over ln N, for pre-norm transformers of N layers; 0: any depth is alike.
Running slope_with_depth(const Settings& s, double power) {
  const std::vector<double> depths = {4, 8, 16};
  std::vector<std::vector<Signal>> all;
  for (const double n : depths) {
    all.push_back(measured(make_model({.set = {"width=48", "heads=4", fmt::format("layers={}", n), scale_field(std::pow(n, -power))}, .tokens = 8}), s, s.draws()));
  }
  Running r;
  for (std::size_t i = 0; i < all[0].size(); ++i) {
    const auto growth = [&](std::size_t k) { return std::log(stream(all[k][i], static_cast<Index>(depths[k])) / stream(all[k][i], 0)); };
    r.add((growth(2) - growth(0)) / std::log(depths[2] / depths[0]));
  }
  return r;
}

Evidence run_depth(const Settings& s) {
  Evidence e;
  const double n = static_cast<double>(train_layers);
  e.near(Kind::statement, "slope of ln(growth) over ln N, pre-norm transformers, branches times 1/sqrt(N)", 0, slope_with_depth(s, s("power")), 0.1);
  e.near(Kind::contrast, "the same, branches not scaled", 0, slope_with_depth(s, 0), 0.1);
  const Course scaled = trained(s, "xavier-normal", {"norm_placement=post", scale_field(std::pow(n, -s("power")))});
  const Course plain = trained(s, "xavier-normal", {"norm_placement=post"}), deepnet = trained(s, "deepnet", {});
  e.at_most(Kind::statement, "loss after training / ln V, 12 layers post-norm, branches times 1/sqrt(N)", 0.5, scaled.final);
  e.at_most(Kind::contrast, "the same, branches not scaled", 0.5, plain.final);
  e.at_most(Kind::statement, "the same, DeepNet", 0.5, deepnet.final);
  const int depth = 8;
  const Branches one{.count = 2 * depth, .scale = std::pow(depth, -0.5)}, two{.count = 2 * depth, .scale = std::pow(2 * depth, -0.5)};
  Branches bare = two;
  bare.gain = 0;
  e.equal(Kind::correction, "E[x^2] at the end, N = 8, two branches a layer times 1/sqrt(N): 1 + 2", one.forward(), measure_flow(s, s.draws(), one).forward);
  e.equal(Kind::correction, "the same, times 1/sqrt(2N): 1 + 1", two.forward(), measure_flow(s, s.draws(), two).forward);
  e.equal(Kind::correction, "the same without norms, times 1/sqrt(2N): (1 + 1/16)^16, nearly e", bare.forward(), measure_flow(s, 2 * s.draws(), bare).forward);
  e.plot = {"training 12 post-norm layers: say the token before", "step", "loss", false, false};
  e.plot.curves = {loss_curve("Xavier", plain), loss_curve("Xavier, branches times 1/sqrt(N)", scaled), loss_curve("DeepNet", deepnet)};
  return e;
}

Evidence run_alpha(const Settings& s) {
  Evidence e;
  const double alpha = s("alpha");
  const auto deep = [&](int layers) { return Branches{.count = 2 * layers, .scale = alpha, .width = 64, .hidden = 64}; };
  const int shallow = static_cast<int>(s.size("shallow")), far = static_cast<int>(s.size("deep"));
  const Running few = measure_flow(s, s.draws(), deep(shallow)).forward, many = measure_flow(s, s.draws(), deep(far)).forward;
  const Model model = make_model({.set = {"width=64", "heads=4", "layers=12", scale_field(alpha)}, .tokens = 12});
  e.at_most(Kind::statement, fmt::format("E[x^2] at the end, {} layers of two branches of unit gain", shallow), 1.5, few);
  e.at_most(Kind::statement, "E[x^2] at the end over the start, pre-norm transformer of 12 layers", 1.5,
            over(measured(model, s, s.draws()), [](const Signal& x) { return stream(x, 12) / stream(x, 0); }));
  const Course scaled = trained(s, "xavier-normal", {"norm_placement=post", scale_field(alpha)});
  e.at_most(Kind::statement, "loss after training / ln V, 12 layers post-norm", 0.5, scaled.final);
  e.at_most(Kind::counter, fmt::format("E[x^2] at the end, {} layers of two branches of unit gain", far), 1.5, many);
  e.equal(Kind::correction, fmt::format("E[x^2] = 1 + 2 N alpha^2, N = {}", shallow), deep(shallow).forward(), few);
  e.equal(Kind::correction, fmt::format("E[x^2] = 1 + 2 N alpha^2, N = {}", far), deep(far).forward(), many);
  e.plot = {"growth of the stream, branches times 0.1", "layers N", "E[x^2]", true, true};
  Curve measured{"measured", {static_cast<double>(shallow), static_cast<double>(far)}, {few.mean, many.mean}, false}, normed{"1 + 2 N alpha^2", {}, {}}, bare{"without norms: (1 + alpha^2)^(2N)", {}, {}};
  for (const int layers : {5, 10, 20, 40, 80, 160, 320}) {
    const double a = alpha * alpha;
    for (Curve* c : {&normed, &bare}) c->x.push_back(layers);
    normed.y.push_back(1 + 2 * layers * a);
    bare.y.push_back(std::pow(1 + a, 2 * layers));
  }
  e.plot.curves = {normed, bare, measured};
  return e;
}

}  // namespace

Claim residual_depth() {
  return {.id = "residual-depth",
          .source = kInitialization,
          .statement = "Residual connections scale: 1/sqrt(N) for N layers.",
          .tested = "With branches times 1/sqrt(N) the growth of the stream's variance does not depend on the depth N (pre-norm transformers of 4 to 16 layers), and 12 post-norm layers, which do not train under plain Xavier, train: "
                    "70 steps of AdamW on a task that needs attention.",
          .recorded = Verdict::holds,
          .condition = "",
          .correction = "A layer has two branches: with 1/sqrt(N) the variance grows to 1 + 2v, with 1/sqrt(2N) to 1 + v (v a branch's own), whatever N; without norms to e^(2v) and e^v.",
          .why = "Variances of branches add up, and N branches times 1/N add what one would. The same scale keeps deep post-norm models trainable: unscaled, every norm divides the skip path by sqrt(1 + v), tokens grow alike within a dozen "
                 "layers, and the loss stays at ln V. DeepNet reaches the same by a larger skip and smaller matrices. The factor counts branches: GPT-2 uses 1/sqrt(2N) for its 2N of them.",
          .settings = {draws(80), size("runs", 6, 100, "trainings from different draws"), size("steps", 70, 10000, "of each training"), {"power", 0.5, "branches are scaled by N^-power", -1, 2}},
          .run = run_depth};
}

Claim residual_alpha() {
  return {.id = "residual-alpha",
          .source = kInitialization,
          .statement = "Scale residual connections by alpha = 0.1 initially.",
          .tested = "With branches times 0.1 the variance of the stream grows by less than half over the whole depth, and 12 post-norm layers train.",
          .recorded = Verdict::holds_if,
          .condition = "the depth N is well below 1/(2 alpha^2) = 50 layers (branches of unit gain)",
          .correction = "E[x^2] = 1 + 2 N alpha^2 v behind norms, (1 + alpha^2 v)^(2N) without: a constant scale is safe to a depth of about 1/(2 alpha^2), beyond that the scale has to fall with N.",
          .why = "Each of 2N branches adds alpha^2 of its variance. For 12 layers that is a quarter at most; at a hundred layers the stream has three times the variance it began with. The constant 0.1 is 1/sqrt(2N) at N = 50, and the same rule as "
                 "residual-depth near that depth. In shallower models it is smaller than need be, which costs a few steps at the start of training and nothing later.",
          .settings = {draws(80), size("runs", 6, 100, "trainings from different draws"), size("steps", 70, 10000, "of each training"), size("shallow", 12, 400, "layers, few"), size("deep", 100, 400, "layers, many"),
                       {"alpha", 0.1, "the scale", -10, 10}},
          .run = run_alpha};
}

}  // namespace stepzero::claims
