#pragma once
// Differences of two checkpoints as they are shown: text and JSON (stepzero.diff/1).
#include <string>
#include <vector>

#include "stepzero/audit/difference.hpp"

namespace stepzero {

// The same bits, in the same type.
bool is_same(const TensorDifference& d);

// full: tensors that are the same, too.
std::string difference_text(const std::vector<TensorDifference>& list, bool full);
std::string difference_json(const std::vector<TensorDifference>& list);

}  // namespace stepzero
