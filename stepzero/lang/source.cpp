#include "stepzero/lang/source.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"

namespace stepzero::lang {

namespace {

std::string_view line_of(std::string_view text, int line) {
  for (int i = 1; i < line; ++i) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find('\n'));
}

}  // namespace

Error error_at(const Source& source, Place place, const std::string& message, std::string hint) {
  if (place.line < 1 || source.text.empty()) return {fmt::format("{}: {}", show(source.name), message), std::move(hint)};
  constexpr std::size_t most = 120;  // of a long line what stands around the column
  std::string_view line = line_of(source.text, place.line);
  auto column = std::min(static_cast<std::size_t>(std::max(place.column, 1)) - 1, line.size());
  if (column > most / 2) {
    line.remove_prefix(column - most / 2);
    column = most / 2;
  }
  line = line.substr(0, most);
  const std::string number = fmt::format("{}", place.line);
  const std::string before = show(line.substr(0, column));  // what cannot be printed takes more room
  return {
      fmt::format("{}:{}:{}: {}\n  {} | {}{}\n  {} | {}^", show(source.name), place.line, place.column, message, number, before,
                  column < line.size() ? show(line.substr(column)) : "", std::string(number.size(), ' '), std::string(before.size(), ' ')),
      std::move(hint)};
}

}  // namespace stepzero::lang
