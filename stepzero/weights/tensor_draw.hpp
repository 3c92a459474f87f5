#pragma once
// The numbers of one tensor, any stretch of them: bits depend on (seed, tensor name, element index, distribution) alone.
#include <cstdint>
#include <span>

#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

// All of parameter `param`, row by row.
std::vector<float> draw_tensor(const Graph& graph, const Assignment& assignment, std::size_t param, std::uint64_t seed);

// Elements [first, first + out.size()) of it. Of a structured tensor the whole is made each time.
template <class S>
void draw_elements(const Graph& graph, const Assignment& assignment, std::size_t param, std::uint64_t seed, std::uint64_t first,
                   std::span<S> out);

extern template void draw_elements(const Graph&, const Assignment&, std::size_t, std::uint64_t, std::uint64_t, std::span<float>);
extern template void draw_elements(const Graph&, const Assignment&, std::size_t, std::uint64_t, std::uint64_t, std::span<double>);

}  // namespace stepzero
