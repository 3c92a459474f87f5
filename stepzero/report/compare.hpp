#pragma once
// Predicted and measured side by side, in words.
#include <string>

#include "stepzero/report/terminal_style.hpp"
#include "stepzero/signal/comparison.hpp"

namespace stepzero {

// One screen: the verdict on theory, the largest differences, how large differences are; `full` lists them all.
std::string compare_text(const Signal& joined, const Look& look, bool full);

}  // namespace stepzero
