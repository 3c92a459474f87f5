#pragma once
// The predict walk of a command line, with its bar.
#include "stepzero/cli/command.hpp"
#include "stepzero/theory/predict.hpp"

namespace stepzero::cli {

Expected<Signal> predict_with_progress(const Setup& setup, const CommonFlags& flags, PredictOptions options = {});

}  // namespace stepzero::cli
