// What `step` says: the two curves apart, the findings on both sides of their thresholds, predicted beside measured.
#include <cmath>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/parallel.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/report/check_step.hpp"
#include "stepzero/report/step.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero {
namespace {

class StepVerb : public ::testing::Test {
 protected:
  StepVerb() { set_threads(1); }
  ~StepVerb() override { set_threads(before_); }

  // A step of which nothing stands out.
  static StepSubject calm() {
    StepSubject s;
    StepSignal step;
    step.wires.push_back({.name = "stream.1"});
    step.wires.back().relative.measured = 0.5;
    step.wires.push_back({.name = "logits"});
    step.logits = 1;
    step.attention.push_back({.name = "blocks.0.attn"});
    step.attention.back().change.measured = 0.5;
    step.before.measured = 3;
    step.after.measured = 2.9;
    s.signal.optimizer = {.name = "adamw", .rate = 1e-3, .settings = {}};
    s.signal.steps.push_back(step);
    return s;
  }
  static std::vector<std::string> found(const StepSubject& s) {
    std::vector<std::string> ids;
    for (const Finding& f : diagnose_step(s)) ids.push_back(f.id);
    return ids;
  }

  int before_ = threads();
};

TEST_F(StepVerb, FindingsOnBothSides) {
  using Ids = std::vector<std::string>;
  EXPECT_EQ(found(calm()), Ids{});
  StepSubject s = calm();
  s.signal.steps[0].wires[0].relative.measured = 1.01;
  EXPECT_EQ(found(s), Ids{"step-moves-stream"});
  s = calm();
  s.signal.steps[0].attention[0].change.measured = 1.01;
  EXPECT_EQ(found(s), Ids{"step-moves-scores"});
  s = calm();
  s.below_eps = {0.51};
  s.below_eps_of_all = 0.49;
  EXPECT_EQ(found(s), Ids{});
  s.below_eps_of_all = 0.51;
  EXPECT_EQ(found(s), Ids{"step-below-eps"});
  s = calm();
  s.signal.steps[0].after.measured = 3.01;
  EXPECT_EQ(found(s), Ids{"step-raises-loss"});
}

TEST_F(StepVerb, TwoCurvesApart) {
  StepSignal step;
  step.before.predicted = step.before.measured = 1;
  for (int k = 0; k < 9; ++k) {
    const double x = std::ldexp(1.0, k);
    StepSignal::Rate r{.rate = x};
    r.loss.predicted = 1 - x / 8 + x * x / 128;  // lowest at 8
    r.loss.measured = 1 - x / 2 + x * x / 8;     // at 2
    step.rates.push_back(r);
  }
  const double vertex = std::pow(2, -0.3);  // of the parabola through decreases of 3/8, 1/2 and 0
  EXPECT_NEAR(*predicted_rates(step).best, 8 * vertex, 1e-9);
  EXPECT_NEAR(*measured_rates(step).best, 2 * vertex, 1e-9);
  EXPECT_NEAR(*measured_rates(step).stops, 4, 1e-9);
}

// Predicted and measured numbers of one name are of one thing: they agree to a tenth and a bit.
TEST_F(StepVerb, PredictedBesideMeasured) {
  const auto model = Model::load({.model = "gpt2", .set = {"layers=2", "width=64", "heads=2", "vocab=97", "positions=16"}});
  StepRequest r;
  r.optimizer = {.name = "adamw", .rate = 1e-3};
  r.input.length = 12;
  r.measured = true;
  r.search = false;
  r.seeds = 8;
  const auto done = model->step(r);
  ASSERT_TRUE(done) << done.error().message;
  const StepSubject& s = done->subject();
  const StepSignal& step = s.step();
  const auto near = [](const Value& v, double share, const std::string& what) {
    ASSERT_TRUE(v.predicted && v.measured) << what;
    EXPECT_NEAR(*v.predicted / *v.measured, 1, share) << what;
  };
  near(step.wires[step.logits].relative, 0.1, "logits");
  near(step.first_order, 0.15, "first order");
  const auto json = nlohmann::json::parse(done->json());
  EXPECT_EQ(json["schema"], "stepzero.step/1");
  ASSERT_EQ(json["streams"].size(), 3U);
  double shares = 0;
  for (const auto& p : json["parameters"]) shares += p["decrease"]["measured"].get<double>();
  EXPECT_NEAR(shares, 1, 1e-9);
  const std::string text = step_text(s, {}, true);
  EXPECT_NE(text.find("measured"), std::string::npos);
  EXPECT_NE(text.find("transformer.h.1.mlp.c_fc.weight"), std::string::npos);
}

// Models that are more than one stream of tokens, heads of their own and matrices of their own: streams, scores and logits within a sixth,
// or five errors of the measurement.
TEST_F(StepVerb, EveryKindOfModel) {
  struct Kind {
    const char* preset;
    std::vector<std::string> set;
    const char* optimizer;
    double rate;
    Index length = 12;
  };
  const std::vector<Kind> kinds = {
      {"t5-small",
       {"width=128", "heads=4", "head_dim=32", "ffn=192", "decoder_layers=2"},
       "adamw",
       1e-4},                                                                      // other tokens, biases of scores
      {"bart-base", {"width=120", "ffn=240", "decoder_layers=2"}, "adamw", 1e-4},  // a table used three times
      {"bart-base", {"width=120", "ffn=240", "decoder_layers=2"}, "sgd", 1e-3},
      {"mixtral-8x7b", {"width=128", "heads=4", "kv_heads=2", "ffn=192"}, "adamw", 1e-4},  // experts
      {"mixtral-8x7b", {"width=128", "heads=4", "kv_heads=2", "ffn=192"}, "sgd", 1e-2},
      {"pythia-70m", {"width=128", "heads=4", "ffn=256"}, "sgd", 1e-2},  // one tensor, head by head
      {"vit-base", {"width=96", "heads=3", "ffn=192", "image=48", "positions=10"}, "adamw", 1e-4, 0},
  };
  for (const Kind& kind : kinds) {
    std::vector<std::string> set = {"layers=2"};
    if (kind.length > 0) set.emplace_back("vocab=211");
    set.insert(set.end(), kind.set.begin(), kind.set.end());
    const auto model = Model::load({.model = kind.preset, .set = set});
    ASSERT_TRUE(model) << kind.preset << " " << model.error().message;
    StepRequest r;
    r.optimizer = {.name = kind.optimizer, .rate = kind.rate};
    if (kind.length > 0) r.input.length = kind.length;
    r.measured = true;
    r.search = false;
    r.seeds = 8;
    const auto done = model->step(r);
    ASSERT_TRUE(done) << kind.preset << " " << done.error().message;
    const StepSignal& step = done->subject().step();
    const auto near = [&](const Value& v, const std::string& what) {
      ASSERT_TRUE(v.predicted && v.measured) << what;
      EXPECT_NEAR(*v.predicted, *v.measured, std::abs(*v.measured) / 6 + 5 * v.standard_error.value_or(0))
          << kind.preset << " " << kind.optimizer << " " << what;
    };
    for (const StepSignal::Wire& w : step.wires) {
      if (place_of(w.name).is_stream() || &w == &step.wires[step.logits]) near(w.relative, w.name);
    }
    for (const auto& a : step.attention) near(a.change, a.name);
    near(step.first_order, "first order");
  }
}

TEST_F(StepVerb, MeasuredAlone) {
  const auto model = Model::load({.model = "gpt2", .set = {"layers=1", "width=32", "heads=2", "vocab=97", "positions=16"}});
  StepRequest r;
  r.optimizer.name = "sgd";
  r.input.length = 8;
  r.predicted = false;
  r.measured = true;
  r.seeds = 1;
  const auto done = model->step(r);
  ASSERT_TRUE(done) << done.error().message;
  const StepSubject& s = done->subject();
  EXPECT_FALSE(s.step().before.predicted);
  EXPECT_TRUE(measured_rates(s.step()).best);
}

}  // namespace
}  // namespace stepzero
