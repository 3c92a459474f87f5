// Mistakes that people made in public, each made anew at small size under many seeds: told by name, and nothing told of the
// correct twin.
#include <cmath>
#include <cstdlib>
#include <set>

#include "stepzero/kernels/fill.hpp"
#include "tests/unit/audit_fixture.hpp"

namespace stepzero {
namespace {

using namespace testing;

// STEPZERO_AUDIT_SEEDS=200 is what docs/audit.md reports.
int seeds() {
  const char* given = std::getenv("STEPZERO_AUDIT_SEEDS");
  return given != nullptr ? std::atoi(given) : 8;
}

void scale(Weights& w, const std::string& end, const std::function<double(int layer)>& factor) {
  for (auto& [name, numbers] : w) {
    if (!name.ends_with(end)) continue;
    int layer = 0;
    for (const char c : name) layer = c >= '0' && c <= '9' ? 10 * layer + (c - '0') : layer;
    for (float& x : numbers) x = static_cast<float>(static_cast<double>(x) * factor(layer));
  }
}

void redraw(Weights& w, const std::string& name, const Distribution& d, std::uint64_t seed) {
  fill(d, make_stream(seed, name + " again"), 0, std::span<float>(w.at(name)));
}

struct Defect {
  const char* what;
  Small model;
  bool asked;  // the scheme is named by the user
  std::function<void(Weights&, std::uint64_t seed)> spoil;
  std::set<std::string> ids;  // exactly these, and no other
};

void check(const Defect& d) {
  const Scratch scratch;
  for (int seed = 0; seed < seeds(); ++seed) {
    const auto from = static_cast<std::uint64_t>(seed);
    Weights w = d.model.draw(from);
    const Scheme* const scheme = d.asked ? d.model.scheme : nullptr;
    const Audit right = audit_file(d.model.write(scratch, w), d.model.a, scheme);
    ASSERT_TRUE(right.findings.empty()) << d.what << ", its twin, seed " << seed << "\n" << told(right);
    d.spoil(w, from);
    const Audit wrong = audit_file(d.model.write(scratch, w), d.model.a, scheme);
    std::set<std::string> ids;
    for (const Finding& f : wrong.findings) ids.insert(f.id);
    ASSERT_EQ(ids, d.ids) << d.what << ", seed " << seed << "\n" << told(wrong);
  }
}

double by_layers(int) { return std::sqrt(6.0); }  // of three layers
double by_layer(int layer) { return std::sqrt(2.0 * (layer + 1)); }
double over(double factor) { return 1 / factor; }

TEST(AuditDefects, SkippedDepthScaling) {
  const auto spoil = [](Weights& w, std::uint64_t) { scale(w, "c_proj.weight", by_layers); };
  check({"skipped 1/sqrt(2L)", small_gpt2("gpt2"), false, spoil, {"skipped-depth-scaling"}});
  check({"skipped 1/sqrt(2L), asked", small_gpt2("gpt2"), true, spoil, {"skipped-depth-scaling"}});
}

TEST(AuditDefects, DepthScalingOnW3InsteadOfW2) {
  const auto spoil = [](Weights& w, std::uint64_t) {
    scale(w, "up_proj.weight", [](int l) { return over(by_layer(l)); });
    scale(w, "down_proj.weight", by_layer);
  };
  for (const bool asked : {true, false})
    check({"w3 instead of w2", small_llama("llama-depth"), asked, spoil, {"depth-scaling-on-up-projection", "skipped-depth-scaling"}});
}

TEST(AuditDefects, DepthScalingOnW3AsWell) {
  const auto spoil = [](Weights& w, std::uint64_t) { scale(w, "up_proj.weight", [](int l) { return over(by_layer(l)); }); };
  for (const bool asked : {true, false})
    check({"w3 as well as w2", small_llama("llama-depth"), asked, spoil, {"depth-scaling-on-up-projection"}});
}

TEST(AuditDefects, TruncationThatNeverTruncates) {
  const Small m = small_llama("bert");
  const auto spoil = [&](Weights& w, std::uint64_t seed) {
    for (const Param& p : m.graph.params) {
      if (p.role != Role::gain) redraw(w, p.name, Distribution::normal(0.02), seed);
    }
  };
  check({"truncation never truncates", m, true, spoil, {"truncation-never-truncates"}});
}

TEST(AuditDefects, FusedQkvWithFanOutOfThree) {
  const Small m = small_gpt2("xavier-uniform", true);
  const auto spoil = [](Weights& w, std::uint64_t) { scale(w, "c_attn.weight", [](int) { return std::sqrt(0.5); }); };
  check({"fused query, key, value", m, false, spoil, {"fused-qkv-fan-out"}});
}

TEST(AuditDefects, OneStreamForTwoTensors) {
  const auto spoil = [](Weights& w, std::uint64_t) {
    w["model.layers.1.mlp.up_proj.weight"] = w["model.layers.1.mlp.gate_proj.weight"];
    scale(w, "layers.2.self_attn.k_proj.weight", [](int) { return 1; });
    w["model.layers.2.self_attn.k_proj.weight"] = w["model.layers.2.self_attn.q_proj.weight"];
    scale(w, "layers.2.self_attn.k_proj.weight", [](int) { return -1; });
  };
  check({"one stream", small_llama("megatron"), false, spoil, {"copied-tensor", "one-stream"}});
}

TEST(AuditDefects, ZeroTensors) {
  const auto spoil = [](Weights& w, std::uint64_t) { std::ranges::fill(w["model.layers.1.self_attn.v_proj.weight"], 0.0F); };
  for (const bool asked : {true, false}) check({"zero tensor", small_llama("megatron"), asked, spoil, {"zero-tensor"}});
}

TEST(AuditDefects, MissingPaddingRow) {
  const Small m = small_roberta("hf");
  const auto spoil = [&](Weights& w, std::uint64_t seed) {
    const std::string name = "roberta.embeddings.word_embeddings.weight";
    std::vector<float> row(64);
    fill(Distribution::normal(0.02), make_stream(seed, "padding"), 0, std::span<float>(row));
    std::ranges::copy(row, w.at(name).begin() + m.a.padding * 64);
  };
  for (const bool asked : {true, false}) check({"padding row", m, asked, spoil, {"padding-row-not-zero"}});
}

TEST(AuditDefects, ScaledTwice) {
  const auto spoil = [](Weights& w, std::uint64_t) { scale(w, "c_proj.weight", [](int l) { return over(by_layers(l)); }); };
  for (const bool asked : {true, false}) check({"scaled twice", small_gpt2("gpt2"), asked, spoil, {"scaled-twice"}});
}

TEST(AuditDefects, UniformBoundUsedAsStd) {
  const Small m = small_llama("xavier-uniform");
  const auto spoil = [&](Weights& w, std::uint64_t seed) {
    for (std::size_t i = 0; i < m.graph.params.size(); ++i) {
      const Distribution& d = m.assignment.blocks(i).front().distribution;
      if (d.kind == Distribution::Kind::uniform) redraw(w, m.graph.params[i].name, Distribution::normal(d.scale), seed);
    }
  };
  for (const bool asked : {true, false}) check({"bound as std", m, asked, spoil, {"bound-used-as-std"}});
}

TEST(AuditDefects, FanOutForFanInOnTheDownProjection) {
  const auto spoil = [](Weights& w, std::uint64_t) { scale(w, "down_proj.weight", [](int) { return std::sqrt(160.0 / 64.0); }); };
  for (const bool asked : {true, false}) check({"fan-out for fan-in", small_llama("lecun"), asked, spoil, {"fan-out-for-fan-in"}});
}

}  // namespace
}  // namespace stepzero
