// The accuracy of predict: a grid of architectures, schemes, widths, depths and token statistics, each predicted and
// then measured over enough draws. Prints the percentiles of the error, net of the measurement's own noise, by quantity.
//
//     bench_accuracy [--only WORD] [--most SEEDS] [--worst N] [--check]
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "stepzero/core/memory.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/comparison.hpp"
#include "stepzero/theory/predict.hpp"
#include "stepzero/theory/scheme_profile.hpp"

using namespace stepzero;

namespace {

struct Case {
  std::string name;
  std::string preset;
  std::vector<std::string> set;
  std::string scheme;
  std::string tokens = "zipf";
  Index length = 64;
  Index sequences = 1;
  bool real = false;  // witness: real weights instead of the weightless pass
};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Separate q, k, v so that their gradients are seen apart; a small vocabulary, since the head is not the subject.
std::vector<std::string> gpt2(Index layers, Index width) {
  return {fmt::format("layers={}", layers), fmt::format("width={}", width), fmt::format("heads={}", width / 64), "vocab=2000"};
}
std::vector<std::string> llama(Index layers, Index width) {
  return {fmt::format("layers={}", layers),        fmt::format("width={}", width),       fmt::format("heads={}", width / 64),
          fmt::format("kv_heads={}", width / 128), fmt::format("ffn={}", width * 8 / 3), "vocab=2000"};
}
// GPT-2's block under llama's tensor names, which keep q, k and v apart
std::vector<std::string> plain(Index layers, Index width) {
  return {fmt::format("layers={}", layers),
          fmt::format("width={}", width),
          fmt::format("heads={}", width / 64),
          fmt::format("kv_heads={}", width / 64),
          fmt::format("ffn={}", width * 4),
          "vocab=2000",
          "rotary=0",
          "position=learned",
          "norm=layernorm",
          "gated=false",
          "activation=gelu_tanh",
          "bias=true"};
}

std::vector<Case> grid() {
  const std::string l = "llama-2-7b";
  const std::vector<std::string> bert = {"norm_placement=post", "causal=false", "activation=gelu"};
  return {
      {"gpt2", "gpt2", gpt2(6, 256), "gpt2"},
      {"gpt2 real weights", "gpt2", gpt2(6, 256), "gpt2", "zipf", 64, 1, true},
      {"gpt2, deep", "gpt2", gpt2(48, 256), "gpt2", "zipf", 16},
      {"gpt2, untied", "gpt2", gpt2(12, 768) + std::vector<std::string>{"tied=false"}, "gpt2"},
      {"gpt2, distinct", "gpt2", gpt2(12, 768), "gpt2", "distinct", 64},
      {"gpt2, all equal", "gpt2", gpt2(6, 256), "gpt2", "equal", 64},
      {"gpt2, one token", "gpt2", gpt2(6, 256), "gpt2", "zipf", 1, 4},
      {"gpt2, two tokens", "gpt2", gpt2(6, 256), "gpt2", "zipf", 2, 4},
      {"pre-norm xavier", l, plain(6, 256), "xavier-normal"},
      {"pre-norm xavier, wide", l, plain(2, 1536), "xavier-normal"},
      {"pre-norm xavier, long", l, plain(4, 768), "xavier-normal", "zipf", 256},
      {"pre-norm xavier, deep", l, plain(24, 256), "xavier-normal", "zipf", 16},
      {"pre-norm he, relu, not causal", l, plain(6, 768) + std::vector<std::string>{"causal=false", "activation=relu"}, "he"},
      {"pre-norm he, relu, narrow", l, plain(6, 256) + std::vector<std::string>{"causal=false", "activation=relu"}, "he", "distinct", 64},
      {"pre-norm score variance 4", l, plain(6, 256) + std::vector<std::string>{"attention_scale=0.25"}, "xavier-normal"},
      {"score variance 4, not causal", l, plain(6, 768) + std::vector<std::string>{"attention_scale=0.25", "causal=false"}, "xavier-normal",
       "distinct", 64},
      {"bert", l, plain(12, 768) + bert, "hf", "zipf", 64},
      {"bert xavier", l, plain(6, 256) + bert, "xavier-normal", "zipf", 64},
      {"bert xavier, deep", l, plain(24, 256) + bert, "xavier-normal", "zipf", 16},
      {"post-norm causal he", l, plain(6, 256) + std::vector<std::string>{"norm_placement=post"}, "he", "distinct", 16},
      {"deepnet", l, plain(12, 256) + bert, "deepnet", "zipf", 64},
      {"deepnet, deep and causal", l, plain(48, 256), "deepnet", "distinct", 16},
      {"llama", l, llama(6, 256), "hf"},
      {"llama real weights", l, llama(6, 256), "hf", "zipf", 64, 1, true},
      {"llama wide", l, llama(4, 1536), "hf"},
      {"llama xavier", l, llama(6, 768), "xavier-normal"},
      {"llama he", l, llama(6, 768), "he", "distinct", 64},
      {"llama score variance 4", l, llama(6, 768) + std::vector<std::string>{"attention_scale=0.25"}, "xavier-normal"},
      {"llama deep", l, llama(32, 256), "xavier-normal", "zipf", 16},
      {"llama long", l, llama(2, 768), "xavier-normal", "zipf", 256},
      {"llama two sequences, window", l, llama(6, 256) + std::vector<std::string>{"window=8"}, "xavier-normal", "zipf", 32, 2},
      {"parallel", l, plain(6, 256) + std::vector<std::string>{"parallel_block=true"}, "xavier-normal"},
      {"parallel llama, deep", l, llama(16, 768) + std::vector<std::string>{"parallel_block=true"}, "hf", "zipf", 16},
      {"qk-norm", l, llama(6, 256) + std::vector<std::string>{"qk_norm=true"}, "hf"},
      {"qk-norm, wide", l, llama(4, 768) + std::vector<std::string>{"qk_norm=true"}, "he"},
      {"sandwich", l, llama(6, 256) + std::vector<std::string>{"norm_placement=sandwich"}, "hf"},
      {"sandwich, gelu", l, plain(6, 768) + std::vector<std::string>{"norm_placement=sandwich"}, "xavier-normal"},
      {"branch norm", l, llama(6, 256) + std::vector<std::string>{"norm_placement=branch"}, "xavier-normal"},
      {"no norm, relu", l, plain(6, 256) + std::vector<std::string>{"norm=none", "activation=relu", "init_std=0.3", "residual_scale=0.3"},
       "xavier-normal", "zipf", 16},
      {"no norm, gelu, wide", l, plain(4, 1536) + std::vector<std::string>{"norm=none", "init_std=0.3", "residual_scale=0.3"}, "lecun",
       "distinct", 16},
      {"sinusoidal, not causal", l, plain(6, 256) + std::vector<std::string>{"position=sinusoidal", "causal=false", "init_std=1"},
       "xavier-normal"},
      {"untied large logits", "gpt2", gpt2(4, 256) + std::vector<std::string>{"tied=false", "init_std=0.1"}, "hf"},
      {"tied, embeddings of 1", "gpt2", gpt2(4, 256) + std::vector<std::string>{"init_std=0.1"}, "hf"},
  };
}

struct Quantity {
  const char* name;
  double median, top;  // bounds of the error: 50 and 99 percent; 0: none
};
constexpr std::array quantities = std::to_array<Quantity>({
    {"forward second moment", 0.01, 0.04},
    {"gradient second moment", 0.01, 0.05},
    {"gradient norm of weights", 0.015, 0.06},
    {"gradient norm of q, k", 0.04, 0.15},
    {"token cosine", 0.005, 0.02},
    {"attention entropy", 0.01, 0.05},
    {"loss", 0.005, 0.03},
    {"global gradient norm", 0.01, 0.04},
    {"gradient norm of vectors", 0, 0},
    {"gradient token cosine", 0, 0},
    {"score variance", 0, 0},
});

// -1: not a quantity of the table
int quantity_of(const Comparison& c, const std::map<std::string, Role, std::less<>>& roles) {
  if (c.what == "loss") return 6;
  if (c.where == "gradient" && c.what == "norm") return 7;
  if (c.what == "second moment") return 0;
  if (c.what == "gradient second moment") return 1;
  if (c.what == "token cosine") return 4;
  if (c.what == "gradient token cosine") return 9;
  if (c.what == "entropy") return 5;
  if (c.what == "score variance") return 10;
  const auto role = roles.find(c.where);
  if (c.what != "gradient norm" || role == roles.end()) return -1;
  if (role->second == Role::query || role->second == Role::key) return 3;
  return role->second == Role::gain || role->second == Role::bias ? 8 : 2;
}

struct Miss {
  double net, noise, signed_error, spread;  // spread: the predicted over the measured one of single draws; 0: none
  std::string where;
};
using Errors = std::array<std::vector<Miss>, quantities.size()>;

// One number of all misses, ascending.
std::vector<double> sorted(const std::vector<Miss>& list, double Miss::* member) {
  std::vector<double> out;
  for (const Miss& m : list) out.push_back(m.*member);
  std::ranges::sort(out);
  return out;
}

std::string spreads(const std::vector<Miss>& list) {
  std::vector<double> ratios;
  for (const Miss& m : list) {
    if (std::isfinite(m.spread) && m.spread > 0) ratios.push_back(m.spread);
  }
  if (ratios.empty()) return "";
  std::ranges::sort(ratios);
  return fmt::format("{:.2f}, {:.2f}, {:.2f}", percentile(ratios, 0.1), percentile(ratios, 0.5), percentile(ratios, 0.9));
}

Errors errors_of(const Signal& joined, const std::map<std::string, Role, std::less<>>& roles) {
  Errors out;
  for (const Comparison& c : compare(joined)) {
    const int q = quantity_of(c, roles);
    if (q < 0) continue;
    // a part of a gradient that is a billionth of the whole (a single token's queries) is rounding
    const double whole = joined.gradient_norm.measured.value_or(0), least = 1e-9 * whole;
    const bool square = c.what == "gradient second moment";
    if (c.what.starts_with("gradient") && c.what != "gradient token cosine" && std::abs(c.measured) < (square ? least * least : least))
      continue;
    const bool absolute = q == 4 || q == 5 || q == 6 || q == 9;
    const double noise = absolute ? c.standard_error : c.standard_error / std::max(std::abs(c.measured), 1e-300);
    out[static_cast<std::size_t>(q)].push_back({std::sqrt(std::max(0.0, c.error * c.error - noise * noise)), noise, c.error,
                                                c.spread / (c.standard_error * std::sqrt(static_cast<double>(joined.seeds))), c.where});
  }
  return out;
}

// The standard error of every quantity is a third of its bound: for nearly all nodes of the top's, and for half of them of the
// median's, unless that takes too many draws.
bool quiet(const Errors& errors, bool medians) {
  for (std::size_t q = 0; q < quantities.size(); ++q) {
    if (quantities[q].median == 0) continue;
    const auto noise = sorted(errors[q], &Miss::noise);
    if (noise.empty()) continue;
    if (medians && percentile(noise, 0.5) > quantities[q].median / 3) return false;
    if (percentile(noise, 0.99) > quantities[q].top / 3) return false;
  }
  return true;
}

struct Result {
  Errors errors;
  int seeds = 0;
};

Result run(const Case& c, int most) {
  Architecture a = load_model(c.preset).value();
  for (const std::string& assignment : c.set) set_field(a, assignment).value();
  resolve(a).value();
  const Scheme* scheme = find_scheme(c.scheme).value();
  adapt(a, *scheme, profile).value();
  const Graph graph = build_graph(a);
  const Batch batch =
      make_batch({.source = c.tokens, .length = c.length, .sequences = c.sequences, .vocab = a.vocab, .positions = a.positions}).value();
  std::map<std::string, Role, std::less<>> roles;
  for (const Param& p : graph.params) roles[p.name] = p.role;
  const Signal theory = predict(graph, a, batch, *scheme, {.draws = true});
  MeasureOptions options{
      .scheme = scheme, .weights = {}, .weightless = !c.real, .seed = 1000, .seeds = 8 * most, .enough = {}, .progress = {}, .warn = {}};
  options.enough = [&](const Ensemble& ensemble) {
    return ensemble.count() % 16 == 0 && ensemble.count() >= 32 &&
           quiet(errors_of(join(theory, ensemble.result()), roles), ensemble.count() < most);
  };
  const Signal real = measure(graph, a, batch, options).value();
  return {errors_of(join(theory, real), roles), real.seeds};
}

void print_row(const std::string& name, const Result& r) {
  std::string line = fmt::format("| {} | {} |", name, r.seeds);
  for (std::size_t q = 0; q < 8; ++q) {
    const auto net = sorted(r.errors[q], &Miss::net);
    line += net.empty() ? " - |" : fmt::format(" {:.2f} / {:.2f} |", 100 * percentile(net, 0.5), 100 * percentile(net, 0.99));
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

bool print_table(const Errors& all, std::size_t worst) {
  bool good = true;
  fmt::print(
      "\n| quantity | n | median | 90 % | 99 % | worst | bounds | noise, median | spread: predicted / measured, 10, 50, 90 % "
      "|\n|---|---|---|---|---|---|---|---|---|\n");
  for (std::size_t q = 0; q < quantities.size(); ++q) {
    const auto net = sorted(all[q], &Miss::net);
    if (net.empty()) continue;
    const Quantity& quantity = quantities[q];
    const double median = percentile(net, 0.5), top = percentile(net, 0.99);
    const bool bound = quantity.median > 0;
    const bool met = !bound || (median <= quantity.median && top <= quantity.top);
    good = good && met;
    fmt::print("| {} | {} | {:.4f} | {:.4f} | {:.4f} | {:.4f} | {} | {:.4f} | {} |\n", quantity.name, net.size(), median,
               percentile(net, 0.9), top, net.back(),
               bound ? fmt::format("{} / {}{}", quantity.median, quantity.top, met ? "" : " NOT MET") : "",
               percentile(sorted(all[q], &Miss::noise), 0.5), spreads(all[q]));
  }
  for (std::size_t q = 0; worst > 0 && q < quantities.size(); ++q) {
    auto list = all[q];
    std::ranges::sort(list, [](const Miss& a, const Miss& b) { return a.net > b.net; });
    fmt::print("\nworst of {}:\n", quantities[q].name);
    for (std::size_t i = 0; i < std::min(worst, list.size()); ++i)
      fmt::print("  {:+.4f} (noise {:.4f})  {}\n", list[i].signed_error, list[i].noise, list[i].where);
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  std::string only;
  int most = 400;
  std::size_t worst = 0;
  bool check = false;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--only") == 0 && more)
      only = argv[++i];
    else if (std::strcmp(argv[i], "--most") == 0 && more)
      most = std::atoi(argv[++i]);
    else if (std::strcmp(argv[i], "--worst") == 0 && more)
      worst = static_cast<std::size_t>(std::atoi(argv[++i]));
    else if (std::strcmp(argv[i], "--check") == 0)
      check = true;
    else {
      fmt::print(stderr, "usage: bench_accuracy [--only WORD] [--most SEEDS] [--worst N] [--check]\n");
      return 2;
    }
  }
  keep_freed_memory();
  fmt::print("median / 99 % of the error net of noise, in percent (cosine, entropy, loss: absolute, times 100)\n\n");
  fmt::print("| model | draws | E[x^2] | gradient E[d^2] | weights | q, k | cosine | entropy | loss | gradient norm |\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|---|\n");
  Errors all;
  for (const Case& c : grid()) {
    if (c.name.find(only) == std::string::npos) continue;
    const std::string name = fmt::format("{}; {}, {} x {}, {}", c.name, c.scheme, c.sequences, c.length, c.tokens);
    const Result r = run(c, most);
    print_row(name, r);
    for (std::size_t q = 0; q < quantities.size(); ++q) {
      for (const Miss& e : r.errors[q]) all[q].push_back({e.net, e.noise, e.signed_error, e.spread, c.name + ": " + e.where});
    }
  }
  const bool good = print_table(all, worst);
  return check && !good ? 1 : 0;
}
