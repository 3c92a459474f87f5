// Steps of real weights: the updates are those of a training run, and what is said of them is what two passes show.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/pass/fill_pass.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/describe.hpp"
#include "stepzero/signal/good_rates.hpp"
#include "stepzero/train/run.hpp"
#include "tests/unit/small_model.hpp"

namespace stepzero {
namespace {

class Steps : public ::testing::Test {
 protected:
  Steps() : m_(small_model("gpt2", {"layers=2", "width=32", "heads=4", "vocab=97", "positions=16", "init_std=0.2"}, "zipf", 12, 2)) {
    set_threads(1);
  }
  ~Steps() override { set_threads(before_); }

  static StepOptions with(OptimizerOptions optimizer, int steps = 1, bool search = false) {
    return {.steps = steps, .optimizer = settled(std::move(optimizer)).value(), .search = search};
  }
  void draw(Pass<float>& pass) const { draw_weights(pass, m_.graph, m_.a, **find_scheme("hf"), 3); }
  Signal run(const StepOptions& options) const {
    Pass<float> pass(m_.graph, m_.batch);
    draw(pass);
    Signal signal = describe(m_.graph, m_.a, m_.batch);
    RealSteps steps(m_.graph, m_.batch, options);
    measure_pass(pass, m_.graph, m_.batch, signal, {}, steps.observer());
    steps.run(pass, signal);
    return signal;
  }
  static const StepSignal::Wire& wire(const StepSignal& s, const std::string& name) {
    return *std::ranges::find(s.wires, name, &StepSignal::Wire::name);
  }
  static const StepSignal::Parameter& parameter(const StepSignal& s, const std::string& name) {
    return *std::ranges::find(s.parameters, name, &StepSignal::Parameter::name);
  }

  SmallModel m_;
  int before_ = threads();
};

std::vector<OptimizerOptions> optimizers() {
  return {{.name = "sgd", .rate = 0.05, .momentum = 0.9, .decay = 0.1, .clip = 0.5},
          {.name = "adamw", .rate = 1e-3, .decay = 0.1},
          {.name = "lion", .rate = 1e-4},
          {.name = "muon", .rate = 0.02}};
}

TEST_F(Steps, UpdateAsTrainingDoes) {
  for (const OptimizerOptions& optimizer : optimizers()) {
    const StepOptions options = with(optimizer, 4);
    const Signal signal = run(options);
    TrainRun<float> train(m_.graph, m_.batch, {.optimizer = options.optimizer}, [](int, int) {});
    draw(train.pass());
    ASSERT_EQ(signal.steps.size(), 4U);
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_NEAR(*signal.steps[k].before.measured, train.step().loss, 2e-5) << optimizer.name << " " << k;
      if (k > 0) EXPECT_EQ(*signal.steps[k].before.measured, *signal.steps[k - 1].after.measured);
    }
    EXPECT_NEAR(*signal.steps[3].after.measured, train.look().loss, 2e-5) << optimizer.name;
  }
}

double rms_of_difference(View<const float> a, View<const float> b) {
  double squares = 0;
  for (Index t = 0; t < a.rows; ++t) {
    for (Index c = 0; c < a.cols; ++c) squares += std::pow(static_cast<double>(a(t, c)) - static_cast<double>(b(t, c)), 2);
  }
  return std::sqrt(squares / static_cast<double>(a.size()));
}

// Everything again, by hand: two passes, and one matrix between them.
TEST_F(Steps, ChangesAreThoseOfTwoPasses) {
  const StepOptions options = with({.name = "adamw", .rate = 3e-3});
  const Signal signal = run(options);
  const StepSignal& s = signal.steps[0];
  Pass<float> old(m_.graph, m_.batch), now(m_.graph, m_.batch);
  draw(old);
  draw(now);
  Optimizer<float> optimizer(m_.graph, options.optimizer);
  old.forward();
  double decrease = 0;
  old.backward({.parameter = [&](int param, View<const float> g) {
    optimizer.take(param, now.weight(param), g);
    double own = 0;
    for (Index i = 0; i < g.size(); ++i) {
      own -= static_cast<double>(g.data[i]) *
             (static_cast<double>(now.weight(param).data[i]) - static_cast<double>(old.weight(param).data[i]));
    }
    const auto k = static_cast<std::size_t>(param);
    EXPECT_NEAR(*s.parameters[k].decrease.measured, own, 1e-5 * std::abs(own) + 1e-9) << m_.graph.params[k].name;
    decrease += own;
  }});
  EXPECT_NEAR(*s.first_order.measured, -decrease, 1e-5 * decrease);
  now.forward();
  for (std::size_t i = 0; i < s.wires.size(); ++i) {
    const double change = rms_of_difference(now.output(static_cast<int>(i)), old.output(static_cast<int>(i)));
    EXPECT_NEAR(*s.wires[i].change.measured, change, 1e-6 * change + 1e-9) << s.wires[i].name;
  }
  const int node = m_.graph.find_node("blocks.1.ffn.in"), x = m_.graph.nodes[static_cast<std::size_t>(node)].inputs[0];
  const ParamUse& use = m_.graph.nodes[static_cast<std::size_t>(node)].params[0];
  const View<const float> w = old.weight(use.param), w_now = now.weight(use.param);  // stored (in, out)
  Tensor<float> of_old(old.output(x).rows, w.cols), by_weights(old.output(x).rows, w.cols), by_input(old.output(x).rows, w.cols);
  gemm_reference<float>(Trans::no, Trans::no, 1, old.output(x), w, 0, of_old.view());
  gemm_reference<float>(Trans::no, Trans::no, 1, old.output(x), w_now, 0, by_weights.view());
  gemm_reference<float>(Trans::no, Trans::no, 1, now.output(x), w, 0, by_input.view());
  const double direct = rms_of_difference(by_weights, of_old), carried = rms_of_difference(by_input, of_old);
  EXPECT_NEAR(*parameter(s, m_.graph.params[static_cast<std::size_t>(use.param)].name).direct_change.measured, direct, 1e-4 * direct);
  EXPECT_NEAR(*wire(s, "blocks.1.ffn.in").carried.measured, carried, 1e-4 * carried);
  const ParamUse& bias = m_.graph.nodes[static_cast<std::size_t>(node)].params[1];
  for (Index t = 0; t < by_weights.rows(); ++t) {
    for (Index c = 0; c < w.cols; ++c) by_weights(t, c) += now.weight(bias.param)(0, c) - old.weight(bias.param)(0, c);
  }
  const double with_bias = rms_of_difference(by_weights, of_old);
  EXPECT_NEAR(*wire(s, "blocks.1.ffn.in").direct.measured, with_bias, 1e-4 * with_bias);
  EXPECT_EQ(*wire(s, "embed.tokens").change.measured, *wire(s, "embed.tokens").direct.measured);
  EXPECT_FALSE(wire(s, "embed.tokens").carried.measured);
  EXPECT_FALSE(wire(s, "blocks.0.ffn.act").direct.measured);
}

TEST_F(Steps, ScoreChangeIsThatOfTheScores) {
  const StepSignal s = run(with({.name = "adamw", .rate = 3e-3})).steps[0];
  // a step that changes nothing changes no score either, and a small one by as much as its rate
  const StepSignal still = run(with({.name = "adamw", .rate = 0})).steps[0];
  for (const auto& a : still.attention) EXPECT_EQ(*a.change.measured, 0);
  for (const auto& w : still.wires) EXPECT_EQ(*w.change.measured, 0) << w.name;
  const StepSignal small = run(with({.name = "adamw", .rate = 3e-5})).steps[0],
                   half = run(with({.name = "adamw", .rate = 1.5e-5})).steps[0];
  for (std::size_t k = 0; k < s.attention.size(); ++k) {
    EXPECT_NEAR(*small.attention[k].change.measured / *half.attention[k].change.measured, 2, 0.02);
  }
}

// <dLoss/dW, dW> is the change of the loss where the step is small.
TEST_F(Steps, FirstOrderIsTheSlope) {
  for (OptimizerOptions optimizer : optimizers()) {
    optimizer.rate = *optimizer.rate * 1e-2;
    optimizer.rate_adamw = 1e-5;
    const StepSignal s = run(with(optimizer)).steps[0];
    EXPECT_NEAR((*s.after.measured - *s.before.measured) / *s.first_order.measured, 1, 0.05) << optimizer.name;
    double sum = 0;
    for (const auto& p : s.parameters) sum += p.decrease.measured.value_or(0);
    EXPECT_NEAR(sum, -*s.first_order.measured, 1e-9);
  }
}

TEST_F(Steps, NormsOfTheUpdate) {
  const StepSignal s = run(with({.name = "lion", .rate = 1e-3})).steps[0];
  const auto& p = parameter(s, "transformer.h.1.mlp.c_fc.weight");  // signs: norm rate sqrt(size)
  EXPECT_NEAR(*p.update_norm.measured, 1e-3 * std::sqrt(32.0 * 128), 1e-6);
  EXPECT_GT(*p.spectral_norm.measured, *p.update_norm.measured / std::sqrt(32.0));
  EXPECT_LT(*p.spectral_norm.measured, *p.update_norm.measured);
  const StepSignal muon = run(with({.name = "muon", .rate = 0.01})).steps[0];
  const auto& q = parameter(muon, "transformer.h.1.mlp.c_fc.weight");  // every singular value sqrt(out / in) = 2
  EXPECT_NEAR(*q.spectral_norm.measured, 0.02, 1e-5);
  EXPECT_FALSE(parameter(muon, "transformer.h.1.mlp.c_fc.bias").spectral_norm.measured);
}

TEST_F(Steps, SearchGoesThroughTheStep) {
  const StepSignal s = run(with({.name = "adamw", .rate = 1e-3}, 1, true)).steps[0];
  ASSERT_EQ(s.rates.size(), searched_rates().size());
  for (const auto& r : s.rates) {
    if (r.rate == 1e-3) EXPECT_NEAR(*r.loss.measured, *s.after.measured, 1e-5);
  }
  const GoodRates good = good_rates(s);
  ASSERT_TRUE(good.best && good.low && good.high);
  EXPECT_TRUE(*good.low < *good.best && *good.best < *good.high);
}

// loss = 1 - r + 5 r^2: best at 0.1, as before at 0.2, 90 % of the most at 0.1 (1 +- sqrt(0.1))
TEST(GoodRates, OfAParabola) {
  StepSignal s;
  s.before.measured = 1;
  for (double r = 1e-3; r < 1; r *= 1.1) {
    s.rates.push_back({.rate = r});
    s.rates.back().loss.measured = 1 - r + 5 * r * r;
  }
  const GoodRates good = good_rates(s);
  EXPECT_NEAR(good.best.value_or(0), 0.1, 0.002);
  EXPECT_NEAR(good.stops.value_or(0), 0.2, 0.002);
  EXPECT_NEAR(good.low.value_or(0), 0.1 * (1 - std::sqrt(0.1)), 0.002);
  EXPECT_NEAR(good.high.value_or(0), 0.1 * (1 + std::sqrt(0.1)), 0.002);
}

TEST(GoodRates, WhereThereAreNone) {
  StepSignal s;
  EXPECT_FALSE(good_rates(s).best);
  s.before.measured = 1;
  for (const double r : {1.0, 2.0, 4.0}) s.rates.push_back({.rate = r});
  for (auto& r : s.rates) r.loss.measured = 1 + r.rate;
  EXPECT_FALSE(good_rates(s).best);  // every step raises the loss
  for (auto& r : s.rates) r.loss.measured = 1 / (1 + r.rate);
  EXPECT_TRUE(good_rates(s).best);
  EXPECT_FALSE(good_rates(s).stops);  // none does
  EXPECT_FALSE(good_rates(s).high);
  s.rates.back().loss.measured = NAN;  // not finite: it does not lower the loss
  EXPECT_TRUE(good_rates(s).stops);
}

Signal measured(const SmallModel& m, MeasureOptions options) {
  options.scheme = *find_scheme("hf");
  return measure(m.graph, m.a, m.batch, options).value();
}

std::vector<double> values(const Signal& signal) {
  std::vector<double> all;
  for_each_value(signal, [&](const Value& v, Average, const auto&, const char*) { all.push_back(v.measured.value_or(-7)); });
  return all;
}

TEST_F(Steps, SameBitsForAnyNumberOfThreads) {
  for (const bool weightless : {false, true}) {
    for (const OptimizerOptions& optimizer : optimizers()) {
      MeasureOptions options{.weightless = weightless, .step = with(optimizer, 1, true), .seeds = 2};
      set_threads(1);
      const Signal one = measured(m_, options);
      set_threads(3);
      EXPECT_EQ(values(one), values(measured(m_, options))) << optimizer.name << weightless;
      EXPECT_EQ(one.steps[0].rates.empty(), weightless);
    }
  }
}

TEST_F(Steps, SeedsAreAveraged) {
  MeasureOptions options{.step = with({.name = "adamw"}, 2)};
  const Signal first = measured(m_, options);
  options.seed = 1;
  const Signal second = measured(m_, options);
  options.seed = 0, options.seeds = 2;
  const Signal both = measured(m_, options);
  const double a = *first.steps[1].wires[3].change.measured, b = *second.steps[1].wires[3].change.measured;
  EXPECT_NEAR(*both.steps[1].wires[3].change.measured, std::sqrt((a * a + b * b) / 2), 1e-12);
  EXPECT_TRUE(both.steps[1].wires[3].change.standard_error);
}

// More tokens than channels: every matrix is there, and the weightless step is the real one.
TEST_F(Steps, WeightlessOfSmallMatricesIsReal) {
  const SmallModel small =
      small_model("gpt2", {"layers=2", "width=16", "heads=2", "ffn=16", "vocab=97", "positions=16", "init_std=0.2"}, "zipf", 10, 2);
  for (const OptimizerOptions& optimizer : optimizers()) {
    MeasureOptions options{.step = with(optimizer)};
    const Signal real = measured(small, options);
    options.weightless = true;
    const Signal lazy = measured(small, options);
    for (std::size_t i = 0; i < real.steps[0].wires.size(); ++i) {
      const auto &a = real.steps[0].wires[i], &b = lazy.steps[0].wires[i];
      EXPECT_NEAR(*a.change.measured, *b.change.measured, 1e-6 * *a.change.measured) << optimizer.name << " " << a.name;
    }
    for (std::size_t k = 0; k < real.steps[0].parameters.size(); ++k) {
      const auto &a = real.steps[0].parameters[k], &b = lazy.steps[0].parameters[k];
      EXPECT_NEAR(*a.update_norm.measured, *b.update_norm.measured, 1e-5 * *a.update_norm.measured) << optimizer.name << " " << a.name;
      EXPECT_NEAR(*a.decrease.measured, *b.decrease.measured, 1e-5 * std::abs(*a.decrease.measured) + 1e-9)
          << optimizer.name << " " << a.name;
    }
  }
}

TEST_F(Steps, WeightlessKnowsOneStep) {
  MeasureOptions options{.scheme = *find_scheme("hf"), .weightless = true, .step = with({.name = "adamw"}, 2)};
  const auto refused = measure(m_.graph, m_.a, m_.batch, options);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("2 steps"), std::string::npos);
}

}  // namespace
}  // namespace stepzero
