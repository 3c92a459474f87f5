#pragma once
// The tables of a signal for other programs and for pasting.
#include <string>
#include <string_view>

#include "stepzero/signal/signal.hpp"

namespace stepzero {

// A row a number: table, name, quantity, predicted, spread, measured, stderr. No cell can be taken for a formula.
std::string to_csv(const Signal& signal);

// What model, the findings, a row a layer and the largest gradients: to paste into an issue.
std::string to_markdown(const Signal& signal, const std::string& command = {}, const std::string& version = {});
// Text as code, whatever it holds.
std::string markdown_code(std::string_view untrusted);

// Untrusted text as a cell of each.
std::string csv_cell(std::string_view untrusted);
std::string markdown_text(std::string_view untrusted);

}  // namespace stepzero
