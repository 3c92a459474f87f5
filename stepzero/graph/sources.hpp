#pragma once
// Which wires have additive ancestors in common. The theory takes the two factors of a product, and the queries, keys and values of an
// attention, for uncorrelated; that holds where each is made by fresh matrices of its own. A sum may have wires that share sources, as
// long as both hold them linearly: theory/coherence.hpp.
#include <span>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/core/law.hpp"
#include "stepzero/graph/graph.hpp"

namespace stepzero {

// What a node's output holds of its wire k: the wire times a number, or times a number of each token's own (a norm); or neither.
struct PassesOn {
  bool linear = false;
  bool by_token = false;
  bool learned = false;  // the number is a parameter
  double times = 1;
};
PassesOn passes_on(const Node& node, std::size_t k, std::span<const Law> theta = {});

// What a wire is a sum of, where it is one of maps: outputs of attentions, each times a number. Empty: it is not.
struct Map {
  int attention = 0;  // its node
  double times = 1;
  int scalar = -1;  // a learned number that it is multiplied with, as a parameter; -1: none
};
using Maps = std::vector<Map>;

// Of every node. `theta`: the laws of the parameters of every node, or nothing.
std::vector<Maps> find_maps(const Graph& graph, std::span<const std::vector<Law>> theta = {});

// Whether both are maps over the values of one wire, by different attentions (differential attention): what they share has a rule.
bool over_same_values(const Graph& graph, const Maps& a, const Maps& b);

// Whether any sum has such maps.
bool shares_values(const Graph& graph);

// A source is what a table or a matrix makes; other ops pass the sources of their wires on, sums and products join them. Whether there
// are sums whose wires share one; an error names the node where no rule covers what is shared, the two wires, and the source.
Expected<bool> check_sources(const Graph& graph);

}  // namespace stepzero
