#pragma once
// The text of an architecture file, and messages that show the line they speak of.
#include <string>
#include <string_view>

#include "stepzero/core/error.hpp"

namespace stepzero::lang {

// A character of a file; lines and columns count from 1.
struct Place {
  int file = 0;  // of those an evaluator was given
  int line = 0;
  int column = 0;
};

struct Source {
  std::string name;
  std::string text;
};

// "model.py:3:9: no name "widht"", then the line with a caret below the column.
Error error_at(const Source& source, Place place, const std::string& message, std::string hint = {});

}  // namespace stepzero::lang
