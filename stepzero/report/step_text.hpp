#pragma once
// What a step of the optimizer did, for a terminal: of the last step measured, with the search over the rate where there is one.
#include <string>

#include "stepzero/report/terminal_style.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

std::string steps_text(const Signal& signal, const Look& look, bool full);

}  // namespace stepzero
