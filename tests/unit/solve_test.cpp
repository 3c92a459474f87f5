// solve: the rules of papers come out of their objectives, solutions hold by the scheme's own file and by real passes, and what cannot be
// met is refused.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/api/setup.hpp"
#include "stepzero/api/solve.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/schemes/scheme_file.hpp"
#include "stepzero/solve/least_squares.hpp"

namespace stepzero {
namespace {

const std::vector<std::string> small = {"layers=4", "width=128", "heads=4", "vocab=499", "positions=64"};

Expected<SolveSubject> solved(const std::string& model, const std::vector<std::string>& set, const std::string& scheme,
                              const SolveRequest& r) {
  const auto s = find_scheme(scheme);
  const auto a = describe_model(model, set, **s);
  if (!a) return std::unexpected(a.error());
  return run_solve(*a, **s, r, {});
}

SolveSubject solution(const std::string& scheme, const SolveRequest& r, const std::vector<std::string>& set = small) {
  auto out = solved("gpt2", set, scheme, r);
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out ? std::move(*out) : SolveSubject();
}

double std_of(const SolveSubject& s, const std::string& role) {
  for (const SolvedScale& c : s.scales) {
    if (c.role == role) return c.after;
  }
  return NAN;
}

// Rosenbrock's valley, as residuals; and a direction that nothing feels.
TEST(LeastSquares, FindsTheMinimumAndLeavesWhatIsFree) {
  const auto done = solve::least_squares([](const std::vector<double>& z) { return std::vector{10 * (z[1] - z[0] * z[0]), 1 - z[0]}; },
                                         {-1.2, 1, 0}, {.most_steps = 100, .difference = 1e-6, .pull = 1e-6, .enough = 1e-9});
  ASSERT_TRUE(done);
  EXPECT_NEAR(done->z[0], 1, 1e-4);
  EXPECT_NEAR(done->z[1], 1, 1e-4);
  ASSERT_EQ(done->free.size(), 1);
  EXPECT_NEAR(std::abs(done->free[0].of[2]), 1, 1e-9);
}

// Only the sum is felt: both move alike, and their difference stays.
TEST(LeastSquares, StaysNearestToItsStart) {
  const auto done = solve::least_squares([](const std::vector<double>& z) { return std::vector{z[0] + z[1] - 2}; }, {0, 0}, {.pull = 1e-3});
  ASSERT_TRUE(done);
  EXPECT_NEAR(done->z[0], 1, 1e-4);
  EXPECT_NEAR(done->z[1], 1, 1e-4);
  EXPECT_EQ(done->free.size(), 1);
}

std::vector<std::string> of_depth(int layers) {
  return {"layers=" + std::to_string(layers), "width=256", "heads=4", "vocab=499", "positions=64"};
}

// Radford et al. 2019: outputs of the branches over sqrt(2 layers). One token: attention passes its value on, so that all branches
// are of one size, as the rule takes them to be.
TEST(Solve, RecoversGpt2sRuleOfDepth) {
  std::vector<double> attention, ffn;
  for (const int layers : {6, 24, 200}) {
    const SolveSubject s = solution("bert", {.objective = "depth", .input = {.length = 1}}, of_depth(layers));
    EXPECT_LT(s.solution.cost, 1e-5);
    attention.push_back(std_of(s, "attention_out") * std::sqrt(2.0 * layers));
    ffn.push_back(std_of(s, "ffn_out") * std::sqrt(2.0 * layers));
  }
  for (const auto& list : {attention, ffn}) {
    for (const double x : list) EXPECT_NEAR(x / list[0], 1, 0.02);
  }
}

// Blake et al. 2024: with branches of unit size and all multipliers 1, embedding, attention and feed-forward contribute alike when a branch
// is added with 1/sqrt(layers) of the embedding's size. A norm behind every branch makes their size 1.
TEST(Solve, RecoversTheResidualRuleOfUMuP) {
  for (const int layers : {6, 24, 200}) {
    auto set = of_depth(layers);
    set.emplace_back("norm_placement=sandwich");
    const SolveSubject s =
        solution("lecun", {.objective = "depth", .free = {"residual_scale"}, .order = Order::fluctuations, .input = {.length = 16}}, set);
    ASSERT_EQ(s.multipliers.size(), 1);
    const double embedding = std::sqrt(*s.solution.signal.nodes[1].forward.second_moment.predicted);
    EXPECT_EQ(s.solution.signal.nodes[1].name, "stream.0");
    EXPECT_NEAR(s.multipliers[0].after / embedding * std::sqrt(static_cast<double>(layers)), 1, 0.02) << layers;
  }
}

// Wang et al. 2022 (DeepNet): x <- norm(a x + f(x)), a = (2 layers)^(1/4), values and outputs times b = (8 layers)^(-1/4): the same
// change of the function at every depth, split evenly over a and b. Up to one factor each.
TEST(Solve, RecoversTheExponentsOfDeepNet) {
  std::vector<double> a, b;
  for (const int layers : {6, 24, 200}) {
    auto set = of_depth(layers);
    set.emplace_back("norm_placement=post");
    const SolveSubject s =
        solution("xavier-normal",
                 {.objective = "tangent", .free = {"value+attention_out+ffn_in+ffn_out", "skip_scale"}, .input = {.length = 1}}, set);
    EXPECT_LT(s.solution.cost, 1e-5);
    b.push_back(s.scales[0].after / s.scales[0].before * std::pow(8.0 * layers, 0.25));
    a.push_back(s.multipliers[0].after / std::pow(2.0 * layers, 0.25));
  }
  const double middle_a = std::sqrt(a.front() * a.back()), middle_b = std::sqrt(b.front() * b.back());
  for (const double x : a) EXPECT_NEAR(x / middle_a, 1, 0.02);
  for (const double x : b) EXPECT_NEAR(x / middle_b, 1, 0.02);
}

TEST(Solve, HoldsByRealPassesOfItsFile) {
  const SolveSubject s = solution("hf", {.objective = "depth", .input = {.length = 32}, .measure = 16},
                                  {"layers=4", "width=256", "heads=4", "vocab=499", "positions=64"});
  ASSERT_FALSE(s.measured.empty());
  EXPECT_LT(confirmed(s).worst, std::log(1.03)) << confirmed(s).what;
  EXPECT_LT(s.solution.cost, 1e-4);
}

TEST(Solve, ItsFileIsAScheme) {
  const SolveSubject s = solution("hf", {.objective = "depth", .free = {"attention_out", "ffn_out", "value"}, .input = {.length = 16}});
  const std::string path = ::testing::TempDir() + "solved.json";
  std::ofstream(path) << solve_scheme(s);
  const auto scheme = find_scheme(path);
  ASSERT_TRUE(scheme) << scheme.error().message;
  const auto a = describe_model("gpt2", small, **scheme);
  ASSERT_TRUE(a) << a.error().message;
  const auto setup = prepare(*a, **scheme, {.length = 16});
  const Assignment laws(setup->graph, setup->architecture, **scheme);
  for (std::size_t i = 0; i < setup->graph.params.size(); ++i) {
    const Param& p = setup->graph.params[i];
    if (p.role == Role::attention_out) {
      EXPECT_NEAR(laws.std(i) / std_of(s, "attention_out"), 1, 1e-12);
    }
    for (const auto& block : laws.blocks(i)) {
      if (block.role == Role::query) {
        EXPECT_NEAR(block.distribution.std(), 0.02, 1e-15);
      }
      if (block.role == Role::value) {
        EXPECT_NEAR(block.distribution.std() / std_of(s, "value"), 1, 1e-12);
      }
    }
  }
}

TEST(Solve, KeepsToItsConstraintsAndNamesThoseThatBind) {
  const SolveRequest free = {
      .objective = "depth", .free = {"attention_out", "ffn_out", "token_embedding", "query"}, .input = {.length = 16}};
  SolveRequest bound = free;
  bound.subject_to = {"scores=0.5..1"};
  const SolveSubject s = solution("hf", bound);
  ASSERT_FALSE(s.solution.binding.empty());
  EXPECT_EQ(s.solution.binding[0].binds, "scores=0.5..1");
  for (const AttentionSignal& x : s.solution.signal.attention) EXPECT_GT(*x.score_variance.predicted, 0.5 * 0.98);
  EXPECT_LT(*s.solution.signal_before.attention[0].score_variance.predicted, 0.4) << "the bound would say nothing";
}

TEST(Solve, RefusesWhatCannotBeMet) {
  const auto stuck = solved("gpt2", small, "hf", {.objective = "depth", .subject_to = {"scores=5..6"}, .input = {.length = 16}});
  ASSERT_FALSE(stuck);
  EXPECT_NE(stuck.error().message.find("scores=5..6"), std::string::npos);
  EXPECT_FALSE(solved("gpt2", small, "rezero", {.input = {.length = 16}})) << "branches of exactly 0";
  EXPECT_FALSE(solved("gpt2", small, "hf", {.objective = "depht"}));
  EXPECT_FALSE(solved("gpt2", small, "hf", {.targets = {"attention=none"}}));
  EXPECT_FALSE(solved("gpt2", small, "hf", {.free = {"residue"}}));
  EXPECT_FALSE(solved("gpt2", small, "hf", {.subject_to = {"loss"}}));
  EXPECT_FALSE(solved("gpt2", small, "hf", {.by = "head"}));
}

// On its own objective a solution is never worse than the best scheme, each with the forward pass it asks for: a preset of every family.
TEST(Solve, IsNeverWorseThanTheBestScheme) {
  if (std::getenv("STEPZERO_SOLVE") == nullptr) GTEST_SKIP() << "minutes: STEPZERO_SOLVE=1 runs it";
  std::vector<std::string> models;
  std::string family;
  for (const Preset& p : presets()) {
    const auto a = describe_model(std::string(p.name), {}, *find_scheme("hf").value());
    if (a && a->family != family) models.emplace_back(p.name), family = a->family;
  }
  for (const std::string& model : models) {
    const auto plain = describe_model(model, {}, *find_scheme("hf").value());
    std::vector<std::string> set = {"layers=4"};
    if (plain->decoder_layers > 0) set.emplace_back("decoder_layers=4");
    for (const char* objective : {"depth", "flat", "tangent"}) {
      SolveRequest r = {.objective = objective, .order = Order::fluctuations, .input = {.length = 12}};
      const auto done = solved(model, set, "hf", r);
      if (!done) {
        std::printf("%s %s: %s\n", model.c_str(), objective, done.error().message.c_str());
        continue;
      }
      double best = INFINITY;
      std::string_view by;
      for (const Scheme& s : schemes()) {
        const auto a = describe_model(model, set, s);
        const auto cost = a ? cost_as_it_is(*a, s, r) : Expected<double>(std::unexpected(a.error()));
        if (cost && *cost < best) best = *cost, by = s.name;
      }
      EXPECT_LE(done->solution.cost, best * 1.001 + 1e-4) << model << " " << objective << ": " << by;
      if (models.size() > 3)
        std::printf("%-20s %-8s solved %.3g, best scheme %.3g (%s)\n", model.c_str(), objective, done->solution.cost, best, by.data());
    }
  }
}

// Products of queries and keys are all that scores feel.
TEST(Solve, NamesDirectionsThatAreFree) {
  const SolveSubject s = solution("hf", {.objective = "flat", .free = {"value", "attention_out", "ffn_out"}, .input = {.length = 16}});
  ASSERT_FALSE(s.solution.free.empty());
  const auto& of = s.solution.free[0].of;
  EXPECT_NEAR(of[0], -of[1], 0.02) << "value against attention output";
  EXPECT_NEAR(std_of(s, "value") / 0.02, std_of(s, "attention_out") / (0.02 / std::sqrt(8.0)), 0.01) << "moved alike";
}

// To first order the effect of an update goes with its rate. Real steps follow as far as effects are predicted in so narrow a model.
TEST(Solve, MovesRates) {
  const SolveSubject s =
      solution("hf", {.objective = "update", .targets = {"change=0.01"}, .move_rates = true, .input = {.length = 32}, .measure = 4});
  ASSERT_FALSE(s.rates.empty());
  for (std::size_t i = 0; i < s.solution.after.size(); ++i) {
    const auto& t = s.solution.after[i];
    if (!t.what.ends_with("ffn.in") && !t.what.ends_with("ffn.out")) continue;
    EXPECT_GT(s.solution.before[i].value, 0.1) << t.what << ": the rates would have nothing to do";
    EXPECT_NEAR(t.value, 0.01, 1e-4) << t.what;
    EXPECT_LT(std::abs(std::log(s.measured[i].value / t.value)), std::log(1.3)) << t.what;
  }
}

}  // namespace
}  // namespace stepzero
