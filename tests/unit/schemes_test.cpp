// Every scheme against its paper's formula, written here once more by hand for a model whose matrices are not square:
// fan-in for fan-out, a forgotten 1/sqrt(2 layers), depth scaling on the wrong matrix or a truncation that is not
// accounted for gives another number.
#include "stepzero/schemes/scheme.hpp"

#include <cmath>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"

namespace stepzero {
namespace {

using ::testing::Contains;
using ::testing::StartsWith;

struct Model {
  Architecture a;
  Graph graph;
  Assignment assignment;

  [[nodiscard]] std::size_t index(const std::string& name) const {
    for (std::size_t i = 0; i < graph.params.size(); ++i) {
      if (graph.params[i].name == name) return i;
    }
    ADD_FAILURE() << "no tensor " << name;
    return 0;
  }
  [[nodiscard]] const Distribution& of(const std::string& name, std::size_t block = 0) const {
    return assignment.blocks(index(name)).at(block).distribution;
  }
};

Model model(const std::string& preset, const std::vector<std::string>& set, const std::string& scheme) {
  Model m;
  m.a = *load_model(preset);
  for (const std::string& s : set) EXPECT_TRUE(set_field(m.a, s).has_value()) << s;
  EXPECT_TRUE(resolve(m.a).has_value());
  const Scheme* found = *find_scheme(scheme);
  const auto done = adapt(m.a, *found);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  m.graph = build_graph(m.a);
  m.assignment = Assignment(m.graph, m.a, *found);
  return m;
}

// Nothing is square: q (60, 48), k and v (30, 48), o (48, 60), up and gate (112, 48), down (48, 112); 5 layers.
Model llama(const std::string& scheme) {
  return model("llama-2-7b",
               {"layers=5", "width=48", "heads=6", "kv_heads=3", "head_dim=10", "ffn=112", "vocab=97", "positions=64", "init_std=0.02"},
               scheme);
}

// One tensor for q, k and v, stored (in, out): (40, 120); fc (40, 96), proj (96, 40); 3 layers, tied.
Model gpt2(const std::string& scheme) {
  return model("gpt2", {"layers=3", "width=40", "heads=4", "ffn=96", "vocab=97", "positions=64", "init_std=0.02"}, scheme);
}

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

}  // namespace
}  // namespace stepzero
