#pragma once
// Drawn heads: what move_heads() prepares, and what it makes of them at each step that is looked at.
#include <vector>

#include "stepzero/ops/move/chain.hpp"
#include "stepzero/ops/move/drawn.hpp"
#include "stepzero/ops/move/likeness.hpp"

namespace stepzero {

// Heads that share a key head.
struct HeadItem {
  Chain chain;
  Chain::Values before;
  std::vector<DrawnInput> in;
  Tensor<double> probe;                // a white gradient of the output
  std::vector<Tensor<double>> probed;  // what it makes of the inputs' gradients
  Chain::Parameters gradients, updates;
};

struct HeadItems {
  Attention op;
  const Batch* batch = nullptr;
  std::vector<HeadItem> items;  // none: as `alike` has it
  std::vector<double> lean;
  Square inverse;                          // of the output's kernel
  std::vector<std::vector<double>> rates;  // of the chain's parameters
  std::size_t value = 0;                   // which input the values are
  std::vector<std::size_t> side;           // of each input: 0 queries, 1 keys, 2 values
  std::vector<Index> columns;              // of each input, of one item
  std::vector<bool> shared;                // whether all heads read the same
  std::vector<int> source;                 // of each node of the chain in front of the attention: the input it comes from
  std::vector<Square> K;                   // of the inputs
  Index some = 0;                          // how many items serve steps that are not told in full
  Likeness* alike = nullptr;
};

// Attention weights of each head, (T, T): the output for values that are the identity.
std::vector<Square> weights_of(const Chain& chain, const Chain::Values& v, const Batch& batch, const Chain::Parameters& theta);

std::vector<WireChange> run_heads(const HeadItems& s, std::span<const WireChange* const> dx, const Factor& factor);

}  // namespace stepzero
