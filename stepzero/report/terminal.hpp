#pragma once
#include <string>

#include "stepzero/report/signal.hpp"

namespace stepzero {

// One screen: what model, a row a layer, the totals. `full` adds every node and parameter.
std::string to_text(const Signal& signal, bool full);

// 124439808 -> "124,439,808"
std::string with_commas(Index n);

}  // namespace stepzero
