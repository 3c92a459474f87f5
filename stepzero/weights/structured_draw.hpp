#pragma once
// Blocks of tensors whose numbers are not independent: made whole, from (seed, tensor name or layer, distribution) alone.
#include <cstdint>
#include <vector>

#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

// The block's numbers, row by row as stored.
std::vector<float> make_structured(const Param& p, const Assignment::Block& block, const Assignment::Heads& heads, std::uint64_t seed);

// How long that takes, in bytes that are drawn and written meanwhile. Of a pair that is decomposed together the first half pays.
double structured_work(const Assignment::Block& block, const Assignment::Heads& heads);

}  // namespace stepzero
