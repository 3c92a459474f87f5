#pragma once
// Whether what strangers describe is a graph that walks can run: Graph::add_node takes the builders at their word.
#include "stepzero/core/error.hpp"
#include "stepzero/graph/graph.hpp"

namespace stepzero {

inline constexpr Index most_size = Index{1} << 40;  // of a tensor, in numbers
inline constexpr std::size_t most_nodes = 200'000;
inline constexpr std::size_t most_params = 1'000'000;

Expected<void> add_checked(Graph& graph, Param param);
Expected<void> add_checked(Graph& graph, std::string name, AnyOp op, std::vector<int> inputs, std::vector<ParamUse> uses);

// One loss at the end, a stream, every wire used, one vocabulary.
Expected<void> check_whole(const Graph& graph);

}  // namespace stepzero
