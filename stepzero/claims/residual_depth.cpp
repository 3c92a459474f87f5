#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/branches.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/claims/training.hpp"

namespace stepzero::claims {

namespace {

// Slope of ln(growth of the stream's variance) over ln N, for pre-norm transformers of N layers; 0: any depth is alike.
Running slope_with_depth(const Settings& s, double power) {
  const std::vector<double> depths = {4, 16};
  std::vector<std::vector<Signal>> all;
  for (const double n : depths) {
    all.push_back(measured(
        make_model({.set = {"width=48", "heads=4", fmt::format("layers={}", n), residual_scale(std::pow(n, -power))}, .tokens = 8}), s,
        s.draws()));
  }
  Running r;
  for (std::size_t i = 0; i < all[0].size(); ++i) {
    const auto growth = [&](std::size_t k) { return std::log(stream(all[k][i], static_cast<Index>(depths[k])) / stream(all[k][i], 0)); };
    r.add((growth(1) - growth(0)) / std::log(depths[1] / depths[0]));
  }
  return r;
}

Evidence residual_depth_evidence(const Settings& s) {
  Evidence e;
  const double n = static_cast<double>(kDeepLayers);
  const int runs = static_cast<int>(s.size("runs"));
  e.near(Kind::statement, "slope of ln(growth) over ln N, pre-norm transformers, branches times 1/sqrt(N)", 0,
         slope_with_depth(s, s("power")), 0.1);
  e.near(Kind::contrast, "the same, branches not scaled", 0, slope_with_depth(s, 0), 0.1);
  const Course scaled = train_deep(s, "xavier-normal", {"norm_placement=post", residual_scale(std::pow(n, -s("power")))}, runs);
  const Course plain = train_deep(s, "xavier-normal", {"norm_placement=post"}, runs), deepnet = train_deep(s, "deepnet", {}, runs);
  e.at_most(Kind::statement, "loss after training / ln V, 12 layers post-norm, branches times 1/sqrt(N)", 0.5, scaled.last);
  e.at_most(Kind::contrast, "the same, plain Xavier: branches not scaled", 0.5, plain.last);
  e.at_most(Kind::statement, "the same, DeepNet", 0.5, deepnet.last);
  const int depth = 8;
  const Branches one{.count = 2 * depth, .scale = std::pow(depth, -0.5)}, two{.count = 2 * depth, .scale = std::pow(2 * depth, -0.5)};
  Branches bare = two;
  bare.gain = 0;
  e.equal(Kind::correction, "E[x^2] at the end, N = 8, two branches a layer times 1/sqrt(N): 1 + 2", one.forward(),
          measure_forward(s, 2 * s.draws(), one));
  e.equal(Kind::correction, "the same, times 1/sqrt(2N): 1 + 1", two.forward(), measure_forward(s, 2 * s.draws(), two));
  e.equal(Kind::correction, "the same without norms, times 1/sqrt(2N): (1 + 1/16)^16, nearly e", bare.forward(),
          measure_forward(s, 4 * s.draws(), bare));
  e.plot = {"training 12 post-norm layers: say the token before", "step", "loss", false, false};
  e.plot.curves = {loss_curve("Xavier", plain), loss_curve("Xavier, branches times 1/sqrt(N)", scaled), loss_curve("DeepNet", deepnet)};
  return e;
}

}  // namespace

Claim residual_depth() {
  return {.id = "residual-depth",
          .source = kInitialization,
          .statement = "Residual connections scale: 1/sqrt(N) for N layers.",
          .tested =
              "With branches times 1/sqrt(N) the growth of the stream's variance does not depend on the depth N (pre-norm transformers of "
              "4 to 16 layers), and 12 post-norm layers, which do not train under plain Xavier, train: "
              "80 steps of AdamW on a task that needs attention.",
          .recorded = Verdict::holds,
          .condition = "",
          .correction =
              "A layer has two branches: with 1/sqrt(N) the variance grows to 1 + 2v, with 1/sqrt(2N) to 1 + v (v a branch's own), "
              "whatever N; without norms to e^(2v) and e^v.",
          .why =
              "Variances of branches add up, and N branches times 1/N add what one would. The same scale keeps deep post-norm models "
              "trainable: unscaled, every norm divides the skip path by sqrt(1 + v), tokens grow alike within a dozen "
              "layers, and the loss stays at ln V. DeepNet reaches the same by a larger skip and smaller matrices. The factor counts "
              "branches: GPT-2 uses 1/sqrt(2N) for its 2N of them.",
          .settings = {draws(80),
                       size("runs", 10, 100, "trainings from different draws"),
                       size("steps", 80, 10000, "of each training"),
                       {"power", 0.5, "branches are scaled by N^-power", -1, 2}},
          .run = residual_depth_evidence};
}

}  // namespace stepzero::claims
