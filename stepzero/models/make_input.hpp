#pragma once
// What a model is run on: tokens, tokens for an encoder and for a decoder, or images with labels. Drawn or read from files.
#include <optional>
#include <string>

#include "stepzero/io/tokens.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

struct InputOptions {
  std::string tokens = "zipf";          // zipf, distinct, equal, or a file
  std::string encoder_tokens = {};      // likewise, of an encoder-decoder; empty: drawn as `tokens` are
  std::string pixels = {};              // a file of floats, [images][colours][height][width]; empty: drawn from N(0, 1)
  std::string labels = {};              // a file of numbers; empty: drawn
  std::string features = {};            // a file of floats, [sequences][channels][frames]; empty: drawn from N(0, 1)
  Index length = 0;                     // 0: the file's, or 128
  Index sequences = 0;                  // 0: the file's, or 1
  std::optional<Targets> targets = {};  // none: the next token, or the same one where attention is not causal
  std::uint64_t seed = 0;
};

Expected<Batch> make_input(const Architecture& a, const InputOptions& options);

}  // namespace stepzero
