#pragma once
#include <string>

#include "stepzero/signal/signal.hpp"

namespace stepzero {

// The contract stepzero.signal/1 (docs/json.md). Numbers survive a round trip; what is not finite becomes null.
std::string to_json(const Signal& signal);

}  // namespace stepzero
