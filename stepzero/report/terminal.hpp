#pragma once
#include <span>
#include <string>
#include <vector>

#include "stepzero/report/terminal_style.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

// One screen: what model, the verdict and the findings, a row a layer with bars, the totals. `full` explains the notes and
// adds every layer, node and parameter.
std::string to_text(const Signal& signal, const Look& look, bool full);

// Its parts, for other views.
std::string header_text(const Signal& signal, const Look& look);
std::string adapters_text(const Signal& signal);  // how much of a model trains
std::string findings_text(std::span<const Finding> findings, const Look& look, bool full);

// 124439808 -> "124,439,808"
std::string with_commas(Index n);

// Which of `n` rows to show in `rows` lines: all, or evenly chosen with the first and the last.
std::vector<std::size_t> choose_rows(std::size_t n, std::size_t rows);

}  // namespace stepzero
