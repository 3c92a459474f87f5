#include "stepzero/cli/predicting.hpp"

#include <mutex>

#include "stepzero/cli/job.hpp"
#include "stepzero/theory/predict_long.hpp"

namespace stepzero::cli {

Expected<Signal> predict_with_progress(const Setup& setup, const CommonFlags& flags, PredictOptions options) {
  Progress progress("predicting", flags.quiet || !speaks());
  std::mutex one;
  options.progress = [&](double share) {
    const std::lock_guard lock(one);
    progress.show(share, "");
  };
  return predict_any(setup.graph, setup.architecture, setup.batch, *setup.scheme, options);
}

}  // namespace stepzero::cli
