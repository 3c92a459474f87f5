#pragma once
// One axis of a map: what is changed, and the values that it takes.
//
//     layers=2..64:x12         12 geometric steps from 2 to 64 (whole numbers where the field wants them)
//     embedding_scale=0.1..10:9    9 equal steps
//     activation=relu,gelu,silu    a list
//     std.ffn_out=0.1..10:x64  a factor on the std of a role; roles that move together: std.value+attention_out
//     tokens=16,32,64          of a sequence
//     scheme=hf,deepnet        how weights are drawn
//     rate=1e-4..1e-1:x16      of the runs of --train
#include <string>
#include <vector>

#include "stepzero/core/error.hpp"

namespace stepzero::solve {

struct Axis {
  enum class Kind : std::uint8_t { field, factor, tokens, scheme, rate };
  std::string key;
  Kind kind = Kind::field;
  std::vector<std::string> values = {};
  std::vector<double> numbers = {};  // empty: the values are words
  bool geometric = false;
};

Expected<Axis> parse_axis(const std::string& text);

}  // namespace stepzero::solve
