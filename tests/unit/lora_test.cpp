// Adapters beside the matrices of a graph: which, under what names, and that the pass runs W + c B A with the rest frozen.
#include "stepzero/models/lora.hpp"

#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/pass/fill_pass.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/json.hpp"
#include "stepzero/signal/comparison.hpp"
#include "stepzero/theory/predict.hpp"
#include "stepzero/theory/predict_batch.hpp"
#include "stepzero/theory/predict_long.hpp"
#include "tests/unit/small_model.hpp"

namespace stepzero {
namespace {

using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

SmallModel tiny(const std::string& preset, const Texts& more = {}, Index length = 12) {
  Texts set = {"layers=2", "width=32", "heads=4", "kv_heads=4", "head_dim=8", "ffn=64", "vocab=61"};
  set.insert(set.end(), more.begin(), more.end());
  return small_model(preset, set, "zipf", length, 2);
}

SmallModel adapted(SmallModel m, const std::string& lora) {
  const auto done = add_adapters(m.graph, parse_lora(lora).value());
  EXPECT_TRUE(done) << done.error().message;
  return m;
}

const Param* find(const Graph& graph, const std::string& name) {
  const auto it = std::ranges::find(graph.params, name, &Param::name);
  return it == graph.params.end() ? nullptr : &*it;
}

// ---- words

TEST(Lora, ReadsItsWords) {
  const Lora all = parse_lora("rank=4,alpha=16,roles=query,value,rslora=true,a_std=0.1,b_std=0.02,modules=fc1,fc2").value();
  EXPECT_EQ(all.rank, 4);
  EXPECT_EQ(all.scale(), 8);  // 16 / sqrt(4)
  EXPECT_EQ(all.roles, (Texts{"query", "value"}));
  EXPECT_EQ(all.modules, (Texts{"fc1", "fc2"}));
  EXPECT_EQ(all.down_std, 0.1);
  EXPECT_EQ(all.up_std, 0.02);
  const Lora usual = parse_lora("rank=4,alpha=16").value();
  EXPECT_EQ(usual.scale(), 4);
  EXPECT_EQ(usual.roles, (Texts{"query", "value"}));
  EXPECT_EQ(parse_lora("modules=c_fc")->roles, Texts{});
}

TEST(Lora, RefusesOtherWords) {
  for (const char* words : {"rank=0", "rank=1.5", "rank=nan", "rank=1e9", "rank=", "alpha=x", "alpha=-1", "alpha=inf", "b_std=-1", "foo=1",
                            "foo", "rank=2,query", "rslora=yes", "roles=", "=1"}) {
    const auto lora = parse_lora(words);
    ASSERT_FALSE(lora) << words;
    EXPECT_FALSE(lora.error().hint.empty()) << words;
  }
}

// ---- the graph

TEST(Lora, NamesAndShapesAreThoseOfPeft) {
  const SmallModel gpt2 = adapted(tiny("gpt2"), "rank=3,roles=query,value");  // one tensor holds q, k and v, stored (in, out)
  const Param* a = find(gpt2.graph, "base_model.model.transformer.h.1.attn.c_attn.lora_A.weight");
  const Param* b = find(gpt2.graph, "base_model.model.transformer.h.1.attn.c_attn.lora_B.weight");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(a->shape, (std::vector<Index>{3, 32}));
  EXPECT_EQ(b->shape, (std::vector<Index>{96, 3}));
  EXPECT_EQ(a->layer, 1);
  EXPECT_EQ(a->law, Distribution::uniform(1 / std::sqrt(32.0)));  // kaiming_uniform(a = sqrt 5)
  EXPECT_EQ(b->law, Distribution::constant(0));
  EXPECT_EQ(gpt2.graph.trainable_count(), 2 * (3 * 32 + 96 * 3));

  const SmallModel llama =
      adapted(tiny("llama-2-7b", {"kv_heads=2", "ffn=40"}), "rank=3,roles=value,modules=mlp.down_proj,a_std=0.3,b_std=0.1");
  EXPECT_EQ(find(llama.graph, "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight")->shape, (std::vector<Index>{16, 3}));
  a = find(llama.graph, "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (std::vector<Index>{3, 40}));
  EXPECT_EQ(a->law, Distribution::normal(0.3));
  EXPECT_EQ(std::ranges::count(llama.graph.params, false, &Param::frozen), 2 * 2 * 2);
  for (const Param& p : llama.graph.params) EXPECT_EQ(p.frozen, !p.is_adapter()) << p.name;
}

TEST(Lora, AllLinearLeavesTheHeadOut) {
  const SmallModel m = adapted(tiny("llama-2-7b"), "roles=all-linear");
  EXPECT_EQ(std::ranges::count(m.graph.params, Role::lora_down, &Param::role), 2 * 7);
  EXPECT_EQ(find(m.graph, "base_model.model.lm_head.lora_A.weight"), nullptr);
  EXPECT_NE(find(adapted(tiny("llama-2-7b"), "modules=lm_head").graph, "base_model.model.lm_head.lora_A.weight"), nullptr);
}

TEST(Lora, SaysWhatCannotCarryAnAdapterAndWhatCan) {
  const auto refusal = [](Graph graph, const std::string& lora) {
    const auto done = add_adapters(graph, parse_lora(lora).value());
    EXPECT_FALSE(done) << lora;
    return done ? Error{} : done.error();
  };
  const Graph gpt2 = tiny("gpt2").graph, experts = tiny("mixtral-8x7b", {"experts=3", "ffn=40"}).graph;
  Architecture lenet = load_model("lenet").value();
  resolve(lenet).value();
  EXPECT_THAT(refusal(gpt2, "roles=gain").message, HasSubstr("\"transformer.h.0.ln_1.weight\" cannot carry an adapter: it is no matrix"));
  EXPECT_THAT(refusal(gpt2, "modules=wte").message, HasSubstr("a table of embeddings"));
  EXPECT_THAT(refusal(gpt2, "roles=head").message, HasSubstr("there is none"));  // tied
  EXPECT_THAT(refusal(gpt2, "modules=q_proj").hint, HasSubstr("query_key_value (c_attn)"));
  EXPECT_THAT(refusal(experts, "roles=ffn_in").message, HasSubstr("an expert's matrix"));
  EXPECT_THAT(refusal(experts, "roles=all-linear").message, HasSubstr("an expert's matrix"));
  EXPECT_THAT(refusal(experts, "modules=w1").hint, HasSubstr("value (v_proj)"));
  EXPECT_THAT(refusal(build_graph(lenet), "modules=conv1").message, HasSubstr("the kernel of a convolution"));
}

// ---- the pass

struct AdapterRun {
  double loss = 0;
  std::map<std::string, Tensor<double>> weights, gradients;
};

using Spoil = std::function<void(const std::string& name, View<double> w)>;

AdapterRun run_adapted(const SmallModel& m, const Spoil& change = {}, const PassOptions& options = {}) {
  AdapterRun out;
  Pass<double> pass(m.graph, m.batch, options);
  draw_weights(pass, m.graph, m.a, **find_scheme("xavier-normal"), 3);
  for (std::size_t k = 0; k < m.graph.params.size(); ++k) {
    const View<double> w = pass.weight(static_cast<int>(k));
    if (change) change(m.graph.params[k].name, w);
    out.weights[m.graph.params[k].name] = Tensor<double>(w.rows, w.cols);
    std::copy_n(w.data, w.size(), out.weights[m.graph.params[k].name].data());
  }
  out.loss = pass.forward();
  pass.backward({.parameter = [&](int k, View<const double> d) {
    Tensor<double>& to = out.gradients[m.graph.params[static_cast<std::size_t>(k)].name] = Tensor<double>(d.rows, d.cols);
    std::copy_n(d.data, d.size(), to.data());
  }});
  return out;
}

struct AdaptedCase {
  std::string preset;
  Texts set = {};
  std::string lora = "roles=all-linear";
};

std::vector<AdaptedCase> adapted_cases() {
  return {{"gpt2"},                                                                   // fused, stored (in, out), tied
          {"gpt2", {"tied=false", "norm_placement=post"}, "modules=c_attn,lm_head"},  // the head too
          {"llama-2-7b", {"kv_heads=2", "ffn=40"}},                                   // one by one
          {"pythia-1.4b", {}},                                                        // q, k, v in groups of one tensor
          {"bert-base", {}},                                                          // matrices outside the blocks
          {"mixtral-8x7b", {"experts=3", "ffn=40"}, "roles=query,value,router"},      // beside experts
          {"deepseek-v3",
           {"layers=2", "dense_layers=1", "ffn=40", "expert_ffn=24", "experts=4", "experts_per_token=2", "router_groups=2",
            "router_kept_groups=1", "query_rank=12", "key_value_rank=16", "key_dim=6", "key_rope_dim=4", "value_dim=6"},
           "roles=query,key,value,attention_out"}};
}

// W + c B A, in the storage of W.
void merge(const Param& p, View<double> w, const Tensor<double>& a, const Tensor<double>& b, double c) {
  for (Index o = 0; o < b.rows(); ++o) {
    for (Index i = 0; i < a.cols(); ++i) {
      double sum = 0;
      for (Index k = 0; k < a.rows(); ++k) sum += b(o, k) * a(k, i);
      (p.in_out ? w(i, o) : w(o, i)) += c * sum;
    }
  }
}

double largest_of(const Tensor<double>& x) {
  double largest = 0;
  for (Index i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x.data()[i]));
  return largest;
}

// dA = c B' dW and dB = c dW A'; the largest error of either, in units of its largest number.
double gradient_error(const Param& p, const Tensor<double>& dw, const AdapterRun& with, const std::string& stem, double c) {
  const Tensor<double>&a = with.weights.at(stem + "lora_A.weight"), &b = with.weights.at(stem + "lora_B.weight");
  const Tensor<double>&da = with.gradients.at(stem + "lora_A.weight"), &db = with.gradients.at(stem + "lora_B.weight");
  const auto d = [&](Index o, Index i) { return p.in_out ? dw(i, o) : dw(o, i); };
  double error_a = 0, error_b = 0;
  for (Index k = 0; k < a.rows(); ++k) {
    for (Index i = 0; i < a.cols(); ++i) {
      double sum = 0;
      for (Index o = 0; o < b.rows(); ++o) sum += c * b(o, k) * d(o, i);
      error_a = std::max(error_a, std::abs(sum - da(k, i)));
    }
    for (Index o = 0; o < b.rows(); ++o) {
      double sum = 0;
      for (Index i = 0; i < a.cols(); ++i) sum += c * d(o, i) * a(k, i);
      error_b = std::max(error_b, std::abs(sum - db(o, k)));
    }
  }
  return std::max(error_a / std::max(largest_of(da), 1e-300), error_b / largest_of(db));
}

// Against the model without adapters, whose matrices have taken B A in.
TEST(Lora, IsTheMatrixWithBATakenIn) {
  for (const AdaptedCase& c : adapted_cases()) {
    const SmallModel plain = tiny(c.preset, c.set);
    const SmallModel with = adapted(plain, "rank=3,alpha=6,b_std=0.2," + c.lora);
    const AdapterRun ours = run_adapted(with);
    const auto stem = [](const Param& p) { return std::string(adapter_prefix) + module_of(p) + "."; };
    const AdapterRun merged = run_adapted(plain, [&](const std::string& name, View<double> w) {
      const Param& p = *find(plain.graph, name);
      if (!name.ends_with(".weight") || !ours.weights.contains(stem(p) + "lora_A.weight")) return;
      merge(p, w, ours.weights.at(stem(p) + "lora_A.weight"), ours.weights.at(stem(p) + "lora_B.weight"), 2);
    });
    EXPECT_NEAR(ours.loss, merged.loss, 1e-11) << c.preset;
    std::size_t adapters = 0;
    for (const Param& p : plain.graph.params) {
      EXPECT_FALSE(ours.gradients.contains(p.name)) << p.name;  // frozen
      if (!p.name.ends_with(".weight") || !ours.gradients.contains(stem(p) + "lora_A.weight")) continue;
      ++adapters;
      EXPECT_LE(gradient_error(p, merged.gradients.at(p.name), ours, stem(p), 2), 1e-9) << c.preset << " " << p.name;
    }
    EXPECT_EQ(2 * adapters, ours.gradients.size()) << c.preset;
    EXPECT_GE(adapters, 2U);
  }
}

TEST(Lora, IsNothingWhileBIsZero) {
  for (const AdaptedCase& c : adapted_cases()) {
    const SmallModel plain = tiny(c.preset, c.set), with = adapted(plain, "rank=3,alpha=6," + c.lora);
    const AdapterRun ours = run_adapted(with), without = run_adapted(plain);
    EXPECT_EQ(ours.loss, without.loss) << c.preset;  // to the bit: adding 0 changes nothing
    for (const auto& [name, gradient] : ours.gradients) {
      const double largest = largest_of(gradient);
      if (name.ends_with("lora_A.weight"))
        EXPECT_EQ(largest, 0) << c.preset << " " << name;
      else
        EXPECT_GT(largest, 0) << c.preset << " " << name;
    }
  }
}

// Every op does without the gradients of its parameters.
TEST(Lora, FrozenParametersHaveNoGradientInAnyFamily) {
  for (const char* preset : {"gpt2", "llama-2-7b", "bert-base", "opt-125m", "gemma-2-2b", "qwen3-0.6b", "bloom-1b7", "olmo-1b"}) {
    SmallModel m = tiny(preset);
    const double loss = run_adapted(m).loss;
    for (Param& p : m.graph.params) p.frozen = true;
    const AdapterRun frozen = run_adapted(m);
    EXPECT_EQ(frozen.loss, loss) << preset;
    EXPECT_TRUE(frozen.gradients.empty()) << preset;
  }
}

// ---- measuring and predicting

MeasureOptions under_hf(int seeds = 1) { return {.scheme = *find_scheme("hf"), .seed = 2, .seeds = seeds}; }

TEST(Lora, TheGlobalNormIsThatOfTheParametersThatTrain) {
  const SmallModel m = adapted(tiny("gpt2"), "rank=4,alpha=8,b_std=0.1");
  for (const bool weightless : {false, true}) {
    MeasureOptions options = under_hf();
    options.weightless = weightless;
    const Signal s = measure(m.graph, m.a, m.batch, options).value();
    const Signal theory = predict(m.graph, m.a, m.batch, **find_scheme("hf"));
    double measured = 0, predicted = 0;
    for (const ParameterSignal& p : s.parameters) {
      EXPECT_EQ(p.gradient_norm.measured.has_value(), !p.frozen) << p.name;
      measured += std::pow(p.gradient_norm.measured.value_or(0), 2);
    }
    for (const ParameterSignal& p : theory.parameters) {
      EXPECT_EQ(p.gradient_norm.predicted.has_value(), !p.frozen) << p.name;
      predicted += std::pow(p.gradient_norm.predicted.value_or(0), 2);
    }
    EXPECT_NEAR(*s.gradient_norm.measured, std::sqrt(measured), 1e-12 * std::sqrt(measured));
    EXPECT_NEAR(*theory.gradient_norm.predicted, std::sqrt(predicted), 1e-12 * std::sqrt(predicted));
  }
}

TEST(Lora, AStreamedPassIsTheSameToTheBit) {
  for (const char* preset : {"gpt2", "llama-2-7b"}) {
    const SmallModel m = adapted(tiny(preset, {}, 40), "roles=all-linear,b_std=0.1");
    MeasureOptions streamed = under_hf();
    streamed.stream = true;
    EXPECT_EQ(to_json(measure(m.graph, m.a, m.batch, under_hf()).value()), to_json(measure(m.graph, m.a, m.batch, streamed).value()));
  }
}

// With B = 0, E |dB|^2 = c^2 r E[a^2] E |dW|^2 of the model without adapters, at any width: in the theory, and over draws.
TEST(Lora, GradientsOfBAreThoseOfTheMatrix) {
  for (const char* preset : {"gpt2", "llama-2-7b"}) {
    const SmallModel plain = tiny(preset), with = adapted(plain, "rank=4,alpha=12,roles=all-linear");
    const PredictOptions rules{.order = Order::fluctuations};
    const Scheme& hf = **find_scheme("hf");
    const Signal whole =
        join(predict(plain.graph, plain.a, plain.batch, hf, rules), measure(plain.graph, plain.a, plain.batch, under_hf(300)).value());
    const Signal low =
        join(predict(with.graph, with.a, with.batch, hf, rules), measure(with.graph, with.a, with.batch, under_hf(300)).value());
    std::map<std::string, const ParameterSignal*> matrices;
    for (const ParameterSignal& p : whole.parameters) matrices[p.name] = &p;
    for (const ParameterSignal& p : low.parameters) {
      if (p.role != Role::lora_up) continue;
      const std::string module = p.name.substr(adapter_prefix.size(), p.name.find(".lora_B") - adapter_prefix.size());
      const ParameterSignal& w = *matrices.at(module + ".weight");
      const Index in = find(with.graph, std::string(adapter_prefix) + module + ".lora_A.weight")->shape[1];
      const double ratio = 3 * std::sqrt(4 / (3 * static_cast<double>(in)));  // c = 3; E[a^2] = 1 / (3 in)
      EXPECT_NEAR(*p.gradient_norm.predicted / *w.gradient_norm.predicted, ratio, 1e-9 * ratio) << p.name;
      const double error = *p.gradient_norm.measured - ratio * *w.gradient_norm.measured;
      EXPECT_LE(std::abs(error), 4.5 * *p.gradient_norm.standard_error) << p.name << " " << error / *p.gradient_norm.measured;
    }
  }
}

// The largest error of the gradients of A or B over the means of draws, and with how many standard errors it is told.
struct Miss {
  double error = 0, z = 0;
  std::string where;
};
Miss worst_miss(const SmallModel& m, int seeds) {
  const Signal s = join(predict(m.graph, m.a, m.batch, **find_scheme("hf")), measure(m.graph, m.a, m.batch, under_hf(seeds)).value());
  Miss worst;
  for (const ParameterSignal& p : s.parameters) {
    if (p.frozen) continue;
    if (*p.gradient_norm.predicted == 0) {
      EXPECT_EQ(*p.gradient_norm.measured, 0) << p.name;  // an A whose B is 0
      continue;
    }
    const double difference = *p.gradient_norm.predicted - *p.gradient_norm.measured;
    const double error = std::abs(difference / *p.gradient_norm.measured);
    if (error > worst.error) worst = {error, std::abs(difference / *p.gradient_norm.standard_error), p.name};
  }
  return worst;
}

// Without adapters the gradients of these models' matrices are predicted within 6 % or so; B A makes a sixth of the square here, then half.
TEST(Lora, PredictionsAreThoseOfDraws) {
  const Texts narrow = {"layers=3", "width=64", "ffn=96", "vocab=300"};
  for (const char* preset : {"gpt2", "llama-2-7b"}) {
    for (const auto& [lora, bound] :
         {std::pair("rank=8,alpha=16,roles=all-linear,b_std=0.02", 0.08), std::pair("rank=8,alpha=16,roles=all-linear,b_std=0.05", 0.12)}) {
      const SmallModel m = adapted(tiny(preset, narrow, 48), lora);
      const Miss miss = worst_miss(m, 200);
      EXPECT_TRUE(miss.error <= bound || miss.z <= 3)
          << preset << " " << lora << ": " << miss.where << " " << miss.error << " z " << miss.z;
    }
  }
}

TEST(Lora, FindingsTellOfTheStartOnce) {
  const SmallModel m = adapted(tiny("gpt2"), "rank=4");
  Signal s = predict(m.graph, m.a, m.batch, **find_scheme("hf"));
  std::vector<std::string> ids;
  for (const Finding& f : diagnose(s)) ids.push_back(f.id);
  EXPECT_THAT(ids, ::testing::Contains("adapter-starts-at-zero").Times(1));
  EXPECT_THAT(ids, ::testing::Not(::testing::Contains("adapter-dead")));
  EXPECT_THAT(ids, ::testing::Not(::testing::Contains("gradient-dominated")));
}

}  // namespace
}  // namespace stepzero
