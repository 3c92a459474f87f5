#pragma once
// What a pass keeps and what it makes again, and the memory that takes: all known before anything is allocated.
#include <functional>
#include <vector>

#include "stepzero/pass/pass.hpp"

namespace stepzero {

// Numbers a token that a node keeps for its own way up.
Index kept_by(const AnyOp& op);

// The head: the last matrix and what follows it, all row by row. The shape alone says where it is cut; one piece means no cut.
HeadPlan plan_head(const Graph& graph, const Batch& batch, const PassOptions& options);
std::vector<Index> rows_held(const Graph& graph, const Batch& batch, const HeadPlan& head);

// Cuts worth keeping: nodes whose wire is the only one that crosses to what follows, and that let go of at least eight
// times as much as they hold.
std::vector<bool> find_cuts(const Graph& graph, std::size_t end);  // before node `end`

// Cuts before which everything is made again: all but the last ones, whose segments together stay within `numbers`. `rows` are
// those of every wire.
std::vector<bool> find_repeats(const Graph& graph, const std::vector<bool>& cuts, const std::vector<Index>& rows, double numbers);

// Places of the weights that a node uses, one behind the other; returns the end of the last.
Index place_weights(const Graph& graph, const Node& node, const std::function<void(int param, Index at)>& place);

// Numbers that a streamed pass holds of the weights: those of one node.
Index largest_weights(const Graph& graph);

std::vector<GradientPlan> plan_gradients(const Graph& graph, const Batch& batch, const PassOptions& options, const HeadPlan& head);

bool is_made(const PassOptions& options, std::size_t param);
Index rows_made(const PassOptions& options, const Graph& graph, std::size_t param);
bool is_stand_in(const PassOptions& options, std::size_t node);

}  // namespace stepzero
