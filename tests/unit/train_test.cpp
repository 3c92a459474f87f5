// The train walk: each optimiser's step against its formula, and what clipping, warmup and layer-wise rates do to it.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "stepzero/claims/training.hpp"
#include "stepzero/pass/fill_pass.hpp"

namespace stepzero {
namespace {

struct Weights {
  std::vector<std::vector<float>> values, gradients;
};

class Train : public ::testing::Test {
 protected:
  Train() : model_(claims::make_model({.set = {"layers=2", "width=8", "heads=2", "vocab=11"}, .tokens = 5})) {}

  // Weights before, the first gradient, and the weights after `steps` steps.
  Weights start() {
    Pass<float> pass(model_.graph, model_.batch);
    draw_weights(pass, model_.graph, model_.laws, 7);
    Weights w;
    w.gradients.resize(model_.graph.params.size());
    pass.forward();
    pass.backward({.parameter = [&](int param, View<const float> d) {
      w.gradients[static_cast<std::size_t>(param)].assign(d.data, d.data + d.size());
    }});
    w.values = values(pass);
    return w;
  }
  std::vector<std::vector<float>> after(const TrainOptions& options, int steps = 1) {
    TrainRun<float> run(model_.graph, model_.batch, options, [](int, int) {});
    draw_weights(run.pass(), model_.graph, model_.laws, 7);
    course_.clear();
    while (run.updates() < steps) course_.push_back(run.step());
    return values(run.pass());
  }
  std::vector<std::vector<float>> values(Pass<float>& pass) const {
    std::vector<std::vector<float>> all;
    for (std::size_t i = 0; i < model_.graph.params.size(); ++i) {
      const View<float> w = pass.weight(static_cast<int>(i));
      all.emplace_back(w.data, w.data + w.size());
    }
    return all;
  }
  // w - rate * share * step(gradient), everywhere
  template <class F>
  void expect_step(const TrainOptions& options, const F& step) {
    const Weights before = start();
    const auto now = after(options);
    for (std::size_t i = 0; i < now.size(); ++i) {
      for (std::size_t k = 0; k < now[i].size(); ++k) {
        const double want = static_cast<double>(before.values[i][k]) -
                            step(i, static_cast<double>(before.gradients[i][k]), static_cast<double>(before.values[i][k]));
        ASSERT_NEAR(static_cast<double>(now[i][k]), want, 2e-6) << model_.graph.params[i].name << " " << k;
      }
    }
  }
  double norm_of_gradient() {
    double squares = 0;
    for (const auto& g : start().gradients) {
      for (const float x : g) squares += static_cast<double>(x) * static_cast<double>(x);
    }
    return std::sqrt(squares);
  }

  claims::Model model_;
  std::vector<TrainStep> course_;
};

TrainOptions sgd(double rate, double clip = 0, double momentum = 0) {
  return {.optimizer = settled({.name = "sgd", .rate = rate, .momentum = momentum, .clip = clip}).value()};
}

TEST_F(Train, SgdStepsAlongTheGradient) {
  expect_step(sgd(0.5), [](std::size_t, double g, double) { return 0.5 * g; });
  EXPECT_NEAR(course_[0].gradient_norm, norm_of_gradient(), 1e-5);
}

TEST_F(Train, AdamWsFirstStepIsTheSignAndTheDecay) {
  for (const bool matrices : {false, true}) {
    const OptimizerOptions adamw{.rate = 0.01, .eps = 1e-12, .decay = 0.3, .decay_matrices = matrices};
    expect_step({.optimizer = settled(adamw).value()}, [&](std::size_t i, double g, double w) {
      const double sign = std::abs(g) < 1e-9 ? g / (std::abs(g) + 1e-12) : g < 0 ? -1 : 1;
      return 0.01 * sign + (!matrices || model_.graph.params[i].rows() > 1 ? 0.01 * 0.3 * w : 0);
    });
  }
}

TEST_F(Train, ClippingShrinksTheWholeGradient) {
  const double norm = norm_of_gradient();
  expect_step(sgd(1, norm / 4), [](std::size_t, double g, double) { return g / 4; });
  expect_step(sgd(1, norm * 4), [](std::size_t, double g, double) { return g; });
}

TEST_F(Train, WarmupStartsSmall) {
  TrainOptions options = sgd(1);
  options.schedule.warmup = 10;
  expect_step(options, [](std::size_t, double g, double) { return g / 10; });
  EXPECT_EQ(course_[0].rate, 0.1);
}

TEST_F(Train, LayersDecayFromEitherEnd) {
  for (const bool from_output : {false, true}) {
    TrainOptions options = sgd(1);
    options.rates = claims::layer_decay(2, 0.5, from_output);
    const auto share = [&](Role role, int layer) {
      Param p;
      p.role = role;
      p.layer = layer;
      return options.rates.apply(p, {.rate = 1, .decay = 0, .eps = 0}).rate;
    };
    EXPECT_EQ(share(Role::token_embedding, -1), from_output ? 0.125 : 1);
    EXPECT_EQ(share(Role::query, 0), from_output ? 0.25 : 0.5);
    EXPECT_EQ(share(Role::query, 1), from_output ? 0.5 : 0.25);
    EXPECT_EQ(share(Role::head, -1), from_output ? 1 : 0.125);
    expect_step(options, [&](std::size_t i, double g, double) {
      const Param& p = model_.graph.params[i];
      return share(p.role, p.layer) * g;
    });
  }
}

TEST_F(Train, PartsOfABatchMakeTheirMean) {
  TrainOptions options = sgd(0.5);
  options.accumulate = 3;
  expect_step(options, [](std::size_t, double g, double) { return 0.5 * g; });  // the same batch three times
  EXPECT_NEAR(course_[0].gradient_norm, norm_of_gradient(), 1e-5);
}

TEST_F(Train, MomentumAddsTheStepBefore) {
  const Weights before = start();
  const auto one = after(sgd(1e-3, 0, 0.9));
  const auto two = after(sgd(1e-3, 0, 0.9), 2);
  double first = 0, second = 0, together = 0;  // the gradient hardly changes: the second step is 1.9 times the first
  for (std::size_t i = 0; i < one.size(); ++i) {
    for (std::size_t k = 0; k < one[i].size(); ++k) {
      const double a = static_cast<double>(one[i][k] - before.values[i][k]), b = static_cast<double>(two[i][k] - one[i][k]);
      first += a * a;
      second += b * b;
      together += a * b;
    }
  }
  EXPECT_NEAR(together / first, 1.9, 0.02);
  EXPECT_NEAR(second / first, 1.9 * 1.9, 0.08);
}

TEST(TrainRuns, LearnATaskThatNeedsAttention) {
  using namespace claims;
  const Settings settings(3, {});
  const Task task{.vocab = 8, .length = 8, .sequences = 8};
  const Training options{.steps = 80, .rate = 3e-3};
  const Course learns = train_runs({.set = {"width=32", "heads=2", "position=sinusoidal", "layers=3"}}, task, options, settings, 2);
  const Course blind =
      train_runs({.set = {"width=32", "heads=2", "position=sinusoidal", "layers=3", "window=1"}}, task, options, settings, 2);
  EXPECT_LT(learns.last.mean, 0.5);
  EXPECT_GT(blind.last.mean, 0.9 * std::log(8.0));  // sees its own token only
  const Course again = train_runs({.set = {"width=32", "heads=2", "position=sinusoidal", "layers=3"}}, task, options, settings, 2);
  EXPECT_EQ(again.loss, learns.loss);
}

TEST(TrainRuns, EndsWhereTheLossIsNotFinite) {
  const claims::Model m = claims::make_model({.set = {"layers=1", "width=8", "heads=2", "vocab=11"}, .tokens = 5});
  TrainRun<float> run(m.graph, m.batch, sgd(0.1), [](int, int) {});
  draw_weights(run.pass(), m.graph, m.laws, 7);
  for (std::size_t i = 0; i < m.graph.params.size(); ++i) {
    if (m.graph.params[i].role == Role::value) run.pass().weight(static_cast<int>(i))(0, 0) = std::numeric_limits<float>::infinity();
  }
  EXPECT_FALSE(std::isfinite(run.step().loss));
  EXPECT_TRUE(run.over());
  EXPECT_EQ(run.updates(), 0);
  EXPECT_EQ(run.where(), "blocks.0.attn.v");
}

}  // namespace
}  // namespace stepzero
