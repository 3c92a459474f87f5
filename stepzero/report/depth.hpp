#pragma once
// A signal read along the depth: what the diagnosis, the terminal and the page all ask for.
#include <limits>
#include <string>
#include <vector>

#include "stepzero/signal/signal.hpp"

namespace stepzero {

// The number to judge by: measured where there is one, else predicted; NaN where there is neither.
inline double best(const Value& v) { return v.measured.value_or(v.predicted.value_or(std::numeric_limits<double>::quiet_NaN())); }

// What enters a block, and what the block does with it. Absent parts are null; after the last block only the stream is there.
struct Layer {
  const NodeSignal* stream = nullptr;
  const NodeSignal* attention_branch = nullptr;  // as it is added: after the branch's own norm or gain
  const NodeSignal* ffn_branch = nullptr;
  const NodeSignal* query = nullptr;
  const NodeSignal* value = nullptr;
  const AttentionSignal* attention = nullptr;
};

// One residual stream: prefix "" in most models, "encoder." and "decoder." where there are two.
struct Stack {
  std::string prefix;
  std::vector<Layer> layers;

  [[nodiscard]] std::size_t depth() const { return layers.size() - 1; }
  [[nodiscard]] std::string stream(std::size_t l) const { return prefix + "stream." + std::to_string(l); }
  [[nodiscard]] std::string block(std::size_t l) const { return prefix + "blocks." + std::to_string(l); }
};

// Points into the signal. A stack has at least its first stream.
std::vector<Stack> stacks(const Signal& signal);

// Mean entropy of attention that looks at everything it may see alike.
double uniform_entropy(const Signal& signal, const Stack& stack, std::size_t layer);

// What the branches of a block add to the stream, as a share of what enters it: E[branch^2] / E[stream^2].
double added_share(const Signal& signal, const Stack& stack, std::size_t layer);

}  // namespace stepzero
