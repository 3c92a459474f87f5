#include "stepzero/solve/quantities.hpp"

#include <algorithm>
#include <cmath>

namespace stepzero::solve {

namespace {

constexpr double none = NAN;

std::optional<Stream> last_stream(const Readout& r) {
  auto all = r.streams();
  if (all.empty()) return {};
  return all.back();
}

double cosine(const Readout& r) {
  const auto s = last_stream(r);
  return s ? r.of(r.signal().nodes[s->nodes.back()].forward.token_cosine) : none;
}

double added(const Readout& r) {
  const auto s = last_stream(r);
  if (!s) return none;
  double x = 1;
  for (const Sum& sum : r.sums()) {
    if (sum.stack == s->stack) x *= 1 + sum.share;
  }
  return x - 1;
}

double gradient_ratio(const Readout& r) {
  const auto s = last_stream(r);
  return s && s->nodes.size() > 1 ? r.gradient(s->nodes.front()) / r.gradient(s->nodes.back()) : none;
}

double scores(const Readout& r) {
  double most = none;
  for (const AttentionSignal& a : r.signal().attention) most = std::fmax(most, r.of(a.score_variance));
  return most;
}

double entropy(const Readout& r) {
  double least = none;
  for (const AttentionSignal& a : r.signal().attention) least = std::fmin(least, r.of(a.entropy));
  return least;
}

double queries(const Readout& r) {
  double least = none;
  for (std::size_t q = 0; q < r.signal().nodes.size(); ++q) {
    const std::string& name = r.signal().nodes[q].name;
    const int v = name.ends_with(".q") ? r.graph().find_node(name.substr(0, name.size() - 1) + "v") : -1;
    if (v >= 0 && r.gradient(static_cast<std::size_t>(v)) > 0)
      least = std::fmin(least, r.gradient(q) / r.gradient(static_cast<std::size_t>(v)));
  }
  return least;
}

}  // namespace

std::span<const Quantity> quantities() {
  static const std::vector<Quantity> all = {
      {"loss", "the loss", {}, false, [](const Readout& r) { return r.of(r.signal().loss); }},
      {"gradient_norm", "norm of the whole gradient", {}, true, [](const Readout& r) { return r.of(r.signal().gradient_norm); }},
      {"forward",
       "growth of ln E[x^2] of the stream a layer",
       {0},
       false,
       [](const Readout& r) { return r.of(r.signal().growth.forward); }},
      {"backward",
       "growth of the logarithm of the stream's gradient a layer, towards the input",
       {0},
       false,
       [](const Readout& r) { return r.of(r.signal().growth.gradient); }},
      {"angle",
       "growth of the logarithm of the angle between tokens a layer",
       {0},
       false,
       [](const Readout& r) { return r.of(r.signal().growth.angle); }},
      {"cosine", "mean cosine between tokens at the end", {0.95}, false, cosine},
      {"added", "what all branches add, over the embedding", {1}, true, added},
      {"gradient_ratio", "the stream's gradient at the first layer over that at the last", {1}, true, gradient_ratio},
      {"scores", "largest variance of scores", {1, 4}, true, scores},
      {"entropy", "least entropy of attention", {}, false, entropy},
      {"queries", "least gradient of queries over that of values", {0.01}, true, queries},
  };
  return all;
}

}  // namespace stepzero::solve
