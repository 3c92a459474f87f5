// Every finding: a signal just beyond its threshold has it, one just within does not.
#include "stepzero/report/diagnosis.hpp"

#include <cmath>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/graph/role_names.hpp"
#include "stepzero/report/depth.hpp"
#include "stepzero/report/remedies.hpp"
#include "tests/unit/healthy_signal.hpp"

namespace stepzero {
namespace {

using testing::healthy_signal;
using testing::node;

bool has(const Signal& s, std::string_view id) {
  const auto found = diagnose(s);
  return std::ranges::any_of(found, [&](const Finding& f) { return f.id == id; });
}

Severity severity_of(const Signal& s, std::string_view id) {
  for (const Finding& f : diagnose(s)) {
    if (f.id == id) return f.severity;
  }
  ADD_FAILURE() << "no finding " << id;
  return Severity::note;
}

Index layers(const Signal& s) { return s.architecture.layers; }
NodeSignal& stream(Signal& s, Index l) { return node(s, fmt::format("stream.{}", l)); }
NodeSignal& in_block(Signal& s, Index l, const char* what) { return node(s, fmt::format("blocks.{}.{}", l, what)); }

void set(Value& v, double x) { v = {.predicted = x, .spread = {}, .measured = {}, .standard_error = {}}; }

// Streams with the given squares, branches a tenth of them.
void set_squares(Signal& s, const std::function<double(double depth)>& square) {
  for (Index l = 0; l <= layers(s); ++l) {
    const double x = square(static_cast<double>(l) / static_cast<double>(layers(s)));
    set(stream(s, l).forward.second_moment, x);
    if (l == layers(s)) continue;
    set(in_block(s, l, "attn.out").forward.second_moment, 0.05 * x);
    set(in_block(s, l, "ffn.out").forward.second_moment, 0.05 * x);
  }
}

void set_gradients(Signal& s, const std::function<double(double depth)>& norm) {
  for (Index l = 0; l <= layers(s); ++l) set(stream(s, l).backward.norm, norm(static_cast<double>(l) / static_cast<double>(layers(s))));
}

void set_added(Signal& s, double share, Index from = 0) {
  set_squares(s, [](double) { return 1.0; });
  for (Index l = from; l < layers(s); ++l) {
    set(in_block(s, l, "attn.out").forward.second_moment, share / 2);
    set(in_block(s, l, "ffn.out").forward.second_moment, share / 2);
  }
}

void set_role_std(Signal& s, Role role, double std) {
  for (ParameterSignal& p : s.parameters) {
    if (p.role == role) set(p.std, std);
  }
}

ParameterSignal& of_role(Signal& s, Role role) {
  for (ParameterSignal& p : s.parameters) {
    if (p.role == role) return p;
  }
  throw std::runtime_error("no such role");
}

void set_attention(Signal& s, double share_of_uniform, double variance) {
  for (AttentionSignal& a : s.attention) {
    set(a.entropy, share_of_uniform * uniform_entropy(s, Stack{}, 0));
    set(a.score_variance, variance);
  }
}

void set_query_gradient(Signal& s, double share) {
  for (Index l = 0; l < layers(s); ++l)
    set(in_block(s, l, "attn.q").backward.norm, share * *in_block(s, l, "attn.v").backward.norm.predicted);
}

void untie(Signal& s) {
  s.architecture.tied = false;
  ParameterSignal head = of_role(s, Role::token_embedding);
  head.name = "lm_head.weight";
  head.role = Role::head;
  s.parameters.push_back(head);
}

// An adapter beside a matrix, whose A and B have gradients of these norms.
void add_adapter(Signal& s, double down, double up) {
  for (const auto& [role, norm] : {std::pair(Role::lora_down, down), std::pair(Role::lora_up, up)}) {
    s.parameters.push_back({.name = to_string(role), .shape = {8, 8}, .std = {}, .gradient_norm = {}, .role = role});
    set(s.parameters.back().gradient_norm, norm);
  }
}

// A gated model whose up, gate and down projections can be set apart.
void make_gated(Signal& s) {
  s.architecture.gated = true;
  const std::vector<ParameterSignal> before = s.parameters;
  for (const ParameterSignal& p : before) {
    if (p.role != Role::ffn_in) continue;
    ParameterSignal gate = p;
    gate.role = Role::ffn_gate;
    s.parameters.push_back(gate);
  }
}

using Change = std::function<void(Signal&)>;

struct Case {
  const char* id;
  Change beyond, within;
};

std::vector<Case> cases() {
  const auto e = [](double rate) { return [=](double depth) { return std::exp(rate * depth); }; };
  const double half = 2 * std::log(4.0);  // 4 times over the second half
  return {
      {"not-finite", [](Signal& s) { set(stream(s, 3).forward.second_moment, INFINITY); }, [](Signal&) {}},
      {"signal-explodes", [=](Signal& s) { set_squares(s, e(1.02 * half)); }, [=](Signal& s) { set_squares(s, e(0.98 * half)); }},
      {"signal-vanishes", [=](Signal& s) { set_squares(s, e(-1.02 * half)); }, [=](Signal& s) { set_squares(s, e(-0.98 * half)); }},
      {"gradient-explodes", [=](Signal& s) { set_gradients(s, e(-1.02 * half)); }, [=](Signal& s) { set_gradients(s, e(-0.98 * half)); }},
      {"gradient-vanishes", [=](Signal& s) { set_gradients(s, e(1.02 * std::log(10.0) * 12 / 11)); },
       [=](Signal& s) { set_gradients(s, e(0.98 * std::log(10.0) * 12 / 11)); }},
      {"rank-collapse", [](Signal& s) { set(stream(s, 12).forward.token_cosine, 0.951); },
       [](Signal& s) { set(stream(s, 12).forward.token_cosine, 0.949); }},
      {"branches-negligible", [](Signal& s) { set_added(s, 0.9e-5); }, [](Signal& s) { set_added(s, 1.1e-5); }},
      {"branch-dominant", [](Signal& s) { set_added(s, 10.1, 1); }, [](Signal& s) { set_added(s, 9.9, 1); }},
      {"embedding-drowned", [](Signal& s) { set_added(s, 101); }, [](Signal& s) { set_added(s, 99); }},
      {"entropy-collapse", [](Signal& s) { set_attention(s, 0.29, 1); }, [](Signal& s) { set_attention(s, 0.31, 1); }},
      {"attention-uniform", [](Signal& s) { set_attention(s, 0.996, 0.001); }, [](Signal& s) { set_attention(s, 0.994, 0.001); }},
      {"score-variance", [](Signal& s) { set_attention(s, 0.5, 4.1); }, [](Signal& s) { set_attention(s, 0.5, 3.9); }},
      {"qk-gradient-vanishes", [](Signal& s) { set_query_gradient(s, 0.009); }, [](Signal& s) { set_query_gradient(s, 0.011); }},
      {"loss-at-start", [](Signal& s) { set(s.loss, std::log(50257.0) + 0.51); }, [](Signal& s) { set(s.loss, std::log(50257.0) + 0.49); }},
      {"embedding-head-balance", [](Signal& s) { set(s.nodes.back().forward.second_moment, 16.1); },
       [](Signal& s) { set(s.nodes.back().forward.second_moment, 15.9); }},
      {"gradient-dominated", [](Signal& s) { set(s.parameters[0].gradient_norm, 1.01 * *s.gradient_norm.predicted); },
       [](Signal& s) { set(s.parameters[0].gradient_norm, 0.95 * *s.gradient_norm.predicted); }},
      {"fp16-overflow", [](Signal& s) { set(in_block(s, 5, "ffn.act").forward.second_moment, std::pow(1.01 * 65504 / 6, 2)); },
       [](Signal& s) { set(in_block(s, 5, "ffn.act").forward.second_moment, std::pow(0.99 * 65504 / 6, 2)); }},
      {"fp16-underflow", [](Signal& s) { set(in_block(s, 5, "attn.q").backward.second_moment, std::pow(0.99 * 0x1p-24, 2)); },
       [](Signal& s) { set(in_block(s, 5, "attn.q").backward.second_moment, std::pow(1.01 * 0x1p-24, 2)); }},
      {"fp8-range", [](Signal& s) { set(in_block(s, 5, "ffn.act").forward.second_moment, std::pow(1.01 * 448 / 6, 2)); },
       [](Signal& s) { set(in_block(s, 5, "ffn.act").forward.second_moment, std::pow(0.99 * 448 / 6, 2)); }},
      {"bf16-rounding", [](Signal& s) { set_added(s, std::pow(0.99 * 0x1p-9, 2), 3); },
       [](Signal& s) { set_added(s, std::pow(1.01 * 0x1p-9, 2), 3); }},
      {"depth-unscaled", [](Signal& s) { set_role_std(s, Role::attention_out, 0.0101); },
       [](Signal& s) { set_role_std(s, Role::attention_out, 0.0099); }},
      {"depth-scale-misplaced",
       [](Signal& s) {
         make_gated(s);
         set_role_std(s, Role::ffn_in, 0.0139);
       },
       [](Signal& s) {
         make_gated(s);
         set_role_std(s, Role::ffn_in, 0.0141);
       }},
      {"scheme-misfit", [](Signal& s) { s.architecture.norm = NormKind::none; },
       [](Signal& s) {
         s.architecture.norm = NormKind::none;
         s.scheme = "t-fixup";
       }},
      {"adapter-starts-at-zero", [](Signal& s) { add_adapter(s, 0, 0.1); }, [](Signal& s) { add_adapter(s, 1e-9, 0.1); }},
      {"adapter-dead", [](Signal& s) { add_adapter(s, 0, 0); }, [](Signal& s) { add_adapter(s, 0, 1e-9); }},
  };
}

TEST(Diagnosis, AHealthyModelHasNone) {
  for (const Finding& f : diagnose(healthy_signal())) ADD_FAILURE() << f.id << ": " << f.evidence;
  EXPECT_EQ(verdict({}), "nothing stands out");
}

TEST(Diagnosis, EveryFindingHasItsThreshold) {
  std::set<std::string> tested, known;
  for (const Case& c : cases()) {
    Signal beyond = healthy_signal(), within = healthy_signal();
    c.beyond(beyond);
    c.within(within);
    EXPECT_TRUE(has(beyond, c.id)) << c.id;
    EXPECT_FALSE(has(within, c.id)) << c.id;
    tested.insert(c.id);
  }
  for (const Diagnosis& d : diagnoses()) known.insert(d.id);
  EXPECT_EQ(tested, known);
}

TEST(Diagnosis, EveryFindingSaysWhereWhyAndWhatToDo) {
  for (const Case& c : cases()) {
    Signal s = healthy_signal();
    c.beyond(s);
    for (const Finding& f : diagnose(s)) {
      EXPECT_FALSE(f.where.empty()) << f.id;
      EXPECT_FALSE(f.remedy.empty() && candidates(s, f).empty()) << f.id;
      if (f.id == "not-finite" || f.id == "scheme-misfit") continue;
      EXPECT_THAT(f.evidence, ::testing::MatchesRegex(".*[0-9].*")) << f.id;  // a number
    }
  }
}

TEST(Diagnosis, SeverityGrowsWithTheNumber) {
  Signal s = healthy_signal();
  set(stream(s, 12).forward.token_cosine, 0.999);
  EXPECT_EQ(severity_of(s, "rank-collapse"), Severity::error);
  set(s.loss, std::log(50257.0) + 3);
  EXPECT_EQ(severity_of(s, "loss-at-start"), Severity::warning);
  set(s.loss, 500);
  EXPECT_EQ(severity_of(s, "loss-at-start"), Severity::error);
  const auto found = diagnose(s);
  for (std::size_t i = 1; i < found.size(); ++i) EXPECT_GE(found[i - 1].severity, found[i].severity) << "the worst first";
}

TEST(Diagnosis, MeasuredNumbersAreJudgedFirst) {
  Signal s = healthy_signal();
  stream(s, 12).forward.token_cosine.measured = 0.99;
  EXPECT_TRUE(has(s, "rank-collapse"));
  set(stream(s, 12).forward.token_cosine, 0.99);
  stream(s, 12).forward.token_cosine.measured = 0.5;
  EXPECT_FALSE(has(s, "rank-collapse"));
}

TEST(Diagnosis, TokensThatAreEqualFromTheStartHaveNotCollapsed) {
  Signal s = healthy_signal();
  for (Index l = 0; l <= 12; ++l) set(stream(s, l).forward.token_cosine, 1);
  EXPECT_FALSE(has(s, "rank-collapse"));
}

TEST(Diagnosis, AnUntiedHeadIsHeldAgainstTheTable) {
  for (const double ratio : {31.0, 29.0, 1 / 31.0, 1 / 29.0}) {
    Signal s = healthy_signal();
    untie(s);
    set(of_role(s, Role::token_embedding).gradient_norm, ratio);
    set(of_role(s, Role::head).gradient_norm, 1);
    EXPECT_EQ(has(s, "embedding-head-balance"), ratio > 30 || ratio < 1 / 30.0) << ratio;
  }
}

TEST(Diagnosis, TheSchemesOfPostNorm) {
  const auto deep = [](const char* scheme, Index n) {
    Signal s = healthy_signal();
    s.scheme = scheme;
    s.architecture.norm_placement = NormPlacement::post;
    s.architecture.layers = n;
    return s;
  };
  EXPECT_EQ(severity_of(deep("xavier-normal", 48), "scheme-misfit"), Severity::warning);
  EXPECT_FALSE(has(deep("deepnet", 48), "scheme-misfit"));
  EXPECT_FALSE(has(deep("xavier-normal", 12), "scheme-misfit"));
}

// Whole models, as a user meets them.
TEST(Diagnosis, RealModels) {
  const auto of = [](const std::vector<std::string>& set, const char* scheme) {
    return testing::predicted_signal("gpt2", set, scheme, 16);
  };
  EXPECT_TRUE(has(of({"layers=24", "norm_placement=post"}, "xavier-normal"), "rank-collapse"));
  EXPECT_FALSE(has(of({"layers=24", "norm_placement=post"}, "deepnet"), "rank-collapse"));
  EXPECT_TRUE(has(of({"norm=none", "layers=6"}, "he"), "signal-explodes"));
  EXPECT_TRUE(has(of({"layers=2"}, "llama-depth"), "loss-at-start"));
  EXPECT_TRUE(has(of({"layers=24"}, "bert"), "depth-unscaled"));
  EXPECT_FALSE(has(of({"layers=24"}, "hf"), "depth-unscaled"));
  EXPECT_TRUE(has(of({"init_std=1", "layers=4"}, "hf"), "entropy-collapse"));
  EXPECT_TRUE(has(of({"norm_placement=sandwich"}, "megatron"), "scheme-misfit"));
}

// What may help is a list of changes; remedies_test.cpp has what becomes of them.
TEST(Diagnosis, ThereIsAReadingBehindEveryCheck) {
  std::set<std::string> read;
  for (const Finding& f : readings(healthy_signal())) read.insert(f.id);
  for (const char* id : {"signal-explodes", "signal-vanishes", "gradient-explodes", "gradient-vanishes", "rank-collapse", "loss-at-start",
                         "branch-dominant", "branches-negligible", "embedding-drowned", "entropy-collapse", "score-variance"})
    EXPECT_TRUE(read.contains(id)) << id;
  for (const Finding& f : readings(healthy_signal())) EXPECT_LT(f.reading.beyond, 0) << f.id;
}

// Gains that begin at nearly nothing are meant so: no change is looked for.
TEST(Diagnosis, SmallGainsOfBranchesAreMeant) {
  for (const BranchGain gain : {BranchGain::none, BranchGain::channel}) {
    Signal s = healthy_signal();
    set_added(s, 1e-9);
    s.architecture.branch_gain = gain;
    const auto found = diagnose(s);
    const auto it = std::ranges::find(found, std::string("branches-negligible"), &Finding::id);
    ASSERT_NE(it, found.end());
    const bool meant = gain != BranchGain::none;
    EXPECT_EQ(it->severity, meant ? Severity::note : Severity::warning);
    EXPECT_EQ(candidates(s, *it).empty(), meant);
  }
}

}  // namespace
}  // namespace stepzero
