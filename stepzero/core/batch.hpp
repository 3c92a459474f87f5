#pragma once
// The tokens a pass runs on: `sequences` rows of `length` ids, one after the other; targets likewise. Of images that are classified
// as a whole, each is a sequence of one token. A model that pools its sequences has one target for each of them.
#include <cstdint>
#include <vector>

#include "stepzero/core/view.hpp"

namespace stepzero {

struct Batch {
  Index sequences = 1;
  Index length = 1;
  std::vector<std::int32_t> ids;               // inputs
  std::vector<std::int32_t> targets;           // what position t is scored against; negative: not scored
  std::uint64_t seed = 0;                      // for ops that draw (dropout)
  std::vector<std::int32_t> encoder_ids = {};  // inputs of an encoder beside the decoder that reads `ids`, as many
  std::vector<float> pixels = {};              // of vision models: [sequences][colours][height][width]
  std::vector<float> features = {};            // of speech models: [sequences][channels][frames]

  [[nodiscard]] Index tokens() const { return sequences * length; }
  // One target for each sequence, behind a pooling of its tokens.
  [[nodiscard]] bool pooled() const { return length > 1 && std::ssize(targets) == sequences; }
  [[nodiscard]] Index position(Index t) const { return t % length; }
  [[nodiscard]] const std::vector<std::int32_t>& ids_for(bool encoder) const { return encoder ? encoder_ids : ids; }
};

}  // namespace stepzero
