#pragma once
// The tokens a pass runs on: drawn (zipf, distinct, equal) or read from a file of whitespace-separated ids, one sequence a line.
#include <cstdint>
#include <string>
#include <string_view>

#include "stepzero/core/batch.hpp"
#include "stepzero/core/error.hpp"

namespace stepzero {

enum class Targets : std::uint8_t { next, same };  // position t is scored against token t + 1, or against itself

struct TokenOptions {
  std::string source = "zipf";  // zipf, distinct, equal, or a file
  Index length = 0;             // 0: the file's, or 128
  Index sequences = 0;          // 0: the file's, or 1
  Targets targets = Targets::next;
  std::uint64_t seed = 0;
  Index vocab = 0;
  Index positions = 0;
  bool alone = false;  // a file's lines are inputs, with no target behind them
  Index padding = -1;  // an id that zipf and distinct leave out: no text holds it; -1: none
};

bool is_drawn(std::string_view source);  // else it names a file

Expected<Batch> make_batch(const TokenOptions& options);

// Inputs alone, for an encoder: a file's lines then hold exactly `length` ids, in exactly `sequences` lines.
Expected<std::vector<std::int32_t>> make_inputs(const TokenOptions& options);

// One number for each sequence, below `vocab`: from a file, or drawn alike from all where there is none.
Expected<std::vector<std::int32_t>> read_labels(const TokenOptions& options);

}  // namespace stepzero
