#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/report/checks.hpp"

namespace stepzero {

namespace {

constexpr Index shortest = 8;  // over fewer tokens attention has no choice

double log_of(double x) { return std::log(std::max(x, 1e-300)); }

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
  if (out.want(lowest < 0.3)) {
    out.push_back({"entropy-collapse",
                   lowest < 0.1 ? Severity::error : Severity::warning,
                   worst.name,
                   fmt::format("entropy {:.3g} of {:.3g} that uniform attention has, scores have variance {:.3g}; below 0.3 of it a query "
                               "sees one or two tokens and its softmax passes little gradient",
                               best(worst.entropy), uniform_entropy(s, stack, where), best(worst.score_variance)),
                   "",
                   {"entropy", best(worst.entropy), log_of(0.3) - log_of(lowest)}});
  }
  if (out.want(2 * uniform > seen)) {
    out.push_back({"attention-uniform",
                   Severity::note,
                   worst.name,
                   fmt::format("entropy is above 0.995 of a uniform attention's in {} of {} layers, scores have variance {:.2g}; queries "
                               "and keys matter little until they have grown",
                               uniform, seen, best(worst.score_variance)),
                   "often meant so",
                   {"layers of uniform attention", static_cast<double>(uniform),
                    log_of(2 * static_cast<double>(uniform) / static_cast<double>(seen))}});
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
  if (worst == nullptr || !out.want(best(worst->score_variance) > 4)) return;
  const double variance = best(worst->score_variance);
  out.push_back({"score-variance",
                 variance > 100 ? Severity::error : Severity::warning,
                 worst->name,
                 fmt::format("scores have variance {:.3g} where 1 is meant; above 4 weights of one query differ by e^{:.2g} and more, and "
                             "attention begins to pick single tokens at random",
                             variance, std::sqrt(variance)),
                 "",
                 {"score variance", variance, log_of(variance / 4)}});
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
  if (seen == 0 || !out.want(2 * few > seen)) return;
  out.push_back(
      {"qk-gradient-vanishes",
       lowest < 1e-4 ? Severity::warning : Severity::note,
       stack.block(where) + ".attn.q",
       fmt::format("the gradient of queries is less than 0.01 of that of values in {} of {} layers, {:.2g} in the worst; where to "
                   "look is then learned a hundred times slower than what to say",
                   few, seen, lowest),
       "",
       {"gradient of queries over that of values", lowest, log_of(0.01) - log_of(lowest)}});
}

}  // namespace stepzero
