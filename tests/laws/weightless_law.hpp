#pragma once
// The law of the weightless pass: every number that measure reports has the distribution it has with real weights.
// Two ensembles over different seeds, one real and one weightless; for each number the difference of the means over its
// standard error, and the difference of the logarithms of the variances over theirs.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/lora.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/pass/fill_pass.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/describe.hpp"

namespace stepzero::laws {

struct WeightlessCase {
  std::string name;
  std::string preset;
  std::vector<std::string> set;
  std::string scheme = "xavier-normal";
  Index length = 32;
  Index sequences = 1;
  std::string lora = {};
  StepOptions step = {};
};

struct Comparison {
  std::string what;
  double real = 0, weightless = 0;  // means over seeds
  double z_mean = 0, z_variance = 0;
};

struct Agreement {
  std::vector<Comparison> rows;
  double rms_mean = 0, rms_variance = 0;  // of the z; 1 if only chance separates the two
  double largest = 0;
  std::string largest_at;
};

using Mutant = std::function<void(const Graph&, Weightless&)>;

struct Sample {
  std::vector<double> x;
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const double v : x) sum += v;
    return sum / static_cast<double>(x.size());
  }
  [[nodiscard]] double central(int power) const {
    const double m = mean();
    double sum = 0;
    for (const double v : x) sum += std::pow(v - m, power);
    return sum / static_cast<double>(x.size());
  }
};

// Those of a step. The norm of a matrix that is not made is the one its law gives: `relative`, and what a decay adds to the update, do
// not scatter as they should, and are left out.
inline void add_step_numbers(const StepSignal& step, bool decays, const std::function<void(const std::string&, const Value&)>& add) {
  add("loss after", step.after);
  add("first order", step.first_order);
  for (const auto& w : step.wires) {
    add(w.name + " second moment after", w.second_moment);
    add(w.name + " cosine after", w.token_cosine);
    add(w.name + " change", w.change);
    add(w.name + " relative change", w.relative);
    if (w.kind == "experts" || w.kind == "lora_linear") continue;  // weightless, their change is not split
    add(w.name + " direct", w.direct);
    add(w.name + " carried", w.carried);
  }
  for (const auto& a : step.attention) {
    add(a.name + " score change", a.change);
    add(a.name + " score variance after", a.score_variance);
    add(a.name + " entropy after", a.entropy);
  }
  for (const auto& p : step.parameters) {
    if (!decays) add(p.name + " update norm", p.update_norm);
    add(p.name + " direct change", p.direct_change);
    add(p.name + " decrease", p.decrease);
  }
}

inline bool decays(const Signal& s) {
  return std::ranges::any_of(s.optimizer.settings, [](const auto& setting) { return setting.first == "decay" && setting.second > 0; });
}

// Every number of a pass but those that are functions of the others (variance, second moment of a gradient) and the
// std of the parameters.
inline std::vector<std::pair<std::string, double>> numbers_of(const Signal& s) {
  std::vector<std::pair<std::string, double>> out = {{"loss", s.loss.measured.value()},
                                                     {"gradient norm", s.gradient_norm.measured.value()}};
  const auto add = [&](const std::string& name, const Value& value) {
    if (value.measured) out.emplace_back(name, *value.measured);
  };
  for (const auto& n : s.nodes) {
    add(n.name + " second moment", n.forward.second_moment);
    add(n.name + " mean", n.forward.mean);
    add(n.name + " cosine", n.forward.token_cosine);
    add(n.name + " gradient norm", n.backward.norm);
    add(n.name + " gradient cosine", n.backward.token_cosine);
  }
  for (const auto& a : s.attention) {
    add(a.name + " score variance", a.score_variance);
    add(a.name + " entropy", a.entropy);
    add(a.name + " sum of squares", a.sum_squares);
  }
  for (const auto& p : s.parameters) add(p.name + " gradient norm", p.gradient_norm);
  for (const StepSignal& step : s.steps) add_step_numbers(step, decays(s), add);
  return out;
}

inline Architecture architecture_of(const WeightlessCase& c) {
  Architecture a = load_model(c.preset).value();
  for (const std::string& assignment : c.set) set_field(a, assignment).value();
  resolve(a).value();
  return a;
}

inline Batch batch_of(const WeightlessCase& c, const Architecture& a) {
  return make_batch({.source = "zipf", .length = c.length, .sequences = c.sequences, .vocab = a.vocab, .positions = a.positions}).value();
}

struct Draws {
  std::vector<std::string> names;
  std::vector<Sample> samples;
};

inline Draws draw_ensemble(const WeightlessCase& c, bool weightless, int seeds, std::uint64_t first_seed, const Mutant& mutant = {}) {
  const Architecture a = architecture_of(c);
  Graph graph = build_graph(a);
  if (!c.lora.empty()) add_adapters(graph, parse_lora(c.lora).value()).value();
  const Batch batch = batch_of(c, a);
  const Scheme& scheme = **find_scheme(c.scheme);
  const auto distributions = distributions_of(graph, a, scheme);
  Weightless stand_ins = make_weightless(graph, batch, distributions, 0);
  const Weightless* given = weightless ? &stand_ins : nullptr;
  Pass<float> pass(graph, batch, {.checkpoint = weightless, .keep_cuts = weightless, .weightless = given});
  const auto step = [&](Signal& signal, auto&& walk) {
    measure_pass(pass, graph, batch, signal, {}, walk.observer());
    walk.run(pass, signal);
  };
  Draws draws;
  for (int s = 0; s < seeds; ++s) {
    const std::uint64_t seed = first_seed + static_cast<std::uint64_t>(s);
    stand_ins = make_weightless(graph, batch, distributions, seed);
    if (mutant) mutant(graph, stand_ins);
    draw_weights(pass, graph, a, scheme, seed, given);
    Signal signal = describe(graph, a, batch);
    signal.optimizer = described(c.step.optimizer);
    if (c.step.steps == 0)
      measure_pass(pass, graph, batch, signal);
    else if (weightless)
      step(signal, WeightlessSteps(graph, batch, c.step, stand_ins, pass));
    else
      step(signal, RealSteps(graph, batch, c.step));
    const auto numbers = numbers_of(signal);
    draws.samples.resize(numbers.size());
    draws.names.resize(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      draws.names[i] = numbers[i].first;
      draws.samples[i].x.push_back(numbers[i].second);
    }
  }
  return draws;
}

// No two ensembles share a seed: embeddings would be the same, and the difference too small.
inline Draws real_ensemble(const WeightlessCase& c, int seeds) { return draw_ensemble(c, false, seeds, 1000); }
inline Draws weightless_ensemble(const WeightlessCase& c, int seeds, const Mutant& mutant = {}) {
  return draw_ensemble(c, true, seeds, 500000, mutant);
}

// An update by signs has the same size in nearly every draw: what differs then are single numbers near 0, and experts that no token
// chose, too few for a variance.
inline bool fixed_by_rule(const std::string& name, Sample sample) {
  const bool by_rule = name.ends_with("update norm") || name.ends_with("direct") || name.ends_with("direct change");
  if (!by_rule) return false;
  std::ranges::sort(sample.x);
  const std::size_t n = sample.x.size();
  const double low = sample.x[n / 20], high = sample.x[n - 1 - n / 20];
  return !(high - low > 1e-3 * std::abs(high));
}

inline Agreement compare(const Draws& a, const Draws& b) {
  const std::vector<std::string>& names = a.names;
  const std::vector<Sample>&real = a.samples, &lazy = b.samples;
  Agreement out;
  const double scale = real[1].mean();  // of the whole gradient
  double means = 0, variances = 0;
  const auto n = static_cast<double>(real[0].x.size());
  for (std::size_t i = 0; i < real.size(); ++i) {
    const double vr = real[i].central(2), vl = lazy[i].central(2);
    const double mr = real[i].mean(), ml = lazy[i].mean();
    // fixed by the architecture (the second moment behind a norm), or 0 but for rounding (the gradient of a key's bias)
    const bool gradient = names[i].ends_with("gradient norm");
    if (std::sqrt(vr) < 1e-5 * std::abs(mr) || (gradient && mr < 1e-6 * scale) || vr == 0 || fixed_by_rule(names[i], real[i])) continue;
    const double kurtosis = (real[i].central(4) / (vr * vr) + lazy[i].central(4) / (vl * vl)) / 2;
    Comparison row{names[i], mr, ml, (ml - mr) / std::sqrt((vr + vl) / (n - 1)), std::log(vl / vr) / std::sqrt(2 * (kurtosis - 1) / n)};
    means += row.z_mean * row.z_mean;
    variances += row.z_variance * row.z_variance;
    for (const double z : {row.z_mean, row.z_variance}) {
      if (!(std::abs(z) <= out.largest)) out.largest = std::abs(z), out.largest_at = names[i] + (z == row.z_mean ? ", mean" : ", variance");
    }
    out.rows.push_back(std::move(row));
  }
  out.rms_mean = std::sqrt(means / static_cast<double>(out.rows.size()));
  out.rms_variance = std::sqrt(variances / static_cast<double>(out.rows.size()));
  return out;
}

// No two lines share a seed.
inline Draws step_ensemble(const WeightlessCase& c, bool weightless, int seeds, int line, const Mutant& mutant = {}) {
  return draw_ensemble(c, weightless, seeds, static_cast<std::uint64_t>(line) * 10'000'000 + (weightless ? 500000 : 1000), mutant);
}

inline std::vector<WeightlessCase> weightless_cases() {
  const auto gpt2 = [](std::vector<std::string> more) {
    std::vector<std::string> set = {"layers=3", "width=96", "heads=4", "vocab=311", "positions=64", "init_std=0.2"};
    set.insert(set.end(), more.begin(), more.end());
    return set;
  };
  const auto llama = [](std::vector<std::string> more) {
    std::vector<std::string> set = {"layers=2", "width=128", "heads=8", "kv_heads=2", "ffn=224", "vocab=311", "init_std=0.5"};
    set.insert(set.end(), more.begin(), more.end());
    return set;
  };
  return {
      {.name = "pre-norm, GELU, causal, fused qkv, tied head", .preset = "gpt2", .set = gpt2({})},
      {.name = "pre-norm, ReLU, not causal",
       .preset = "gpt2",
       .set = gpt2({"causal=false", "activation=relu", "tied=false"}),
       .length = 48},
      {.name = "post-norm, GELU, causal", .preset = "gpt2", .set = gpt2({"norm_placement=post", "tied=false"}), .length = 24},
      {.name = "norm on the branch, tanh, softcap",
       .preset = "gpt2",
       .set = gpt2({"norm_placement=branch", "activation=tanh", "logit_softcap=5", "tied=false"}),
       .scheme = "lecun"},
      {.name = "sandwich norm, RMSNorm, SwiGLU", .preset = "llama-2-7b", .set = llama({"norm_placement=sandwich"}), .length = 40},
      {.name = "LLaMA: rotary, SwiGLU, 8 heads on 2", .preset = "llama-2-7b", .set = llama({}), .scheme = "he", .length = 48},
      {.name = "QK-norm, tied head, shared keys", .preset = "llama-2-7b", .set = llama({"qk_norm=true", "tied=true"}), .length = 40},
      {.name = "parallel block, GELU", .preset = "gpt2", .set = gpt2({"parallel_block=true", "tied=false"}), .scheme = "he"},
      {.name = "no norm, ReLU, width 64",
       .preset = "gpt2",
       .set = gpt2({"norm=none", "activation=relu", "width=64", "layers=2"}),
       .scheme = "he",
       .length = 24},
      {.name = "Mixtral: 2 of 6 experts", .preset = "mixtral-8x7b", .set = llama({"experts=6", "ffn=96"}), .length = 40},
      {.name = "DeepSeek-V3: latent attention, 3 of 8 experts, a shared one",
       .preset = "deepseek-v3",
       .set = {"layers=3", "width=128", "heads=4", "ffn=160", "expert_ffn=64", "experts=8", "experts_per_token=3", "router_groups=4",
               "router_kept_groups=2", "dense_layers=1", "query_rank=48", "key_value_rank=64", "key_dim=24", "key_rope_dim=16",
               "value_dim=24", "vocab=311", "init_std=0.3"},
       .length = 32},
      {.name = "two sequences, window of 5",
       .preset = "llama-2-7b",
       .set = llama({"window=5", "kv_heads=8"}),
       .length = 24,
       .sequences = 2},
      {.name = "LLaMA with adapters of rank 4",
       .preset = "llama-2-7b",
       .set = llama({}),
       .scheme = "he",
       .length = 40,
       .lora = "rank=4,alpha=8,roles=query,value,ffn_out,b_std=0.2"},
      {.name = "GPT-2 with adapters beside fused q, k, v, stored (in, out)",
       .preset = "gpt2",
       .set = gpt2({}),
       .lora = "rank=4,alpha=8,roles=query_key_value,b_std=0.2"},
  };
}

// Six of them and one with adapters, each with the first step of three optimizers.
inline std::vector<WeightlessCase> weightless_step_cases() {
  std::vector<WeightlessCase> cases;
  for (const std::size_t i : {0, 2, 4, 5, 6, 9, 12}) {
    for (OptimizerOptions optimizer :
         {OptimizerOptions{.name = "sgd", .rate = 0.2, .momentum = 0.9, .nesterov = true, .decay = 0.1, .clip = 1},
          OptimizerOptions{.name = "adamw", .rate = 2e-3}, OptimizerOptions{.name = "muon", .rate = 0.02}}) {
      WeightlessCase c = weightless_cases()[i];
      c.step = {.steps = 1, .optimizer = settled(optimizer).value(), .search = false};
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace stepzero::laws
