#pragma once
// A line to standard error. Where nobody reads it any more, what was found still decides how the program ends: fmt::print would throw.
#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace stepzero::cli {

template <class... T>
void say(fmt::format_string<T...> text, T&&... values) {
  const std::string line = fmt::format(text, std::forward<T>(values)...);
  (void)std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace stepzero::cli
