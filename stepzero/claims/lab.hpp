#pragma once
// A few ops on a bench: sources of random numbers, the ops under test, and as many draws as it takes. The passes are
// those of the models (pass/pass.hpp).
#include <functional>
#include <map>
#include <vector>

#include "stepzero/claims/claim.hpp"
#include "stepzero/core/random.hpp"
#include "stepzero/core/streaming_moments.hpp"
#include "stepzero/pass/pass.hpp"

namespace stepzero::claims {

// One draw, after its pass.
struct Shot {
  const Pass<float>& pass;
  std::map<int, Moments> gradients = {};           // of each node's output
  std::map<int, AttentionSummary> attention = {};  // of each attention

  [[nodiscard]] View<const float> output(int node) const { return pass.output(node); }
  [[nodiscard]] Moments moments(int node) const { return stepzero::moments(pass.output(node)); }
  [[nodiscard]] double square(int node) const { return moments(node).second_moment(); }
  [[nodiscard]] double gradient_square(int node) const { return gradients.at(node).second_moment(); }
};

class Lab {
 public:
  explicit Lab(Index tokens, Index sequences = 1);  // tokens of each sequence

  // (all tokens, channels) independent numbers
  int source(Index channels, const Distribution& law);
  int add(const AnyOp& op, std::vector<int> inputs, const std::vector<Distribution>& laws = {});
  // y = x W', entries of W drawn from `law`
  int linear(int x, Index out, const Distribution& law);
  // Ends the graph in sum(y o r), r drawn anew: the gradient of y is r, numbers of variance 1.
  void pull(int y);
  void same_tokens();  // all tokens are one

  // Each of the numbers that `see` takes from a draw, over all draws.
  [[nodiscard]] std::vector<Running> run(const Settings& settings, int draws,
                                         const std::function<std::vector<double>(const Shot&)>& see) const;

 private:
  Graph graph_;
  Batch batch_;
  std::vector<Distribution> laws_;
  bool up_ = false;
};

// Draws over all threads, each draw in one; added up in order.
std::vector<Running> average(int draws, const std::function<std::vector<double>(int draw)>& see);

}  // namespace stepzero::claims
