#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/report/checks.hpp"

namespace stepzero {

namespace {

constexpr Index shortest = 8;  // over fewer tokens attention has no choice

std::string score_remedy(const Architecture& a) {
  return a.qk_norm == QkNorm::none ? "smaller query and key matrices (std 1/sqrt(width)), a norm on both (--set qk_norm=head), or a "
                                     "smaller attention_scale"
                                   : "a smaller attention_scale: the norms on queries and keys fix their sizes";
}

}  // namespace

void check_entropy(const Signal& s, const Stack& stack, Findings& out) {
  if (s.seq_len < shortest) return;
  double lowest = 2;
  std::size_t where = 0, uniform = 0, seen = 0;
  for (std::size_t l = 0; l < stack.depth(); ++l) {
    if (stack.layers[l].attention == nullptr) continue;
    const double share = best(stack.layers[l].attention->entropy) / uniform_entropy(s, stack, l);
    if (share < lowest) lowest = share, where = l;
    uniform += share > 0.995 ? 1 : 0;
    ++seen;
  }
  if (seen == 0) return;
  const AttentionSignal& worst = *stack.layers[where].attention;
  if (lowest < 0.3) {
    out.push_back({"entropy-collapse", lowest < 0.1 ? Severity::error : Severity::warning, worst.name,
                   fmt::format("entropy {:.3g} of {:.3g} that uniform attention has, scores have variance {:.3g}; below 0.3 of it a query "
                               "sees one or two tokens and its softmax passes little gradient",
                               best(worst.entropy), uniform_entropy(s, stack, where), best(worst.score_variance)),
                   score_remedy(s.architecture)});
  }
  if (2 * uniform > seen) {
    out.push_back({"attention-uniform", Severity::note, worst.name,
                   fmt::format("entropy is above 0.995 of a uniform attention's in {} of {} layers, scores have variance {:.2g}; queries "
                               "and keys matter little until they have grown",
                               uniform, seen, best(worst.score_variance)),
                   "often meant so; otherwise larger query and key matrices (std 1/sqrt(width)) or a norm on both (--set qk_norm=head)"});
  }
}

// Scores of variance 1 are what 1/sqrt(head_dim) is there for.
void check_scores(const Signal& s, const Stack& stack, Findings& out) {
  if (s.seq_len < shortest) return;
  const AttentionSignal* worst = nullptr;
  for (const Layer& layer : stack.layers) {
    if (layer.attention == nullptr) continue;
    if (worst == nullptr || best(layer.attention->score_variance) > best(worst->score_variance)) worst = layer.attention;
  }
  if (worst == nullptr || !(best(worst->score_variance) > 4)) return;
  const double variance = best(worst->score_variance);
  out.push_back({"score-variance", variance > 100 ? Severity::error : Severity::warning, worst->name,
                 fmt::format("scores have variance {:.3g} where 1 is meant; above 4 weights of one query differ by e^{:.2g} and more, and "
                             "attention begins to pick single tokens at random",
                             variance, std::sqrt(variance)),
                 score_remedy(s.architecture)});
}

// Queries and values read the same tokens, so their gradients can be held against each other.
void check_query_gradients(const Signal& s, const Stack& stack, Findings& out) {
  if (s.seq_len < shortest) return;
  double lowest = 1;
  std::size_t where = 0, few = 0, seen = 0;
  for (std::size_t l = 0; l < stack.depth(); ++l) {
    const Layer& layer = stack.layers[l];
    if (layer.query == nullptr || layer.value == nullptr) continue;
    const double value = best(layer.value->backward.norm);
    if (!(value > 0)) continue;
    const double ratio = best(layer.query->backward.norm) / value;
    if (ratio < lowest) lowest = ratio, where = l;
    few += ratio < 0.01 ? 1 : 0;
    ++seen;
  }
  if (seen == 0 || 2 * few <= seen) return;
  out.push_back(
      {"qk-gradient-vanishes", lowest < 1e-4 ? Severity::warning : Severity::note, stack.block(where) + ".attn.q",
       fmt::format("the gradient of queries is less than 0.01 of that of values in {} of {} layers, {:.2g} in the worst; where to "
                   "look is then learned a hundred times slower than what to say",
                   few, seen, lowest),
       "larger scores (std 1/sqrt(width) for queries and keys, or --set qk_norm=head), and tokens that differ (rank-collapse)"});
}

}  // namespace stepzero
