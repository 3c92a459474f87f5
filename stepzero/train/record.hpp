#pragma once
// What is kept of a training run.
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "stepzero/core/error.hpp"
#include "stepzero/train/run.hpp"

namespace stepzero {

struct HeldOut {
  int step = 0;
  double loss = 0;
};

// The sizes over the depth after `step` updates: of the stream and its gradient, and of attention.
struct Watched {
  struct Stream {
    std::string name;
    double second_moment = 0, token_cosine = 0, gradient_norm = 0;
  };
  struct Attention {
    std::string name;
    double score_variance = 0, entropy = 0;
  };
  int step = 0;
  std::vector<Stream> streams = {};
  std::vector<Attention> attention = {};
};

// diverged: a number was not finite, or the loss stayed far above where it began. stalled: it hardly fell.
enum class Outcome : std::uint8_t { fine, diverged, stalled };
const char* to_string(Outcome outcome);

struct RunRecord {
  std::string scheme;
  std::uint64_t seed = 0;
  // steps[k].loss is that before update k + 1; one entry more than updates stands at the end
  std::vector<TrainStep> steps = {};
  std::vector<HeldOut> validation = {};
  std::vector<Watched> watched = {};
  Outcome outcome = Outcome::fine;
  std::string where = {};  // the node where a number was not finite
  double tokens_per_second = 0;

  [[nodiscard]] int updates() const { return static_cast<int>(steps.size()) - 1; }
};

// Whether the loss of the last few steps says that nothing will come of the run.
bool is_lost(const std::vector<TrainStep>& steps);
Outcome judge(const std::vector<TrainStep>& steps);
double last_loss(const std::vector<TrainStep>& steps);  // the mean of the last tenth

// As stepzero.train/1 has it, and back: a number that is not finite is null.
nlohmann::ordered_json to_json(const RunRecord& record);
Expected<RunRecord> record_from(const nlohmann::json& json, const std::string& where);

}  // namespace stepzero
