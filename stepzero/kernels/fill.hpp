#pragma once
// The numbers of a tensor: those of a distribution, from a stream. Any slice, in any order, by any number of threads: the same bits.
#include <cstdint>
#include <span>

#include "stepzero/core/random.hpp"

namespace stepzero {

// Elements [first, first + out.size()) of the tensor. The doubles are the floats, widened.
void fill(const Distribution& distribution, const Stream& stream, std::uint64_t first, std::span<float> out);
void fill(const Distribution& distribution, const Stream& stream, std::uint64_t first, std::span<double> out);

}  // namespace stepzero
