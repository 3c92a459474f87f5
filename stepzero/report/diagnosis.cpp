#include "stepzero/report/diagnosis.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/sort_few.hpp"
#include "stepzero/report/checks.hpp"

namespace stepzero {

namespace {

constexpr std::array all_diagnoses = std::to_array<Diagnosis>({
    {"not-finite", "a number is infinite or undefined: the pass overflowed, or the weights hold NaN or Inf",
     "any infinite or undefined number"},
    {"signal-explodes", "the signal multiplies from layer to layer instead of adding up",
     "E[x^2] grows more than 4 times over the second half of the layers (independent branches: 2 times)"},
    {"signal-vanishes", "the signal dies out with depth", "E[x^2] falls below a quarter over the second half of the layers"},
    {"gradient-explodes", "gradients multiply on their way to the input",
     "from the end to the second layer more than 4 layers times, or more than 4 times over the second half"},
    {"gradient-vanishes", "gradients die out on their way to the input", "below a tenth from the end to the second layer"},
    {"rank-collapse", "all tokens point the same way at the end: the model cannot tell them apart",
     "mean cosine at the end above 0.95 (error: 0.99), and higher than at the start"},
    {"branches-negligible", "the blocks add next to nothing: the model starts as if it had no layers",
     "no block adds more than 1e-5 of the stream's square (0.3 % of its size)"},
    {"branch-dominant", "a block in the middle overwrites what came before it",
     "a block after the first adds more than 10 times the stream's square"},
    {"embedding-drowned", "the first block overwrites the embeddings", "the first block adds more than 100 times the embeddings' square"},
    {"entropy-collapse", "attention looks at a single token", "entropy below 0.3 (error: 0.1) of uniform attention's"},
    {"attention-uniform", "attention looks at everything alike", "entropy above 0.995 of uniform attention's in most layers"},
    {"score-variance", "attention scores are far larger than 1", "variance of the scaled scores above 4 (error: 100)"},
    {"qk-gradient-vanishes", "queries and keys get almost no gradient: attention will not learn where to look",
     "gradient of queries below 0.01 of that of values in most layers (warning: 1e-4)"},
    {"loss-at-start", "the first loss is far from that of a uniform guess, ln V", "further than 0.5 from ln V (warning: 2, error: 10)"},
    {"embedding-head-balance", "the token table and the head need different sizes",
     "tied: logits of std above 4; untied: gradient norms more than 30 times apart (warning: 300)"},
    {"gradient-dominated", "one tensor makes up most of the gradient: clipping by the global norm is ruled by it",
     "one tensor has more than half of the squared gradient norm"},
    {"fp16-overflow", "activations leave the range of float16", "six deviations reach 65504"},
    {"fp16-underflow", "gradients are flushed to zero in float16", "gradients of size below 2^-24, for this batch"},
    {"fp8-range", "activations leave the range of fp8 E4M3", "six deviations reach 448, or the size is below 2^-9"},
    {"bf16-rounding", "what a block adds is lost when bfloat16 rounds the sum", "a block adds less than 2^-9 of the stream's size"},
    {"depth-unscaled", "a deep stack whose branches are as large as those of a shallow one",
     "12 layers or more (warning: 48), norms before the branches, and output projections drawn like the values'"},
    {"depth-scale-misplaced", "the up projection of a gated feed-forward was divided by depth along with the down projection",
     "the up projection's std is below 0.7 of the gate's"},
    {"scheme-misfit", "the initialization was made for another placement of norms",
     "no norms under a scheme that counts on them; norms after the sum in 18 layers or more without a scheme for that; division by depth "
     "before a norm"},
    {"adapter-starts-at-zero", "gradients of A are 0 until B moves: adapters begin as nothing",
     "gradients of all A are exactly 0, and some B has one"},
    {"adapter-dead", "adapters that cannot learn: neither A nor B has a gradient", "gradients of all A and all B are exactly 0"},
});

}  // namespace

std::span<const Diagnosis> diagnoses() { return all_diagnoses; }

namespace {

void check_all(const Signal& s, Findings& out) {
  check_finite(s, out);
  // a signal that is not finite would only set off everything else
  if (!out.empty()) return;
  for (const Stack& stack : stacks(s)) {
    check_signal_growth(s, stack, out);
    check_gradient_growth(stack, out);
    check_rank(stack, out);
    check_branches(s, stack, out);
    check_entropy(s, stack, out);
    check_scores(s, stack, out);
    check_query_gradients(s, stack, out);
    check_rounding(s, stack, out);
  }
  check_loss(s, out);
  check_embedding_and_head(s, out);
  check_one_tensor(s, out);
  check_half_precision(s, out);
  check_quarter_precision(s, out);
  check_depth_scaling(s, out);
  check_gated_scaling(s, out);
  check_scheme(s, out);
  check_adapters(s, out);
}

}  // namespace

std::vector<Finding> diagnose(const Signal& s) {
  Findings out;
  check_all(s, out);
  worst_first(out);
  return out;
}

std::vector<Finding> readings(const Signal& s) {
  Findings out;
  out.everything = true;
  check_all(s, out);
  return out;
}

bool any_at_least(std::span<const Finding> findings, Severity severity) {
  return std::ranges::any_of(findings, [&](const Finding& f) { return f.severity >= severity; });
}

std::string verdict(std::span<const Finding> findings) {
  std::vector<std::string> parts;
  for (const Severity severity : {Severity::error, Severity::warning, Severity::note}) {
    const auto n = std::ranges::count(findings, severity, &Finding::severity);
    if (n > 0) parts.push_back(fmt::format("{} {}{}", n, to_string(severity), n == 1 ? "" : "s"));
  }
  return parts.empty() ? "nothing stands out" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace stepzero
