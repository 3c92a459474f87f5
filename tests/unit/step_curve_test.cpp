// The curve of the loss over the rate from a few rates, and what is said once for layers that are alike.
#include <cmath>

#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/ops/move/likeness.hpp"
#include "stepzero/signal/good_rates.hpp"
#include "stepzero/stepzero.hpp"
#include "stepzero/theory/step_curve.hpp"

namespace stepzero {
namespace {

std::vector<double> two_to_the(int from, int to) {
  std::vector<double> out;
  for (int k = from; k <= to; ++k) out.push_back(std::ldexp(1.0, k));
  return out;
}

TEST(StepCurve, WalksEverySecondFactorUpToWhereNothingIsKnown) {
  EXPECT_EQ(walked_factors(two_to_the(-8, 14), 1, 10),
            (std::vector<double>{1.0 / 256, 1.0 / 64, 1.0 / 16, 0.25, 1, 4, 16, 64, 256, 1024, 4096}));
  // ten thousand times the loss to first order at 2^14
  EXPECT_EQ(walked_factors(two_to_the(-8, 14), 10, 10).back(), 256) << "then ten times more than a thousand times the loss";
  // where the least factors are as good as none
  EXPECT_GE(walked_factors(two_to_the(-8, 14), 1e-2, 10).front(), 1.0 / 64);
  EXPECT_EQ(walked_factors({0.5, 1, 2}, 1, 10), (std::vector<double>{0.5, 1, 2}));
  EXPECT_TRUE(walked_factors({}, 1, 10).empty());
}

// A curve that saturates and comes back, as those of transformers do.
double saturating(double f) { return 5 * f / (1 + 3 * f) - 0.004 * f; }

TEST(StepCurve, IsBetweenTheRatesThatWereWalked) {
  const std::vector<double> walked = walked_factors(two_to_the(-8, 14), 5, 10);
  std::vector<double> decreases;
  for (const double f : walked) decreases.push_back(saturating(f));
  const DecreaseCurve curve(5 - 0.004, walked, decreases);
  for (const double f : two_to_the(-8, 14)) {
    if (f > walked.back()) {
      EXPECT_FALSE(curve.at(f)) << "nothing is known there";
      continue;
    }
    ASSERT_TRUE(curve.at(f));
    if (saturating(f) < 0) continue;
    const double share = f <= 16 ? 0.01 : 0.15;  // up to the best; beyond it as much as is wanted of the prediction itself
    EXPECT_NEAR(*curve.at(f), saturating(f), share * saturating(f) + 1e-3) << f;
  }
  EXPECT_NEAR(*curve.at(1e-4), saturating(1e-4), 1e-6) << "below: by the slope";
}

TEST(StepCurve, RatesWithoutALossAreNoEnd) {
  StepSignal step;
  step.before.predicted = 10;
  for (const double f : two_to_the(0, 6)) {
    StepSignal::Rate r{.rate = f};
    if (f < 16) r.loss.predicted = 10 - f;
    step.rates.push_back(r);
  }
  const GoodRates g = good_rates(step, &Value::predicted);
  EXPECT_NEAR(*g.best, 8, 1e-9);
  EXPECT_FALSE(g.stops) << "what is not known is not a rise";
}

TEST(StepCurve, TheFirstDescentEndsWhereItRises) {
  StepSignal step;
  step.before.predicted = 10;
  const std::vector<double> decreases = {1, 2, 3, 2.5, 2.4, 4, -1};
  for (std::size_t i = 0; i < decreases.size(); ++i) {
    StepSignal::Rate r{.rate = std::ldexp(1.0, static_cast<int>(i))};
    r.loss.predicted = 10 - decreases[i];
    step.rates.push_back(r);
  }
  const GoodRates whole = good_rates(step, &Value::predicted), first = good_rates(step, &Value::predicted, Descent::first);
  EXPECT_GT(*whole.best, 20);
  EXPECT_GT(*first.best, 3);
  EXPECT_LT(*first.best, 6);
  EXPECT_LT(*first.high, 8.1);
  EXPECT_EQ(*first.stops, *whole.stops);
}

TEST(Dependence, IsTheRatioOnTheDiagonalAndBesideIt) {
  const Square apart = Square::from(4, [](Index t, Index s) { return t == s ? 2.0 : 0.5; });
  const Square together = Square::from(4, [](Index t, Index s) { return t == s ? 5.0 : 0.75; });
  const Square again = Dependence(together, apart).times(apart);
  EXPECT_NEAR(again(1, 1), 5, 1e-12);
  EXPECT_NEAR(again(1, 2), 0.75, 1e-12);
  EXPECT_NEAR(Dependence(together, apart).times(apart, 0.5)(1, 1), 3.5, 1e-12);
  EXPECT_NEAR(Dependence().times(apart)(0, 1), 0.5, 1e-12);
}

// Layers that are alike are drawn once in a while, and with more effort all are.
TEST(StepWalk, LayersThatAreAlike) {
  const int before = threads();
  set_threads(1);
  const auto model = Model::load({.model = "llama-2-7b",
                                  .set = {"layers=5", "width=64", "heads=4", "kv_heads=2", "ffn=160", "vocab=97", "positions=16"},
                                  .scheme = "xavier-normal"});
  ASSERT_TRUE(model);
  StepRequest r{.input = {.length = 16}, .optimizer = {.rate = 3e-4}, .search = false};
  const auto few = model->step(r);
  r.effort = 2;
  const auto all = model->step(r);
  ASSERT_TRUE(few && all);
  const StepSignal &a = few->signal().steps[0], &b = all->signal().steps[0];
  const auto near = [](const Value& x, const Value& y, double share) { EXPECT_NEAR(*x.predicted / *y.predicted, 1, share); };
  near(a.wires[a.logits].change, b.wires[b.logits].change, 0.05);
  near(a.first_order, b.first_order, 0.05);
  near(a.attention[4].change, b.attention[4].change, 0.15);
  set_threads(before);
}

}  // namespace
}  // namespace stepzero
