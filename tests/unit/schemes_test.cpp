// Every scheme against its paper's formula, written here once more by hand for a model whose matrices are not square:
// fan-in for fan-out, a forgotten 1/sqrt(2 layers), depth scaling on the wrong matrix or a truncation that is not
// accounted for gives another number.
#include "stepzero/schemes/scheme.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scheme_model.hpp"

namespace stepzero {
namespace {

using ::testing::Contains;
using testing::gpt2;
using testing::llama;
using testing::Model;
using ::testing::StartsWith;

// A tensor of each kind in layer 3 (the fourth), and outside the blocks.
void expect_std(const Model& m, const std::map<std::string, double>& wanted) {
  const std::map<std::string, std::string> names = {{"embedding", "model.embed_tokens.weight"},
                                                    {"q", "model.layers.3.self_attn.q_proj.weight"},
                                                    {"k", "model.layers.3.self_attn.k_proj.weight"},
                                                    {"v", "model.layers.3.self_attn.v_proj.weight"},
                                                    {"o", "model.layers.3.self_attn.o_proj.weight"},
                                                    {"gate", "model.layers.3.mlp.gate_proj.weight"},
                                                    {"up", "model.layers.3.mlp.up_proj.weight"},
                                                    {"down", "model.layers.3.mlp.down_proj.weight"},
                                                    {"head", "lm_head.weight"}};
  for (const auto& [kind, std] : wanted) {
    const Distribution& d = m.of(names.at(kind));
    EXPECT_NEAR(d.std(), std, 1e-12 * std) << kind;
    EXPECT_EQ(d.mean, 0) << kind;
  }
}

TEST(Schemes, NamesAreUniqueAndSourcesNamed) {
  std::map<std::string_view, int> seen;
  for (const Scheme& s : schemes()) {
    EXPECT_EQ(++seen[s.name], 1) << s.name;
    EXPECT_FALSE(s.summary.empty()) << s.name;
    EXPECT_FALSE(s.source.empty()) << s.name;
  }
}

TEST(Schemes, Fans) {
  expect_std(llama("xavier-normal"), {{"q", std::sqrt(2.0 / 108)}, {"v", std::sqrt(2.0 / 78)}, {"down", std::sqrt(2.0 / 160)}});
  expect_std(llama("xavier-uniform"), {{"q", std::sqrt(2.0 / 108)}, {"v", std::sqrt(2.0 / 78)}, {"down", std::sqrt(2.0 / 160)}});
  expect_std(llama("he"), {{"q", std::sqrt(2.0 / 48)}, {"o", std::sqrt(2.0 / 60)}, {"down", std::sqrt(2.0 / 112)}});
  expect_std(llama("he-fan-out"), {{"q", std::sqrt(2.0 / 60)}, {"o", std::sqrt(2.0 / 48)}, {"down", std::sqrt(2.0 / 48)}});
  expect_std(llama("lecun"), {{"q", std::sqrt(1.0 / 48)}, {"o", std::sqrt(1.0 / 60)}, {"down", std::sqrt(1.0 / 112)}});
}

TEST(Schemes, DeepNet) {
  const Model m = llama("deepnet");
  const double beta = std::pow(40.0, -0.25);  // (8 * 5 layers)^(-1/4)
  expect_std(m, {{"embedding", 1 / std::sqrt(48.0)},
                 {"head", 1 / std::sqrt(48.0)},
                 {"q", std::sqrt(2.0 / 108)},
                 {"k", std::sqrt(2.0 / 78)},
                 {"v", beta * std::sqrt(2.0 / 78)},
                 {"o", beta * std::sqrt(2.0 / 108)},
                 {"gate", beta * std::sqrt(2.0 / 160)},
                 {"up", beta * std::sqrt(2.0 / 160)},
                 {"down", beta * std::sqrt(2.0 / 160)}});
  EXPECT_EQ(m.a.norm_placement, NormPlacement::post);
  EXPECT_DOUBLE_EQ(m.a.skip_scale, std::pow(10.0, 0.25));
  EXPECT_THAT(m.a.changes, Contains(StartsWith("skip_scale=1.778")));
  EXPECT_THAT(m.a.changes, Contains("norm_placement=post"));
  const Node& sum = m.graph.nodes[static_cast<std::size_t>(m.graph.find_node("blocks.2.ffn.sum"))];
  EXPECT_DOUBLE_EQ(std::get<Residual>(sum.op).skip_scale, std::pow(10.0, 0.25));
}

// The value third of a tensor that holds all three projections is the one that is scaled.
TEST(Schemes, PartsOfAFusedTensorAreToldApart) {
  const Model m = gpt2("deepnet");
  const std::string name = "transformer.h.1.attn.c_attn.weight";
  const double beta = std::pow(24.0, -0.25);
  EXPECT_NEAR(m.of(name, 0).std(), std::sqrt(2.0 / 80), 1e-15);
  EXPECT_NEAR(m.of(name, 1).std(), std::sqrt(2.0 / 80), 1e-15);
  EXPECT_NEAR(m.of(name, 2).std(), beta * std::sqrt(2.0 / 80), 1e-15);
  const Assignment::Block& v = m.assignment.blocks(m.index(name))[2];
  EXPECT_EQ(v.col0, 80);
  EXPECT_EQ(v.cols, 40);
  EXPECT_EQ(v.rows, 40);
  EXPECT_NEAR(m.assignment.std(m.index(name)), std::sqrt((2 + beta * beta) / 3 * 2.0 / 80), 1e-15);
}

// Std of a standard normal cut at +-c: 1 - 2 c phi(c) / (Phi(c) - Phi(-c)).
double cut_std(double c) {
  return std::sqrt(1 - 2 * c * std::exp(-c * c / 2) / std::sqrt(2 * std::numbers::pi) / std::erf(c / std::numbers::sqrt2));
}
const double kCut2 = cut_std(2);
const double kCut3 = cut_std(3);
const double s48 = std::sqrt(48.0);

const Distribution& layer_gain(const Model& m, const std::string& which) { return m.of("model.layers.3." + which); }

TEST(Schemes, TorchDefaults) {
  expect_std(llama("torch-default"), {{"embedding", 1},
                                      {"q", 1 / std::sqrt(144.0)},
                                      {"o", 1 / std::sqrt(180.0)},
                                      {"up", 1 / std::sqrt(144.0)},
                                      {"down", 1 / std::sqrt(336.0)}});
  const Model m = gpt2("torch-default");
  EXPECT_EQ(m.of("transformer.h.1.mlp.c_fc.bias"), Distribution::uniform(1 / std::sqrt(40.0)));
  EXPECT_EQ(m.of("transformer.h.1.mlp.c_proj.bias"), Distribution::uniform(1 / std::sqrt(96.0)));
  EXPECT_EQ(m.of("transformer.h.1.attn.c_attn.bias"), Distribution::uniform(1 / std::sqrt(40.0)));
  EXPECT_EQ(m.of("transformer.h.1.ln_1.bias"), Distribution::constant(0));
  EXPECT_EQ(m.of("transformer.h.1.ln_1.weight"), Distribution::constant(1));
  // var 1/(2 d) for a packed (3 d, d): half of what Xavier's rule gives each (d, d) of it
  EXPECT_NEAR(gpt2("torch-mha").of("transformer.h.1.attn.c_attn.weight").std(), std::sqrt(1.0 / 80), 1e-15);
  expect_std(llama("torch-mha"), {{"q", std::sqrt(2.0 / 168)}, {"v", std::sqrt(2.0 / 168)}, {"o", 1 / std::sqrt(180.0)}});
}

TEST(Schemes, Orthogonal) {
  expect_std(llama("orthogonal"),
             {{"q", std::sqrt(2.0 / 60)}, {"v", std::sqrt(2.0 / 48)}, {"down", std::sqrt(2.0 / 112)}, {"up", std::sqrt(2.0 / 112)}});
}

TEST(Schemes, ScaledByTheNumberOfLayers) {
  for (const char* name : {"gpt2", "megatron"}) {
    expect_std(llama(name), {{"embedding", 0.02},
                             {"q", 0.02},
                             {"v", 0.02},
                             {"o", 0.02 / std::sqrt(10.0)},
                             {"gate", 0.02},
                             {"up", 0.02},
                             {"down", 0.02 / std::sqrt(10.0)},
                             {"head", 0.02}});
  }
  const Model m = gpt2("gpt2-openai");
  EXPECT_DOUBLE_EQ(m.of("transformer.wpe.weight").std(), 0.01);
  EXPECT_DOUBLE_EQ(m.of("transformer.wte.weight").std(), 0.02);
  EXPECT_DOUBLE_EQ(m.of("transformer.h.2.mlp.c_proj.weight").std(), 0.02 / std::sqrt(6.0));
  EXPECT_DOUBLE_EQ(m.of("transformer.h.2.mlp.c_fc.weight").std(), 0.02);
  expect_std(llama("small-init+wang"), {{"embedding", std::sqrt(2.0 / 240)},
                                        {"q", std::sqrt(2.0 / 240)},
                                        {"up", std::sqrt(2.0 / 240)},
                                        {"o", 2 / (5 * s48)},
                                        {"down", 2 / (5 * s48)}});
}

TEST(Schemes, TruncationNarrows) {
  expect_std(llama("bert"), {{"embedding", 0.02 * kCut2}, {"q", 0.02 * kCut2}, {"o", 0.02 * kCut2}, {"down", 0.02 * kCut2}});
  EXPECT_EQ(llama("bert").of("lm_head.weight"), Distribution::truncated(0.02, 2));
  expect_std(llama("timm-vit"), {{"q", 0.02}, {"down", 0.02}});
}

// Layer 3 from 0 is the fourth: sqrt(2 * 4).
TEST(Schemes, ScaledByTheLayer) {
  expect_std(llama("olmo-mitchell"), {{"embedding", kCut3 / s48},
                                      {"q", kCut3 / s48},
                                      {"v", kCut3 / s48},
                                      {"o", kCut3 / std::sqrt(8 * 48.0)},
                                      {"up", kCut3 / s48},
                                      {"down", kCut3 / std::sqrt(8 * 112.0)},
                                      {"head", kCut3 / s48}});
  expect_std(llama("llama-depth"), {{"embedding", 1},
                                    {"q", 0.02},
                                    {"o", 0.02 / std::sqrt(8.0)},
                                    {"gate", 0.02},
                                    {"up", 0.02},
                                    {"down", 0.02 / std::sqrt(8.0)},
                                    {"head", kCut3 / s48}});
  expect_std(llama("torchtitan-llama"),
             {{"o", 0.02 / std::sqrt(8.0)}, {"gate", 0.02}, {"up", 0.02 / std::sqrt(8.0)}, {"down", 0.02 / std::sqrt(8.0)}});
}

TEST(Schemes, T5) {
  const Model m = llama("t5");
  expect_std(m, {{"embedding", 1},
                 {"q", 1 / std::sqrt(480.0)},
                 {"k", 1 / s48},
                 {"v", 1 / s48},
                 {"o", 1 / std::sqrt(60.0)},
                 {"up", 1 / s48},
                 {"gate", 1 / s48},
                 {"down", 1 / std::sqrt(112.0)},
                 {"head", 1}});
  EXPECT_EQ(m.a.attention_scale, 1);
  EXPECT_EQ(m.a.logit_scale, 1);
  EXPECT_DOUBLE_EQ(gpt2("t5").a.logit_scale, 1 / std::sqrt(40.0));
  EXPECT_NEAR(gpt2("t5").of("transformer.h.0.attn.c_attn.weight", 0).std(), 1 / std::sqrt(400.0), 1e-15);
  EXPECT_NEAR(gpt2("t5").of("transformer.h.0.attn.c_attn.weight", 1).std(), 1 / std::sqrt(40.0), 1e-15);
}

TEST(Schemes, WithoutNorms) {
  const double s = std::pow(45.0, -0.25);  // (9 * 5 layers)^(-1/4)
  const Model m = llama("t-fixup");
  expect_std(m, {{"embedding", s / s48},
                 {"head", 1 / s48},
                 {"q", std::sqrt(2.0 / 108)},
                 {"v", s * std::sqrt(2.0 / 78)},
                 {"o", s * std::sqrt(2.0 / 108)},
                 {"down", s * std::sqrt(2.0 / 160)}});
  EXPECT_EQ(m.a.norm, NormKind::none);
  EXPECT_EQ(m.graph.find_node("blocks.0.attn.norm"), -1);
  expect_std(llama("t-fixup", {"causal=false"}), {{"v", 0.67 * std::pow(5.0, -0.25) * std::sqrt(2.0 / 78)}});

  const Model fixup = llama("fixup");
  expect_std(fixup, {{"o", 0},
                     {"down", 0},
                     {"head", 0},
                     {"v", std::sqrt(2.0 / 48) / std::sqrt(10.0)},
                     {"up", std::sqrt(2.0 / 48) / std::sqrt(10.0)},
                     {"q", std::sqrt(2.0 / 108)}});
  EXPECT_EQ(layer_gain(fixup, "ffn_gain"), Distribution::constant(1));
}

TEST(Schemes, GainsOnBranches) {
  for (const char* name : {"rezero", "skipinit"}) {
    const Model m = llama(name);
    EXPECT_EQ(layer_gain(m, "attn_gain"), Distribution::constant(0)) << name;
    EXPECT_EQ(m.graph.params[m.index("model.layers.3.ffn_gain")].shape, std::vector<Index>{1}) << name;
  }
  EXPECT_EQ(llama("rezero").a.norm, NormKind::none);
  EXPECT_EQ(llama("skipinit").a.norm, NormKind::rmsnorm);
  const Model m = llama("layerscale");
  EXPECT_EQ(layer_gain(m, "attn_gain"), Distribution::constant(0.1));
  EXPECT_EQ(m.graph.params[m.index("model.layers.3.attn_gain")].shape, std::vector<Index>{48});
  EXPECT_EQ(llama("layerscale", {"layers=24"}).of("model.layers.3.ffn_gain"), Distribution::constant(1e-5));
  EXPECT_EQ(llama("layerscale", {"layers=36"}).of("model.layers.3.ffn_gain"), Distribution::constant(1e-6));
}

const Node& node(const Model& m, const std::string& name) {
  const int i = m.graph.find_node(name);
  EXPECT_GE(i, 0) << name;
  return m.graph.nodes[static_cast<std::size_t>(std::max(i, 0))];
}

TEST(Schemes, NormsInsideAndBefore) {
  const double gamma = std::sqrt(std::log(10.0));
  const Model m = llama("sub-ln");
  expect_std(m, {{"q", std::sqrt(2.0 / 108)},
                 {"v", gamma * std::sqrt(2.0 / 78)},
                 {"o", gamma * std::sqrt(2.0 / 108)},
                 {"gate", gamma * std::sqrt(2.0 / 160)},
                 {"down", gamma * std::sqrt(2.0 / 160)}});
  EXPECT_EQ(std::get<RmsNorm>(node(m, "blocks.3.attn.sub_norm").op).width, 60);
  EXPECT_EQ(std::get<RmsNorm>(node(m, "blocks.3.ffn.sub_norm").op).width, 112);
  EXPECT_EQ(m.graph.params[m.index("model.layers.3.mlp.ffn_sub_norm.weight")].shape, std::vector<Index>{112});
  const Model lns = llama("lns");
  expect_std(lns, {{"q", 0.02}, {"o", 0.02}, {"down", 0.02}});
  EXPECT_DOUBLE_EQ(std::get<Scale>(node(lns, "blocks.3.ffn.norm_scaled").op).factor, 0.5);
  EXPECT_DOUBLE_EQ(std::get<Scale>(node(lns, "blocks.0.attn.norm_scaled").op).factor, 1);
}

TEST(Schemes, LearnedFromTheModel) {
  const Model admin = llama("admin");  // omega^2: 1, 1 + 1, 1 + 1 + 2, ...
  ASSERT_EQ(admin.a.skip_scales.size(), 10U);
  EXPECT_DOUBLE_EQ(admin.a.skip_scales[0], 1);
  EXPECT_DOUBLE_EQ(admin.a.skip_scales[1], std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(admin.a.skip_scales[3], std::sqrt(7.0));
  EXPECT_DOUBLE_EQ(std::get<Residual>(node(admin, "blocks.1.ffn.sum").op).skip_scale, std::sqrt(7.0));
  expect_std(admin, {{"v", std::sqrt(2.0 / 78)}, {"down", std::sqrt(2.0 / 160)}});
  const Model m = llama("deepscalelm");
  expect_std(m, {{"q", 1 / s48},
                 {"v", std::pow(0.25 * 48 * 60, -0.25)},
                 {"o", std::pow(0.25 * 48 * 60, -0.25)},
                 {"up", std::pow(2.0 / (48 * 112), 0.25)},
                 {"down", std::pow(2.0 / (48 * 112), 0.25)}});
  EXPECT_DOUBLE_EQ(m.a.residual_scale, std::sqrt(0.4));
  EXPECT_DOUBLE_EQ(m.a.skip_scale, std::sqrt(0.6));
}

TEST(Schemes, Width) {
  const double m = 48.0 / 256;
  expect_std(llama("mup"), {{"embedding", 0.02},
                            {"head", 0.02},
                            {"q", 0.02 / std::sqrt(m)},
                            {"up", 0.02 / std::sqrt(m)},
                            {"o", 0.02 / std::sqrt(10 * m)},
                            {"down", 0.02 / std::sqrt(10 * m)}});
  EXPECT_DOUBLE_EQ(llama("mup").a.attention_scale, 0.1);
  EXPECT_DOUBLE_EQ(llama("mup").a.logit_scale, 256.0 / 48);
  EXPECT_DOUBLE_EQ(llama("mup", {"base_width=48"}).a.logit_scale, 1);
  expect_std(llama("completep"), {{"q", 0.02 / std::sqrt(m)}, {"o", 0.02 / std::sqrt(m)}, {"down", 0.02 / std::sqrt(m)}});
  EXPECT_DOUBLE_EQ(llama("completep").a.residual_scale, 0.4);
  const Model u = llama("u-mup");
  expect_std(u, {{"embedding", 1}, {"q", 1}, {"o", 1}, {"down", 1}, {"head", 1}});
  EXPECT_DOUBLE_EQ(u.a.logit_scale, 1.0 / 48);
  EXPECT_DOUBLE_EQ(std::get<Scale>(node(u, "blocks.3.ffn.out.input").op).factor, 1 / std::sqrt(112.0));
  EXPECT_DOUBLE_EQ(std::get<Scale>(node(u, "blocks.3.attn.out.input").op).factor, 1 / std::sqrt(60.0));
  EXPECT_DOUBLE_EQ(u.a.residual_scales.front(), std::sqrt(1.0 / 6));  // tau^2 = 1/5
  EXPECT_DOUBLE_EQ(u.a.skip_scales.front(), std::sqrt(5.0 / 6));
  EXPECT_DOUBLE_EQ(u.a.residual_scales.back(), std::sqrt(1.0 / 15));  // tau^2 = 1/14
}

TEST(Schemes, TheSourceDocument) {
  const Model m = llama("source-003");
  expect_std(m, {{"q", std::sqrt(2.0 / 108)}, {"down", std::sqrt(2.0 / 160)}});
  EXPECT_EQ(m.of("model.layers.3.input_layernorm.weight"), Distribution::constant(1 / s48));
  EXPECT_EQ(m.a.residual_scale, 0.1);
  const Model f = llama("source-003-frobenius");
  const double norms = std::sqrt(48 * 112.0) * f.of("model.layers.3.mlp.up_proj.weight").std() * std::sqrt(48 * 112.0) *
                       f.of("model.layers.3.mlp.down_proj.weight").std();
  EXPECT_NEAR(norms, 1, 1e-12);
  EXPECT_DOUBLE_EQ(f.a.residual_scale, 1 / std::sqrt(5.0));
}

}  // namespace
}  // namespace stepzero
