// The claims: what each came to is what is recorded, the corrected formulas are right, docs/claims.md is not stale; and
// another statement, or another experiment, has another verdict.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "stepzero/claims/list.hpp"
#include "stepzero/claims/report.hpp"
#include "stepzero/core/student.hpp"

namespace stepzero::claims {
namespace {

std::string test_name(std::string_view id) {
  std::string name(id);
  std::ranges::replace(name, '-', '_');
  return name;
}

std::vector<std::string> ids() {
  std::vector<std::string> list;
  for (const Claim& claim : all()) list.emplace_back(claim.id);
  return list;
}

std::string without_numbers(const std::string& text) {
  static const std::regex numbers(R"([-+]?\d+(\.\d+)?(e[-+]?\d+)?)");
  return std::regex_replace(text, numbers, "#");
}

std::string read(const std::string& path) {
  std::ifstream in(std::string(STEPZERO_SOURCE_DIR) + "/" + path);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

class Claims : public ::testing::TestWithParam<std::string> {};

TEST_P(Claims, ComesOutAsRecordedAndAsTheDocsSay) {
  const Claim& claim = **find(GetParam());
  const Result result{&claim, claim.run(Settings(0, claim.settings))};
  EXPECT_EQ(to_string(result.evidence.verdict()), to_string(claim.recorded)) << page(result);
  for (const Row& row : result.evidence.rows) {
    if (row.kind != Kind::correction || !std::isfinite(row.low) || !std::isfinite(row.high)) continue;
    EXPECT_LE(std::abs(row.measured - row.predicted), 3 * row.error) << row.what << ": " << row.measured << " against " << row.predicted;
    EXPECT_LT(row.error, 0.01 * std::abs(row.measured)) << row.what;
  }
  EXPECT_EQ(claim.recorded == Verdict::holds_if, !claim.condition.empty());
  EXPECT_TRUE(claim.recorded != Verdict::fails || !claim.correction.empty());
  const std::string docs = without_numbers(read("docs/claims.md"));
  EXPECT_NE(docs.find(without_numbers(markdown_section(result))), std::string::npos) << "docs/claims.md is stale: run ./dev docs\n"
                                                                                     << markdown_section(result);
  for (std::size_t i = 0; i < result.evidence.plots().size(); ++i) EXPECT_TRUE(read("docs/" + figure_name(claim, i)).ends_with("</svg>\n"));
  std::istringstream lines(page(result, 80));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80) << line;
}

INSTANTIATE_TEST_SUITE_P(All, Claims, ::testing::ValuesIn(ids()), [](const auto& p) { return test_name(p.param); });

// Another statement (a wrong exponent, fan or factor) or another experiment, and the verdict it has to have.
struct Spoiled {
  const char* id;
  const char* setting;
  double value;
  Verdict verdict;
  int runs = 0;  // trainings that are enough to see it; 0: as many as the claim has
};

const Spoiled spoiled[] = {
    {"product-variance", "power", 0.5, Verdict::fails},
    {"product-variance", "power", 1.05, Verdict::fails},
    {"frobenius", "factor", 1.001, Verdict::fails},
    {"score-moments", "power", 0.9, Verdict::fails},
    {"score-moments", "division", 1, Verdict::fails},
    {"linear-preservation", "numerator", 1, Verdict::undecided},  // the corrected formula is spoiled as well
    {"xavier-normal", "numerator", 1, Verdict::fails},
    {"xavier-uniform", "numerator", 3, Verdict::fails},
    {"he-relu", "numerator", 1, Verdict::undecided},
    {"relu-half", "factor", 0.34085, Verdict::fails},
    {"attention-uniform", "score_variance", 1, Verdict::fails},
    {"softmax-variance", "power", 2, Verdict::fails},
    {"softmax-variance", "score_variance", 1, Verdict::fails},
    {"temperature", "power", 0.25, Verdict::fails},
    {"multihead-variance", "output", 1.2, Verdict::undecided},
    {"pe-norm", "share", 0.5, Verdict::holds},
    {"pe-orthogonal", "power", 1, Verdict::undecided},
    {"pe-formula", "base", 1000, Verdict::fails},
    {"ln-scale", "power", 0.25, Verdict::fails},
    {"ffn-frobenius", "product", 0, Verdict::holds},
    {"zero-bias", "bias", 0.5, Verdict::fails},
    {"residual-depth", "power", 0, Verdict::fails},
    {"residual-alpha", "shallow", 60, Verdict::fails, 2},
    {"identity-attention", "share", 0, Verdict::fails},
    {"lr-decay", "high_rate", 0.002, Verdict::fails, 10},
    {"gradient-bound", "power", 1, Verdict::fails, 2},
    {"forward-flow", "power", 0, Verdict::fails},
    {"backward-flow", "power", 0, Verdict::fails},
    {"key-bias", "of_values", 1, Verdict::fails},
};

class SpoiledClaims : public ::testing::TestWithParam<Spoiled> {};

TEST_P(SpoiledClaims, HaveAnotherVerdict) {
  const Spoiled& p = GetParam();
  const Claim& claim = **find(p.id);
  Settings settings(0, claim.settings);
  settings.set(p.setting, p.value);
  if (p.runs > 0) settings.set("runs", p.runs);
  const Result result{&claim, claim.run(settings)};
  EXPECT_NE(result.evidence.verdict(), claim.recorded);
  EXPECT_EQ(to_string(result.evidence.verdict()), to_string(p.verdict)) << page(result);
}

INSTANTIATE_TEST_SUITE_P(All, SpoiledClaims, ::testing::ValuesIn(spoiled),
                         [](const auto& p) { return test_name(p.param.id) + "_" + std::to_string(p.index); });

TEST(ClaimList, EveryClaimIsSpoiledSomewhere) {
  for (const std::string& id : ids()) {
    EXPECT_TRUE(std::ranges::any_of(spoiled, [&](const Spoiled& s) { return id == s.id; })) << id;
  }
}

TEST(ClaimList, HasAllOfThem) {
  const std::vector<std::string> wanted = {"product-variance",
                                           "frobenius",
                                           "score-moments",
                                           "linear-preservation",
                                           "xavier-normal",
                                           "xavier-uniform",
                                           "he-relu",
                                           "relu-half",
                                           "attention-uniform",
                                           "softmax-variance",
                                           "temperature",
                                           "multihead-variance",
                                           "pe-norm",
                                           "pe-orthogonal",
                                           "pe-formula",
                                           "ln-scale",
                                           "ffn-frobenius",
                                           "zero-bias",
                                           "residual-depth",
                                           "residual-alpha",
                                           "identity-attention",
                                           "lr-decay",
                                           "gradient-bound",
                                           "forward-flow",
                                           "backward-flow",
                                           "key-bias"};
  EXPECT_EQ(ids(), wanted);
  const auto wrong = find("pe-nrom");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().message.find("did you mean pe-norm?"), std::string::npos);
}

Running numbers(double mean, double error) { return {100, mean, error * error * 100 * 99}; }

TEST(ClaimRows, AreDecidedByTheirInterval) {
  const auto outcome = [](double mean, double error, Kind kind = Kind::statement) {
    Evidence e;
    e.equal(kind, "", 1, numbers(mean, error), 0.05);
    return e.rows[0].outcome();
  };
  EXPECT_EQ(outcome(1.0, 0.005), Outcome::agrees);
  EXPECT_EQ(outcome(1.02, 0.005), Outcome::agrees);
  EXPECT_EQ(outcome(1.04, 0.005), Outcome::undecided);  // 5 standard errors reach beyond
  EXPECT_EQ(outcome(1.1, 0.005), Outcome::differs);
  EXPECT_EQ(outcome(1.0, 0.02), Outcome::undecided);
  EXPECT_EQ(outcome(NAN, 0.005), Outcome::undecided);
  EXPECT_EQ(outcome(1.02, 0.002, Kind::correction), Outcome::differs);  // within the tolerance, but biased
  EXPECT_EQ(outcome(1.005, 0.002, Kind::correction), Outcome::agrees);
  Evidence one;
  one.equal(Kind::statement, "", 1, {1, 1, 0});
  EXPECT_EQ(one.rows[0].outcome(), Outcome::undecided);  // one draw does not know its spread
}

TEST(ClaimRows, MakeTheVerdict) {
  const auto verdict = [](std::vector<std::pair<Kind, double>> rows) {
    Evidence e;
    for (const auto& [kind, mean] : rows) e.equal(kind, "", 1, numbers(mean, 0.001));
    return e.verdict();
  };
  using enum Kind;
  constexpr double yes = 1, no = 2, maybe = 1.05;
  EXPECT_EQ(verdict({{statement, yes}}), Verdict::holds);
  EXPECT_EQ(verdict({{statement, no}}), Verdict::fails);
  EXPECT_EQ(verdict({{statement, yes}, {statement, no}}), Verdict::fails);
  EXPECT_EQ(verdict({{statement, maybe}}), Verdict::undecided);
  EXPECT_EQ(verdict({{statement, yes}, {counter, no}}), Verdict::holds_if);
  EXPECT_EQ(verdict({{statement, yes}, {counter, yes}}), Verdict::holds);
  EXPECT_EQ(verdict({{statement, yes}, {counter, no}, {counter, yes}}), Verdict::undecided);
  EXPECT_EQ(verdict({{statement, yes}, {contrast, no}}), Verdict::holds);
  EXPECT_EQ(verdict({{statement, yes}, {contrast, yes}}), Verdict::undecided);
  EXPECT_EQ(verdict({{statement, no}, {correction, yes}}), Verdict::fails);
  EXPECT_EQ(verdict({{statement, no}, {correction, no}}), Verdict::undecided);
  EXPECT_EQ(verdict({{correction, yes}}), Verdict::undecided);
}

TEST(Student, QuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(student_quantile(0.05, 10), 2.2281388520, 1e-8);
  EXPECT_NEAR(student_quantile(0.01, 5), 4.0321429836, 1e-8);
  EXPECT_NEAR(student_quantile(0.001, 30), 3.6459586350, 1e-8);
  EXPECT_NEAR(student_quantile(1e-6, 1e7), 4.8916385, 1e-5);  // normal
  EXPECT_NEAR(student_tail(1, 1), 0.5, 1e-12);                // Cauchy
}

}  // namespace
}  // namespace stepzero::claims
