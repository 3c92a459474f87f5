// Rules of transfer: every entry of the published tables, and what is made of them for a whole model.
#include <cmath>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/api/transfer.hpp"
#include "stepzero/io/output.hpp"
#include "stepzero/optim/rates.hpp"
#include "stepzero/schemes/scheme_file.hpp"
#include "stepzero/schemes/transfer_rules.hpp"

namespace stepzero {
namespace {

using P = Parametrization;
using R = UpdateRule;
using K = TensorKind;

constexpr double m = 8, L = 3;  // of the width, of the depth
constexpr double vocabulary_stays = 1;

// The sides of a tensor of this kind when the width grows by m and the layers by L.
Ratios grown(K kind, bool in_block, double update_size = 1) {
  const bool in = kind == K::hidden || kind == K::output, out = kind != K::output;
  return {.in = in ? m : vocabulary_stays,
          .out = out ? m : vocabulary_stays,
          .width = m,
          .depth = L,
          .in_block = in_block,
          .update_size = update_size};
}
Ratios hidden(double update_size = 1) { return grown(K::hidden, true, update_size); }

void expect(P p, R rule, K kind, const Ratios& r, const char* what, double Factors::* entry, double published) {
  const double ours = factors_of(p, rule, kind, r).*entry;
  EXPECT_NEAR(ours / published, 1, 1e-12) << to_string(p) << " " << to_string(rule) << " " << to_string(kind) << " " << what;
}

// Yang et al. 2022 (Tensor Programs V), table 8 and the mup package: width alone; decay of the package is coupled to the rate.
TEST(TransferRules, TensorProgramsV) {
  for (const K kind : {K::input, K::vector}) {
    const Ratios r = grown(kind, false);
    expect(P::mup, R::adam, kind, r, "variance", &Factors::std, 1);
    expect(P::mup, R::sgd, kind, r, "rate", &Factors::rate, m);
    expect(P::mup, R::adam, kind, r, "rate", &Factors::rate, 1);
    expect(P::mup, R::adam, kind, r, "decay", &Factors::decay, 1);
    expect(P::mup, R::sgd, kind, r, "decay", &Factors::decay, 1 / m);
  }
  const Ratios h = grown(K::hidden, true);
  expect(P::mup, R::adam, K::hidden, h, "variance", &Factors::std, std::sqrt(1 / m));
  expect(P::mup, R::sgd, K::hidden, h, "rate", &Factors::rate, 1);
  expect(P::mup, R::adam, K::hidden, h, "rate", &Factors::rate, 1 / m);
  expect(P::mup, R::adam, K::hidden, h, "decay", &Factors::decay, m);
  // out-mult / in-mult where they differ: keys whose number of heads stays
  const Ratios key{.in = m, .out = 1, .width = m, .depth = 1, .in_block = true};
  expect(P::mup, R::sgd, K::hidden, key, "rate", &Factors::rate, 1 / m);
  expect(P::mup, R::adam, K::hidden, key, "rate", &Factors::rate, 1 / m);
  const Ratios o = grown(K::output, false);
  expect(P::mup, R::adam, K::output, o, "variance", &Factors::std, 1);
  expect(P::mup, R::sgd, K::output, o, "rate", &Factors::rate, m);
  expect(P::mup, R::adam, K::output, o, "rate", &Factors::rate, 1);
  const Multipliers scales = multipliers_of(P::mup, 2, m, L);
  EXPECT_EQ(scales.logits, 1 / m);
  EXPECT_EQ(scales.scores, 1.0 / 2);
  EXPECT_EQ(scales.branches, 1);
}

// Dey et al. 2025 (CompleteP), table 1: alpha = 1/2 and alpha = 1, AdamW.
TEST(TransferRules, CompletePTable1) {
  for (const auto& [p, alpha] : {std::pair{P::depth_mup, 0.5}, std::pair{P::completep, 1.0}}) {
    EXPECT_NEAR(multipliers_of(p, 1, m, L).branches, std::pow(L, -alpha), 1e-12);
    EXPECT_EQ(multipliers_of(p, 1, m, L).logits, 1 / m);
    expect(p, R::adam, K::hidden, hidden(), "variance", &Factors::std, std::sqrt(1 / m));
    expect(p, R::adam, K::hidden, hidden(), "rate", &Factors::rate, 1 / m * std::pow(L, alpha - 1));
    expect(p, R::adam, K::vector, grown(K::vector, true), "rate of a norm's gain or a bias in a block", &Factors::rate,
           std::pow(L, alpha - 1));
    expect(p, R::adam, K::hidden, hidden(), "decay", &Factors::decay, m);
    expect(p, R::adam, K::hidden, hidden(), "eps", &Factors::eps, 1 / m * std::pow(L, -alpha));
    expect(p, R::adam, K::input, grown(K::input, false), "eps", &Factors::eps, 1 / m);
    expect(p, R::adam, K::input, grown(K::input, false), "rate", &Factors::rate, 1);
    expect(p, R::adam, K::output, grown(K::output, false), "rate", &Factors::rate, 1);
    expect(p, R::adam, K::vector, grown(K::vector, false), "rate of the last norm", &Factors::rate, 1);
  }
}

// The tables of optimizers under the spectral condition: input, hidden, output; decay and eps of hidden matrices.
TEST(TransferRules, SpectralTables) {
  const double kimi = std::sqrt(m);  // 0.2 sqrt(max(in, out)) grows so
  struct Line {
    R rule;
    double size, input, hidden, output;
  };
  for (const Line& l : {Line{R::adam, 1, 1, 1 / m, 1}, Line{R::lion, 1, 1, 1 / m, 1}, Line{R::sophia, 1, 1, 1 / m, 1},
                        Line{R::muon, kimi, 1, 1 / std::sqrt(m), 1}, Line{R::muon, 1, std::sqrt(m), 1, std::sqrt(m)},
                        Line{R::shampoo, 1, std::sqrt(m), 1, std::sqrt(m)}, Line{R::soap, 1, std::sqrt(m), 1, std::sqrt(m)},
                        Line{R::sgd, 1, m, L, m}, Line{R::sso, 1, 1, 1, m}}) {
    expect(P::spectral, l.rule, K::input, grown(K::input, false, l.size), "rate", &Factors::rate, l.input);
    expect(P::spectral, l.rule, K::hidden, hidden(l.size), "rate", &Factors::rate, l.hidden);
    expect(P::spectral, l.rule, K::output, grown(K::output, false, l.size), "rate", &Factors::rate, l.output);
    expect(P::spectral, l.rule, K::hidden, hidden(l.size), "variance", &Factors::std, std::sqrt(1 / m));
  }
  for (const R rule : {R::adam, R::lion, R::sophia}) expect(P::spectral, rule, K::hidden, hidden(), "decay", &Factors::decay, m);
  expect(P::spectral, R::muon, K::hidden, hidden(kimi), "decay", &Factors::decay, std::sqrt(m));
  expect(P::spectral, R::muon, K::hidden, hidden(), "decay", &Factors::decay, 1);
  expect(P::spectral, R::shampoo, K::hidden, hidden(), "decay", &Factors::decay, 1);
  expect(P::spectral, R::sgd, K::hidden, hidden(), "decay", &Factors::decay, 1 / L);
  expect(P::spectral, R::sgd, K::vector, grown(K::vector, true), "rate of a hidden bias", &Factors::rate, L * m);
  for (const R rule : {R::adam, R::sophia}) {
    expect(P::spectral, rule, K::input, grown(K::input, false), "eps", &Factors::eps, 1 / m);
    expect(P::spectral, rule, K::hidden, hidden(), "eps", &Factors::eps, 1 / (L * m));
    expect(P::spectral, rule, K::output, grown(K::output, false), "eps", &Factors::eps, 1 / m);
  }
  expect(P::spectral, R::shampoo, K::input, grown(K::input, false), "eps", &Factors::eps, 1 / m);
  expect(P::spectral, R::shampoo, K::hidden, hidden(), "eps", &Factors::eps, 1 / (L * L));
  expect(P::spectral, R::shampoo, K::output, grown(K::output, false), "eps", &Factors::eps, 1 / m);
  EXPECT_NEAR(multipliers_of(P::spectral, 1, m, L).branches, 1 / L, 1e-12);
  EXPECT_NEAR(multipliers_of(P::spectral, 1, m, L).logits, 1 / m, 1e-12);
}

// unit-scaling: rates of weights fan_in^-1/2, inside the stack depth^-1/2; outputs, biases and norms 1. A table's fan_in is its rows'
// length there.
TEST(TransferRules, UnitMup) {
  expect(P::u_mup, R::adam, K::hidden, hidden(), "rate", &Factors::rate, 1 / std::sqrt(m * L));
  expect(P::u_mup, R::adam, K::hidden, grown(K::hidden, false), "rate outside", &Factors::rate, 1 / std::sqrt(m));
  expect(P::u_mup, R::adam, K::input, grown(K::input, false), "rate", &Factors::rate, 1 / std::sqrt(m));
  expect(P::u_mup, R::adam, K::output, grown(K::output, false), "rate", &Factors::rate, 1);
  expect(P::u_mup, R::adam, K::vector, grown(K::vector, true), "rate", &Factors::rate, 1);
  expect(P::u_mup, R::adam, K::hidden, hidden(), "std", &Factors::std, 1);
}

// Everett et al. 2024: the standard parametrization under full alignment, Adam: width^0, width^-1, width^-1.
TEST(TransferRules, EverettFullAlignment) {
  expect(P::aligned, R::adam, K::input, grown(K::input, false), "rate", &Factors::rate, 1);
  expect(P::aligned, R::adam, K::hidden, hidden(), "rate", &Factors::rate, 1 / m);
  expect(P::aligned, R::adam, K::output, grown(K::output, false), "rate", &Factors::rate, 1 / m);
  EXPECT_FALSE(check_rule(P::aligned, R::muon));
  EXPECT_FALSE(check_rule(P::u_mup, R::sgd));
}

// abc-symmetry: a multiplier times n^-x, a std times n^x leave the forward pass as it is; the rate that keeps the effect of an update
// follows for SGD with n^2x, for Adam with n^x (effects, not entries). Here of an output: 1/m and std 1, or 1/sqrt(m) and std 1/sqrt(m).
TEST(TransferRules, EffectsNotEntries) {
  const Ratios o = grown(K::output, false);
  const double ours_adam = factors_of(P::mup, R::adam, K::output, o).rate, ours_sgd = factors_of(P::mup, R::sgd, K::output, o).rate;
  const double theta = 0.5, adam_there = std::pow(m, -0.5), sgd_there = 1;  // table 3 of Tensor Programs V: output 1/sqrt(m)
  EXPECT_NEAR(ours_adam * std::pow(m, -theta), adam_there, 1e-12);
  EXPECT_NEAR(ours_sgd * std::pow(m, -2 * theta), sgd_there, 1e-12);
}

const std::vector<std::string> small = {"width=32", "heads=2", "layers=2", "vocab=97", "positions=16"};
const std::vector<std::string> large = {"width=128", "heads=8", "layers=4", "vocab=97", "positions=16"};

// A transfer between two models.
struct TransferCase : TransferRequest {
  ModelRequest from, to;

  TransferCase(ModelRequest base, ModelRequest goal) : from(std::move(base)), to(std::move(goal)) {}
  [[nodiscard]] Expected<TransferSubject> run() const { return run_transfer(from, to, *this); }
};

TransferSubject carried(const std::string& parametrization, const std::string& optimizer = "adamw", std::vector<std::string> more = {}) {
  TransferCase r({.model = "gpt2", .set = small}, {.model = "gpt2", .set = large});
  r.from.set.insert(r.from.set.end(), more.begin(), more.end());
  r.to.set.insert(r.to.set.end(), more.begin(), more.end());
  r.parametrization = parametrization;
  r.optimizer.name = optimizer;
  r.optimizer.rate = 0.01;
  r.optimizer.decay = 0.1;
  auto done = r.run();
  EXPECT_TRUE(done.has_value()) << done.error().message;
  return std::move(*done);
}

const CarriedTensor& tensor(const TransferSubject& s, const std::string& name) {
  for (const CarriedTensor& c : s.transfer.tensors) {
    if (s.target_graph.params[c.param].name == name) return c;
  }
  ADD_FAILURE() << name;
  return s.transfer.tensors[0];
}

TEST(Transfer, CarriesAWholeModel) {
  const TransferSubject s = carried("completep");
  EXPECT_EQ(s.transfer.set(), (std::vector<std::string>{"logit_scale=0.25", "residual_scale=0.5"}));
  const CarriedTensor& fc = tensor(s, "transformer.h.3.mlp.c_fc.weight");
  EXPECT_EQ(s.base_graph.params[fc.base].name, "transformer.h.1.mlp.c_fc.weight");  // the last layer of the base
  EXPECT_NEAR(fc.blocks[0].law.std(), 0.02 / 2, 1e-15);
  EXPECT_NEAR(fc.after.rate, 0.01 / 4, 1e-15);
  EXPECT_NEAR(fc.after.decay, 0.1 * 4, 1e-15);
  EXPECT_NEAR(fc.after.eps, 1e-8 / 8, 1e-20);
  EXPECT_EQ(tensor(s, "transformer.wte.weight").after.rate, 0.01);
}

// mup knows nothing of the depth: the scheme's own word on it, 1/sqrt(2 layers), is that of the target.
TEST(Transfer, DepthOfTheSchemeWithoutARule) {
  const TransferSubject wide = carried("mup"), deep = carried("completep");
  const char* name = "transformer.h.0.mlp.c_proj.weight";
  EXPECT_NEAR(tensor(wide, name).blocks[0].law.std(), 0.02 / std::sqrt(8.0) / 2, 1e-15);
  EXPECT_NEAR(tensor(deep, name).blocks[0].law.std(), 0.02 / std::sqrt(4.0) / 2, 1e-15);
}

TEST(Transfer, MuonMatricesByTheirOwnScale) {
  const TransferSubject s = carried("mup", "muon");  // max1: sqrt(max(1, out/in)) stays, all ratios do
  const CarriedTensor& fc = tensor(s, "transformer.h.0.mlp.c_fc.weight");
  EXPECT_EQ(fc.after.rule, UpdateRule::muon);
  EXPECT_NEAR(fc.after.rate, 0.01, 1e-15);
  EXPECT_EQ(tensor(s, "transformer.wte.weight").after.rule, UpdateRule::adam);
}

TEST(Transfer, RefusesWhatIsNotOneArchitecture) {
  TransferCase r({.model = "gpt2"}, {.model = "pythia-14m"});
  EXPECT_FALSE(r.run());
  r.to.model = "gpt2";
  r.from.scheme = r.to.scheme = "mup";  // carries by itself
  EXPECT_FALSE(r.run());
  r.from.scheme = r.to.scheme = "hf";
  r.parametrization = "u-mup";
  EXPECT_FALSE(r.run());
}

// The JSON is a scheme and a table of rates: what is drawn and how it is updated is what the transfer says.
TEST(Transfer, ItsFileIsASchemeAndATableOfRates) {
  TransferCase r({.model = "gpt2", .set = small}, {.model = "gpt2", .set = large});
  r.zero_query = true;
  r.optimizer.rate = 0.01;
  const auto s = r.run();
  ASSERT_TRUE(s);
  const std::string path = ::testing::TempDir() + "stepzero_transfer_test.json";
  ASSERT_TRUE(write_file(path, transfer_json(*s)));
  const auto scheme = find_scheme(path);
  ASSERT_TRUE(scheme) << scheme.error().message;
  const auto model = Model::load({.model = "gpt2", .set = large, .scheme = path});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->architecture().logit_scale, 0.25);
  const Assignment laws(s->target_graph, model->architecture(), **scheme);
  const auto rates = read_rates(path, s->target_graph.params);
  ASSERT_TRUE(rates) << rates.error().message;
  for (const CarriedTensor& c : s->transfer.tensors) {
    const auto& blocks = laws.blocks(c.param);
    ASSERT_EQ(blocks.size(), c.blocks.size());
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      EXPECT_NEAR(blocks[b].distribution.std(), c.blocks[b].law.std(), 1e-15);
      EXPECT_EQ(blocks[b].distribution.mean, c.blocks[b].law.mean);
    }
    const TensorRate rate = rates->apply(s->target_graph.params[c.param], {});
    EXPECT_EQ(rate.rate, c.after.rate);
    EXPECT_EQ(rate.eps, c.after.eps);
  }
  const auto& qkv = laws.blocks(static_cast<std::size_t>(s->transfer.tensors[4].param));
  EXPECT_EQ(qkv.size(), 3U);
  EXPECT_EQ(qkv[0].distribution.std(), 0);
  EXPECT_GT(qkv[1].distribution.std(), 0);
  std::remove(path.c_str());
}

// What the scheme of the base changes in the forward pass is in the file too.
TEST(Transfer, ItsFileKeepsWhatTheSchemeChanges) {
  TransferCase r({.model = "gpt2", .set = small, .scheme = "u-mup"}, {.model = "gpt2", .set = large, .scheme = "u-mup"});
  r.parametrization = "u-mup";
  const auto s = r.run();
  ASSERT_TRUE(s) << s.error().message;
  const std::string path = ::testing::TempDir() + "stepzero_transfer_u_mup_test.json";
  ASSERT_TRUE(write_file(path, transfer_json(*s)));
  const auto model = Model::load({.model = "gpt2", .set = large, .scheme = path});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(model->architecture().unit_linear);
  EXPECT_EQ(model->architecture().logit_scale, s->target.logit_scale);
  EXPECT_EQ(model->architecture().skip_scales, s->target.skip_scales);
  std::remove(path.c_str());
}

TEST(SchemeFile, SaysWhatIsWrong) {
  const std::string path = ::testing::TempDir() + "stepzero_scheme_test.json";
  const auto complaint = [&](const std::string& text) {
    EXPECT_TRUE(write_file(path, text));
    const auto model = Model::load({.model = "gpt2", .set = small, .scheme = path});
    return model ? std::string() : model.error().message;
  };
  const auto with = [](const std::string& row) { return R"({"schema": "stepzero.scheme/1", "tensors": [)" + row + "]}"; };
  EXPECT_EQ(complaint(with(R"({"tensor": "*.mlp.*.weight", "law": "normal", "std": 0.1})")), "");
  EXPECT_NE(complaint(with(R"({"tensor": "nothing", "law": "normal", "std": 0.1})")).find("fits no tensor"), std::string::npos);
  EXPECT_NE(complaint(with(R"({"law": "gaussian"})")).find("no law"), std::string::npos);
  EXPECT_NE(complaint(with(R"({"law": "normal", "std": -1})")).find("below 0"), std::string::npos);
  EXPECT_NE(complaint(with(R"({"role": "queen", "law": "normal"})")).find("no role"), std::string::npos);
  EXPECT_NE(complaint(R"({"schema": 3, "tensors": []})").find("no scheme"), std::string::npos);
  EXPECT_NE(complaint(R"({"schema": "stepzero.scheme/1", "set": ["speed=3"], "tensors": []})").find("sets no field"), std::string::npos);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace stepzero
