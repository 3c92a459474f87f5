// Every scheme is told from what init would write under it, or said to be like another with the reason.
#include <algorithm>

#include <gmock/gmock.h>

#include "stepzero/audit/std_names.hpp"
#include "stepzero/models/infer.hpp"
#include "tests/unit/audit_fixture.hpp"

namespace stepzero {
namespace {

using namespace testing;
using ::testing::HasSubstr;

bool names(const Audit& a, const std::string& scheme) {
  return a.scheme == scheme || std::ranges::any_of(a.others, [&](const OtherScheme& o) { return o.name == scheme && !o.reason.empty(); });
}

void expect_recognised(Small (*make)(const std::string&)) {
  const Scratch scratch;
  for (const Scheme& scheme : schemes()) {
    const Small m = make(std::string(scheme.name));
    const Audit a = audit_file(m.write(scratch, m.draw(5)), m.a, nullptr);
    EXPECT_TRUE(names(a, std::string(scheme.name))) << scheme.name << " is taken for:\n" << told(a);
    for (const Finding& f : a.findings) {  // what is known to be wrong in the scheme itself, and nothing else
      const bool known = f.id == "fused-qkv-fan-out" || f.id == "depth-scaling-on-up-projection" || f.id == "skipped-depth-scaling" ||
                         f.id == "padding-row-not-zero";
      EXPECT_TRUE(known) << scheme.name << "\n" << told(a);
    }
    // held against itself it has nothing to say
    const Audit asked = audit_file(scratch.path("model.safetensors"), m.a, m.scheme);
    EXPECT_TRUE(asked.findings.empty()) << scheme.name << "\n" << told(asked);
  }
}

TEST(Audit, EverySchemeIsRecognisedInGpt2) {
  expect_recognised([](const std::string& s) { return small_gpt2(s); });
}
TEST(Audit, EverySchemeIsRecognisedInLlama) {
  expect_recognised([](const std::string& s) { return small_llama(s); });
}

TEST(Audit, WithoutAConfigurationNamesAndShapesMustDo) {
  const Scratch scratch;
  for (const char* scheme : {"gpt2", "xavier-uniform", "he", "small-init+wang", "bert", "llama-depth", "torch-default", "olmo-mitchell"}) {
    const Small m = small_llama(scheme);
    const Audit a = audit_file(m.write(scratch, m.draw(9)), std::nullopt, nullptr);
    EXPECT_FALSE(a.known);
    EXPECT_EQ(a.architecture.layers, 3);
    EXPECT_EQ(a.architecture.ffn, 160);
    EXPECT_TRUE(names(a, scheme)) << scheme << "\n" << told(a);
  }
  const Small m = small_gpt2("gpt2");
  Weights w = m.draw(3);
  EXPECT_TRUE(names(audit_file(m.write(scratch, w), std::nullopt, nullptr), "gpt2"));
  for (auto& [name, numbers] : w) {
    if (!name.ends_with("c_proj.weight")) continue;
    for (float& x : numbers) x *= std::sqrt(6.0F);
  }
  const Audit a = audit_file(m.write(scratch, w), std::nullopt, nullptr);
  ASSERT_FALSE(a.findings.empty());
  EXPECT_EQ(a.findings[0].id, "skipped-depth-scaling");
  EXPECT_THAT(a.findings[0].evidence, HasSubstr("0.02/sqrt(2*3) = 0.008165"));
}

TEST(Audit, TrainedWeightsAreToldFromFreshOnes) {
  const Scratch scratch;
  const Small m = small_llama("gpt2");
  Weights w = m.draw(3);
  EXPECT_EQ(audit_file(m.write(scratch, w), m.a, nullptr).training, Training::at_init);
  for (auto& [name, numbers] : w) {
    const float shift = numbers.size() < 100 ? 0.1F : 0;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = numbers[i] * (i % 7 == 0 ? 3.0F : 1.0F) + shift * static_cast<float>(i % 3);
  }
  const Audit a = audit_file(m.write(scratch, w), m.a, nullptr);
  EXPECT_EQ(a.training, Training::trained);
  EXPECT_TRUE(a.findings.empty()) << told(a);  // nothing to hold them against
}

TEST(Audit, BrokenNumbersAndLines) {
  const Scratch scratch;
  const Small m = small_llama("gpt2");
  Weights w = m.draw(3);
  w["model.layers.0.mlp.up_proj.weight"][17] = NAN;
  std::copy_n(w["lm_head.weight"].begin(), 64, w["lm_head.weight"].begin() + 64 * 9);
  std::fill_n(w["model.layers.1.mlp.up_proj.weight"].begin() + 64 * 5, 64, 0.0F);
  const Audit a = audit_file(m.write(scratch, w), m.a, nullptr);
  std::vector<std::string> ids;
  for (const Finding& f : a.findings) ids.push_back(f.id);
  EXPECT_THAT(ids, ::testing::ElementsAre("not-finite", "dead-row", "repeated-row")) << told(a);
}

TEST(Audit, FormulasBehindAStd) {
  const Small m = small_gpt2("gpt2");
  const Param& proj = *std::ranges::find(m.graph.params, "transformer.h.0.attn.c_proj.weight", &Param::name);
  EXPECT_EQ(name_std(0.02, 1e-6, m.a, proj), "0.02");
  EXPECT_EQ(name_std(0.125, 1e-6, m.a, proj), "1/sqrt(64)");
  EXPECT_EQ(name_std(0.02 / std::sqrt(6), 1e-6, m.a, proj), "0.02/sqrt(2*3)");
  EXPECT_EQ(name_std(0.02 / 6, 1e-6, m.a, proj), "0.02/(2*3)");
  EXPECT_EQ(name_std(0.0123456, 1e-6, m.a, proj), "");
}

TEST(Audit, PatternsOfNames) {
  EXPECT_EQ(pattern_of("h.10.attn.c_proj.weight"), "h.*.attn.c_proj.weight");
  EXPECT_EQ(pattern_of("layers.0.experts.12.w1.weight"), "layers.*.experts.*.w1.weight");
  EXPECT_EQ(pattern_of("wte.weight"), "wte.weight");
}

}  // namespace
}  // namespace stepzero
