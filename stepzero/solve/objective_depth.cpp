// depth: what all branches together add to the embedding. Let the stream begin with square 1 and branch b add tau_b^2 of what is there:
//
//     X_0 = 1,  C_b = tau_b^2 X_b,  X_{b+1} = X_b + C_b
//     sum of C_b over attention = attention,   over feed-forward = ffn;    even: C_b alike within a kind
//
// A norm after the sum changes the stream's size and no C. With branches of equal size this is the residual rule of u-muP (Blake et al.
// 2024): tau_b^2 = 1 / (L + b) for L layers and attention = ffn = 1; and for a scheme whose branches all have one size it is the
// 1/sqrt(2 L) of GPT-2.
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "stepzero/solve/objective.hpp"

namespace stepzero::solve {

namespace {

struct Part {
  double sum = 0;
  std::vector<std::pair<std::string, double>> each;
};

std::vector<Target> targets(const Readout& reading, const Settings& settings) {
  std::map<std::string, double> size;                  // X of every stack
  std::map<std::pair<std::string, bool>, Part> parts;  // of a stack: attention, feed-forward
  for (const Sum& sum : reading.sums()) {
    double& x = size.try_emplace(sum.stack, 1.0).first->second;
    const double added = sum.share * x;
    x += added;
    Part& part = parts[{sum.stack, sum.attention}];
    part.sum += added;
    part.each.emplace_back(sum.name, added);
  }
  std::vector<Target> out;
  int level = 0;
  for (const auto& [key, part] : parts) {
    const char* kind = key.second ? "attention" : "ffn";
    const std::string stack = key.first.empty() ? "" : key.first + " ";
    out.push_back({.what = fmt::format("{}{} branches over the embedding", stack, key.second ? "attention" : "feed-forward"),
                   .wanted = settings.at(kind),
                   .value = part.sum});
    if (settings.at("even") == 0) continue;
    for (const auto& [name, added] : part.each) {
      out.push_back({.what = fmt::format("added at {}", name),
                     .value = added,
                     .weight = 1 / std::sqrt(static_cast<double>(part.each.size())),
                     .level = level});
    }
    ++level;
  }
  return out;
}

}  // namespace

Objective depth_objective() {
  return {.name = "depth",
          .summary = "what all branches add, against the embedding",
          .formula = "X_0 = 1, C_b = tau_b^2 X_b, X_(b+1) = X_b + C_b: sum of C_b over attention = attention, over feed-forward = ffn",
          .settings = {{"attention", 1, "sum over the attention branches"},
                       {"ffn", 1, "sum over the feed-forward branches"},
                       {"even", 0, "1: and C_b alike over the layers of a kind; --by layer asks for it"}},
          .free = {"attention_out", "ffn_out"},
          .targets = targets};
}

}  // namespace stepzero::solve
