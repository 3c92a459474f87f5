#pragma once
// What a tokenizer does to a text before words become tokens: rewriting (normalizers), then cutting into words (pre-tokenizers).
#include <functional>
#include <string>
#include <string_view>

#include "stepzero/core/error.hpp"
#include "stepzero/io/expression.hpp"

namespace stepzero {

using Budget = Expression::Budget;
using Rewrite = std::function<Expected<std::string>(std::string_view text, Budget& budget)>;

// A piece of the text, and whether the text begins with it.
struct Piece {
  std::string_view text;
  bool first = false;
};
using Sink = std::function<Expected<void>(Piece piece)>;
using Cut = std::function<Expected<void>(Piece piece, Budget& budget, const Sink& sink)>;

// What becomes of the places where an expression matches.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Rewrite replace(Expression pattern, std::string with);
Rewrite prepend(std::string prefix);
Rewrite strip(bool left, bool right);

// inverted: what does not match is what matches.
Cut split(Expression pattern, Behavior behavior, bool inverted = false);

// Every byte as a printable character: byte-level BPE.
Cut spell_bytes();

Cut prefix_space();

// Spaces as `mark`, and one in front of `all` pieces or of the first.
enum class MarkFront { all, first, none };
Cut mark_spaces(std::string mark, MarkFront front);

}  // namespace stepzero
