#pragma once
#include <string>
#include <vector>

#include "stepzero/signal/comparison.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

// The contract stepzero.signal/1 (docs/json.md). Numbers survive a round trip; what is not finite becomes null.
std::string to_json(const Signal& signal);
// With a row for every number that is both predicted and measured, the worst first.
std::string to_json(const Signal& signal, const std::vector<Comparison>& rows);

}  // namespace stepzero
