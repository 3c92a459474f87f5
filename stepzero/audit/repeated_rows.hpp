#pragma once
// Rows and columns that are all zero or equal another: suspects by their keys, then looked at. Internal to the census.
#include <cstdint>
#include <vector>

#include "stepzero/audit/census.hpp"

namespace stepzero {

// `keys`: equal rows have equal keys.
Expected<Lines> find_rows(const CheckpointFiles& files, const CheckpointTensor& tensor, const std::vector<std::uint64_t>& keys, Index cols);

// `z` of every column: equal columns have equal z, a column of zeros has 0.
Expected<Lines> find_columns(const CheckpointFiles& files, const CheckpointTensor& tensor, const std::vector<float>& z, Index rows);

}  // namespace stepzero
