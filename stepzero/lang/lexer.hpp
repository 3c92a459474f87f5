#pragma once
// Text to tokens, with Python's rule that indentation makes blocks.
#include <cstdint>
#include <string>
#include <vector>

#include "stepzero/lang/source.hpp"

namespace stepzero::lang {

struct Token {
  enum class Kind : std::uint8_t { name, whole, real, text, format, sign, line_end, indent, dedent, end };
  Kind kind = Kind::end;
  std::string text;  // a sign or a name as written; the characters of a text
  std::int64_t whole = 0;
  double real = 0;
  Place place;

  [[nodiscard]] bool is(const char* word) const { return (kind == Kind::sign || kind == Kind::name) && text == word; }
};

// `file` is the number that places get.
Expected<std::vector<Token>> lex(const Source& source, int file);

}  // namespace stepzero::lang
