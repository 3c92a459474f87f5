#include "stepzero/report/terminal_style.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

constexpr std::array<const char*, 8> eighths = {"▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; }

std::string escape_beyond_ascii(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      out += text[i];
      continue;
    }
    std::uint32_t point = lead >= 0xF0 ? lead & 0x07U : lead >= 0xE0 ? lead & 0x0FU : lead & 0x1FU;
    while (i + 1 < text.size() && continues(text[i + 1])) point = point << 6 | (static_cast<unsigned char>(text[++i]) & 0x3FU);
    out += fmt::format("\\u{{{:X}}}", point);
  }
  return out;
}

}  // namespace

std::string Look::paint(Ink ink, std::string_view text) const {
  if (!color || text.empty()) return std::string(text);
  constexpr std::array codes = {"1", "2", "36", "32", "33", "31"};
  return fmt::format("\x1b[{}m{}\x1b[0m", codes[static_cast<std::size_t>(ink)], text);
}

std::string Look::name(std::string_view untrusted) const {
  const std::string shown = show(untrusted);
  return unicode ? shown : escape_beyond_ascii(shown);
}

std::string Look::text(std::string_view untrusted) const {
  std::string out;
  while (!untrusted.empty()) {
    const std::size_t space = std::min(untrusted.find(' '), untrusted.size());
    out += name(untrusted.substr(0, space));
    if (space < untrusted.size()) out += ' ';
    untrusted.remove_prefix(std::min(space + 1, untrusted.size()));
  }
  return out;
}

std::string Look::bar(double filled, std::size_t cells) const {
  const double share = std::isfinite(filled) ? std::clamp(filled, 0.0, 1.0) : 0;
  if (!unicode) return std::string(static_cast<std::size_t>(std::lround(share * static_cast<double>(cells))), '#');
  const auto eighth = static_cast<std::size_t>(std::lround(share * static_cast<double>(8 * cells)));
  std::string out;
  for (std::size_t i = 0; i < eighth / 8; ++i) out += eighths[7];
  if (eighth % 8 != 0) out += eighths[eighth % 8 - 1];
  return out;
}

std::string Look::mark(Severity severity) const {
  switch (severity) {
    case Severity::error:
      return paint(Ink::bad, unicode ? "✗" : "x");
    case Severity::warning:
      return paint(Ink::warn, unicode ? "▲" : "!");
    case Severity::note:
      return paint(Ink::dim, unicode ? "·" : "-");
  }
  return "";
}

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return !continues(c); }));
}

std::string left(std::string_view text, std::size_t width) {
  return std::string(text) + std::string(width - std::min(width, columns(text)), ' ');
}

std::string right(std::string_view text, std::size_t width) {
  return std::string(width - std::min(width, columns(text)), ' ') + std::string(text);
}

std::string fit(const Look& look, std::string_view text, std::size_t width) {
  const std::size_t have = columns(text);
  if (have <= width) return std::string(text);
  const std::string_view sign = look.unicode ? "…" : "~";
  std::size_t drop = have - width + 1, at = 0;
  while (drop > 0) {
    ++at;
    while (at < text.size() && continues(text[at])) ++at;
    --drop;
  }
  return std::string(sign) + std::string(text.substr(at));
}

std::string wrap(std::string_view text, std::size_t width, std::size_t indent, std::size_t hanging) {
  const std::size_t margin = indent + hanging, room = width > margin + 20 ? width - margin : 20;
  std::string out, line;
  const auto flush = [&] {
    if (!line.empty()) out += std::string(out.empty() ? indent : margin, ' ') + line + "\n";
    line.clear();
  };
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (word.empty()) continue;
    if (!line.empty() && columns(line) + 1 + columns(word) > room) flush();
    line += (line.empty() ? "" : " ") + std::string(word);
  }
  flush();
  return out;
}

std::string continued(std::string_view command, std::size_t width, std::size_t indent) {
  std::string lines = wrap(command, width > 2 ? width - 2 : width, indent, 2), out;
  lines.pop_back();
  for (const char c : lines) out += c == '\n' ? std::string(" \\\n") : std::string(1, c);
  return out + "\n";
}

std::string number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  const double size = std::abs(x);
  if (size != 0 && (size < 1e-3 || size >= 1e5)) return fmt::format("{:.2e}", x);
  return fmt::format("{:.4g}", x);
}

std::string time_left(double elapsed, double share) {
  if (!(share > 0.01) || elapsed < 1) return "";
  const double left = elapsed * (1 - share) / share;
  if (left < 1) return "";
  if (left < 100) return fmt::format(", {:.0f} s left", left);
  if (left < 6000) return fmt::format(", {:.0f} min left", left / 60);
  return fmt::format(", {:.1f} h left", left / 3600);
}

}  // namespace stepzero
