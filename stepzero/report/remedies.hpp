#pragma once
// What to do about findings: changes of the command line, each made and predicted before it is shown.
#include <functional>
#include <span>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

// Changes that may help, the likeliest first (remedy_candidates.cpp).
std::vector<Change> candidates(const Signal& signal, const Finding& finding);

// The model with a change, by theory.
struct Trials {
  // `quick`: on fewer tokens and without what makes gradients sure; enough to sort candidates out
  std::function<Expected<Signal>(const Change& change, bool quick)> predict;
  std::function<std::string(const Change& change)> command;
  bool quicker = true;  // whether `quick` is anything else
};

// Whether `finding` is gone, nothing as severe came and nothing as severe got worse.
bool removes(const Finding& finding, std::span<const Finding> before, std::span<const Finding> after);

// "--scheme deepnet: mean cosine between tokens at the end 0.999 to 0.61"
std::string effect(const Finding& finding, const Remedy& remedy);

// Fills in the remedies of all findings from `least` on, at most `most` of each, or what was tried in vain.
void find_remedies(Signal& signal, const Trials& trials, Severity least, std::size_t most = 2);

}  // namespace stepzero
