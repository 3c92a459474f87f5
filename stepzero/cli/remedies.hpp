#pragma once
// Remedies of a command line: each is the same command with a change, predicted before it is shown.
#include "stepzero/cli/command.hpp"
#include "stepzero/report/remedies.hpp"
#include "stepzero/theory/predict.hpp"

namespace stepzero::cli {

// A word as a shell would take it.
std::string shell_word(const std::string& word);

// The command as it was given, but for the change and for where its result goes.
std::string command_with(const CLI::App& verb, const CommonFlags& flags, const Change& change);

// Fills in what to do about warnings and errors, and about notes where asked.
void add_remedies(Signal& signal, const CommonFlags& flags, bool notes, const PredictOptions& options = {});

}  // namespace stepzero::cli
