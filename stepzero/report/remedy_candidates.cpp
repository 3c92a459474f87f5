#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "stepzero/report/depth.hpp"
#include "stepzero/report/remedies.hpp"

namespace stepzero {

std::string Change::flags() const {
  std::string out = scheme.empty() ? "" : "--scheme " + scheme;
  for (const std::string& s : set) out += (out.empty() ? "" : " ") + ("--set " + s);
  return out;
}

namespace {

using Changes = std::vector<Change>;

Change scheme(std::string_view name) { return {std::string(name), {}}; }
Change set(std::string_view key, double value) { return {"", {fmt::format("{}={:.3g}", key, value)}}; }
Change set(std::string text) { return {"", {std::move(text)}}; }

template <class... More>
void add(Changes& list, More... more) {
  (list.push_back(std::move(more)), ...);
}

bool post(const Architecture& a) { return a.norm_placement == NormPlacement::post; }
double branches(const Architecture& a) { return 2 * static_cast<double>(a.layers + a.decoder_layers); }

// What keeps sizes whatever is wrong with them: schemes that were made for these norms.
void add_steady(const Architecture& a, Changes& list) {
  if (!a.stages.empty())
    return add(list, scheme("he"), scheme("he-fan-out"), set("norm=batchnorm"), scheme("xavier-normal"), scheme("lecun"),
               scheme("torch-default"));
  if (a.norm == NormKind::none) return add(list, scheme("t-fixup"), scheme("fixup"), scheme("rezero"), set("norm=layernorm"));
  if (post(a)) return add(list, scheme("deepnet"), scheme("admin"), set("norm_placement=pre"), Change{"megatron", {"norm_placement=pre"}});
  add(list, scheme("megatron"), scheme("hf"), scheme("llama-depth"), scheme("olmo-mitchell"), scheme("small-init+wang"));
}

void add_smaller_branches(const Architecture& a, Changes& list) {
  if (!a.stages.empty()) return;
  const double root = 1 / std::sqrt(branches(a));
  add(list, set("residual_scale", a.residual_scale * root), set("residual_scale", a.residual_scale / branches(a)));
}

void add_smaller_weights(const Architecture& a, Changes& list) {
  if (a.init_std > 0.02) add(list, set("init_std=0.02"));
}

// Scores go with the square of the attention's scale.
void add_scores_of(double variance, const Signal& s, Changes& list) {
  const double now = best(s.attention.empty() ? Value{} : s.attention.front().score_variance);
  double most = now;
  for (const AttentionSignal& a : s.attention) most = std::max(most, best(a.score_variance));
  const Architecture& a = s.architecture;
  if (most > 0 && a.attention_scale > 0) {
    add(list, set("attention_scale", a.attention_scale * std::sqrt(variance / most)));
    add(list, set("attention_scale", a.attention_scale * std::sqrt(variance / most) / 3));
  }
  if (a.qk_norm == QkNorm::none) add(list, set("qk_norm=head"));
}

// The scale of logits that leaves 0.4 above a uniform guess: half their variance, and what a tied head adds to the token it reads.
void add_smaller_logits(const Signal& s, Changes& list) {
  const Architecture& a = s.architecture;
  const double excess = std::abs(best(s.loss) - std::log(static_cast<double>(a.vocab)));
  const double half = s.nodes.empty() ? 0 : best(s.nodes.back().forward.variance) / 2, raised = std::max(excess - half, 0.0);
  const double wanted = 0.4;
  const double scale =
      half > 0 ? (std::sqrt(raised * raised + 4 * half * wanted) - raised) / (2 * half) : wanted / std::max(raised, wanted);
  if (!(scale > 0) || !std::isfinite(scale)) return;
  add(list, set("logit_scale", a.logit_scale * std::min(scale, 0.9)), set("logit_scale", a.logit_scale * std::min(scale, 0.9) / 4));
  if (a.tied)
    add(list, set("tied=false"), Change{"", {"tied=false", fmt::format("logit_scale={:.3g}", a.logit_scale * std::min(scale, 0.9))}});
}

// The scale of embeddings whose square is a hundredth of what the first block adds, and more.
void add_larger_embeddings(const Signal& s, Changes& list) {
  const Architecture& a = s.architecture;
  for (const Stack& stack : stacks(s)) {
    const double added = stack.depth() > 0 ? added_share(s, stack, 0) : 0;
    if (!(added > 100)) continue;
    add(list, set("embedding_scale", a.embedding_scale * std::sqrt(added / 10)));
  }
  const double root = std::sqrt(static_cast<double>(a.width));
  add(list, set("embedding_scale", root), scheme("llama-depth"));
}

void add_for_design(const Signal& s, const Finding& f, Changes& list) {
  const Architecture& a = s.architecture;
  if (f.id == "depth-unscaled") {
    add(list, scheme("megatron"));
    add_smaller_branches(a, list);
    add(list, scheme("llama-depth"));
  }
  if (f.id == "depth-scale-misplaced") add(list, scheme("llama-depth"), scheme("megatron"));
  if (f.id == "scheme-misfit" && (a.norm_placement == NormPlacement::sandwich || a.norm_placement == NormPlacement::branch)) {
    add(list, scheme("hf"), scheme("xavier-normal"), scheme("completep"), set("norm_placement=pre"));
  }
}

void add_for_head(const Signal& s, const Finding& f, Changes& list) {
  if (f.id == "loss-at-start" || (f.id == "embedding-head-balance" && s.architecture.tied)) add_smaller_logits(s, list);
  if (f.id == "embedding-head-balance" && !s.architecture.tied) {
    add_larger_embeddings(s, list);
    add(list, set("tied=true"));
    add_smaller_logits(s, list);
  }
  if (f.id == "embedding-drowned" || f.id == "gradient-dominated") {
    add_larger_embeddings(s, list);
    add_smaller_branches(s.architecture, list);
  }
}

void add_for_depth(const Signal& s, const Finding& f, Changes& list) {
  const Architecture& a = s.architecture;
  const bool grows = f.id == "signal-explodes" || f.id == "gradient-explodes" || f.id == "branch-dominant" || f.id == "fp16-overflow" ||
                     f.id == "rank-collapse" || f.id == "not-finite";
  if (grows) {
    if (post(a)) add_steady(a, list);
    add_smaller_weights(a, list);
    add_smaller_branches(a, list);
  }
  if (f.id == "signal-vanishes" || f.id == "gradient-vanishes") {
    if (a.skip_scale != 1 || !a.skip_scales.empty()) add(list, set("skip_scale=1"));
  }
  if (f.id == "rank-collapse") add_larger_embeddings(s, list);
  const bool faint = f.id == "branches-negligible" || f.id == "bf16-rounding";
  if (faint && f.reading.value > 0) {
    const double share = f.id == "bf16-rounding" ? f.reading.value * f.reading.value : f.reading.value;
    add(list, set("residual_scale", a.residual_scale * std::sqrt(1e-4 / share)),
        set("residual_scale", a.residual_scale * std::sqrt(1e-3 / share)));
  }
}

}  // namespace

std::vector<Change> candidates(const Signal& s, const Finding& f) {
  Changes list;
  if (f.id.starts_with("adapter-")) return list;  // nothing that a scheme or the model could change
  // not of the model: what stores or steps is to be changed
  if (f.id == "fp16-underflow" || f.id == "fp8-range") return list;
  // the scheme means it
  if (f.id == "branches-negligible" && (f.reading.value == 0 || s.architecture.branch_gain != BranchGain::none)) return list;
  add_for_design(s, f, list);
  add_for_head(s, f, list);
  if (f.id == "entropy-collapse" || f.id == "score-variance") {
    add_smaller_weights(s.architecture, list);
    add_scores_of(1, s, list);
  }
  if (f.id == "attention-uniform" || f.id == "qk-gradient-vanishes") add_scores_of(1, s, list);
  add_for_depth(s, f, list);
  add_steady(s.architecture, list);
  add_smaller_weights(s.architecture, list);
  Changes out;
  for (Change& c : list) {
    if (c.scheme == s.scheme) c.scheme.clear();
    if ((!c.scheme.empty() || !c.set.empty()) && std::ranges::find(out, c) == out.end()) out.push_back(std::move(c));
  }
  return out;
}

}  // namespace stepzero
