// What a change of the command line must do to be called a remedy.
#include "stepzero/report/remedies.hpp"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/models/make_input.hpp"
#include "stepzero/report/depth.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "tests/unit/healthy_signal.hpp"
#include "tests/unit/small_model.hpp"

namespace stepzero {
namespace {

Finding found(const char* id, Severity severity, double beyond = 1) { return {id, severity, "model", "", "", {"a number", 2, beyond}}; }

using List = std::vector<Finding>;
const Finding wrong = found("loss-at-start", Severity::warning);

TEST(Remedies, AFindingMustGo) {
  EXPECT_TRUE(removes(wrong, List{wrong}, List{}));
  EXPECT_FALSE(removes(wrong, List{wrong}, List{found("loss-at-start", Severity::note, 0.1)}));
}

TEST(Remedies, NothingAsBadMayCome) {
  EXPECT_FALSE(removes(wrong, List{wrong}, List{found("rank-collapse", Severity::warning)}));
  EXPECT_FALSE(removes(wrong, List{wrong}, List{found("rank-collapse", Severity::error)}));
  EXPECT_TRUE(removes(wrong, List{wrong}, List{found("rank-collapse", Severity::note)}));
}

TEST(Remedies, NothingMayGetWorse) {
  const auto explodes = [](Severity s, double beyond) { return found("signal-explodes", s, beyond); };
  const List before = {explodes(Severity::warning, 3), wrong};
  EXPECT_TRUE(removes(wrong, before, List{explodes(Severity::warning, 3)}));
  EXPECT_FALSE(removes(wrong, before, List{explodes(Severity::warning, 4)})) << "the number";
  EXPECT_FALSE(removes(wrong, before, List{explodes(Severity::error, 3)})) << "the severity";
}

// A model whose loss is wrong until its logits are smaller: other changes do nothing.
TEST(Remedies, OnlyWhatHelpsIsShownWithItsNumbers) {
  Signal sick = testing::healthy_signal();
  sick.loss.predicted = 14;
  sick.findings = diagnose(sick);
  ASSERT_EQ(sick.findings.size(), 1U);
  int quick = 0, sure = 0;
  const Trials trials{[&](const Change& change, bool fast) -> Expected<Signal> {
                        ++(fast ? quick : sure);
                        const bool smaller = change.flags().find("logit_scale") != std::string::npos;
                        return smaller ? testing::healthy_signal() : sick;
                      },
                      [](const Change& change) { return "stepzero predict gpt2 " + change.flags(); }};
  find_remedies(sick, trials, Severity::note);
  const Finding& f = sick.findings.front();
  ASSERT_FALSE(f.remedies.empty());
  for (const Remedy& r : f.remedies) {
    EXPECT_THAT(r.command, ::testing::ContainsRegex("--set logit_scale=0[.][0-9]+"));
    EXPECT_EQ(r.before, 14);
    EXPECT_NEAR(r.after, best(testing::healthy_signal().loss), 1e-12);
  }
  EXPECT_THAT(f.remedy, ::testing::HasSubstr("loss 14 to 10."));
  EXPECT_LE(sure, 5) << "what does not help on a few tokens is not predicted in full";
}

// A healthy encoder-decoder, but for the scores of its two stacks and the loss.
Signal with_scores(double encoder, double decoder, double loss) {
  static const Signal healthy = [] {
    SmallModel m = small_model("t5-small", {"layers=1", "decoder_layers=1", "width=128", "heads=2", "head_dim=64", "ffn=256", "vocab=2000"},
                               "zipf", 1);
    m.batch = make_input(m.a, {.tokens = "zipf", .length = 16}).value();
    return predict(m.graph, m.a, m.batch, **find_scheme("hf"), {.order = Order::limit});
  }();
  Signal s = healthy;
  for (AttentionSignal& a : s.attention) a.score_variance.predicted = a.name.starts_with("encoder.") ? encoder : decoder;
  s.loss.predicted = std::log(static_cast<double>(s.architecture.vocab)) + loss;
  s.findings = diagnose(s);
  return s;
}

// An encoder's error and a decoder's warning of one name: what may come instead of each goes by its own severity.
TEST(Remedies, EachStackGoesByItsOwnSeverity) {
  Signal sick = with_scores(1000, 10, 0);
  const Signal other = with_scores(1, 1, 3);  // another warning instead
  const auto of = [&](const char* stack) {
    return std::ranges::find_if(sick.findings, [&](const Finding& f) { return f.id == "score-variance" && f.where.starts_with(stack); });
  };
  ASSERT_NE(of("encoder"), sick.findings.end());
  ASSERT_NE(of("decoder"), sick.findings.end());
  ASSERT_EQ(of("encoder")->severity, Severity::error);
  ASSERT_EQ(of("decoder")->severity, Severity::warning);
  const Trials trials{[&](const Change& change, bool) -> Expected<Signal> { return change.flags().empty() ? sick : other; },
                      [](const Change& c) { return c.flags(); }, false};
  find_remedies(sick, trials, Severity::warning, 1);
  EXPECT_EQ(of("encoder")->remedies.size(), 1U);
  EXPECT_EQ(of("decoder")->remedies.size(), 0U) << "it brings what is as bad";
}

TEST(Remedies, WhatWasTriedInVainIsSaid) {
  Signal sick = testing::healthy_signal();
  sick.loss.predicted = 14;
  sick.findings = diagnose(sick);
  const Trials trials{[&](const Change&, bool) -> Expected<Signal> { return sick; }, [](const Change& c) { return c.flags(); }};
  find_remedies(sick, trials, Severity::note);
  EXPECT_TRUE(sick.findings.front().remedies.empty());
  EXPECT_THAT(sick.findings.front().remedy, ::testing::HasSubstr("no single change found: --set logit_scale"));
}

// A number that needs a value has it.
TEST(Remedies, EveryCandidateHasItsValue) {
  Signal s = testing::healthy_signal();
  for (const Diagnosis& d : diagnoses()) {
    for (const Change& change : candidates(s, found(d.id, Severity::error))) {
      EXPECT_FALSE(change.flags().empty());
      for (const std::string& set : change.set) EXPECT_THAT(set, ::testing::ContainsRegex("^[a-z_]+=[a-z0-9.+-]+$")) << d.id;
    }
  }
}

}  // namespace
}  // namespace stepzero
