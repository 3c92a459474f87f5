#include "stepzero/core/text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace stepzero {
namespace {

constexpr std::size_t kShownBytes = 256;
constexpr std::size_t kLongestGuess = 64;

struct Decoded {
  char32_t point;
  std::size_t length;  // 0: the first byte begins no code point
};

// RFC 3629: no overlong forms, no surrogates, nothing above 10FFFF.
Decoded decode(std::string_view text) {
  constexpr std::array<char32_t, 5> smallest = {0, 0, 0x80, 0x800, 0x10000};
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xF0 && lead <= 0xF4 ? 4 : (lead & 0xF0U) == 0xE0 ? 3 : (lead & 0xE0U) == 0xC0 ? 2 : 0;
  if (length == 0 || text.size() < length) return {0, 0};
  char32_t point = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return {0, 0};
    point = point << 6 | (byte(i) & 0x3FU);
  }
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  if (point < smallest[length] || surrogate || point > 0x10FFFF) return {0, 0};
  return {point, length};
}

struct Range {
  char32_t first;
  char32_t last;
};

// Code points that move the cursor, reorder the line, or take no room on it.
constexpr std::array kUnprintable = std::to_array<Range>({
    {0x0000, 0x001F},     // C0: escape sequences, new lines
    {0x007F, 0x009F},     // DEL and C1: 9B is an escape sequence in one code point
    {0x00AD, 0x00AD},     // soft hyphen
    {0x034F, 0x034F},     // grapheme joiner
    {0x061C, 0x061C},     // arabic letter mark
    {0x115F, 0x1160},     // fillers that draw nothing
    {0x17B4, 0x17B5},     // invisible vowels
    {0x180B, 0x180F},     // mongolian selectors and separator
    {0x200B, 0x200F},     // zero widths, left-to-right and right-to-left marks
    {0x2028, 0x202E},     // line and paragraph separators, bidi embeddings and overrides
    {0x2060, 0x206F},     // word joiner, invisible operators, bidi isolates
    {0x3164, 0x3164},     // filler
    {0xE000, 0xF8FF},     // private use: whatever the font says
    {0xFE00, 0xFE0F},     // variation selectors
    {0xFEFF, 0xFEFF},     // byte order mark
    {0xFFA0, 0xFFA0},     // filler
    {0xFFF0, 0xFFFB},     // unassigned, interlinear annotations
    {0xFFFE, 0xFFFF},     // not characters
    {0x1D173, 0x1D17A},   // musical controls
    {0xE0000, 0x10FFFF},  // tags, more selectors, private planes
});

bool is_printable(char32_t point) {
  if (point >= 0x20 && point < 0x7F) return true;
  const auto range = std::ranges::lower_bound(kUnprintable, point, {}, &Range::last);
  return range == kUnprintable.end() || point < range->first;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Edit distance with swaps of neighbours (optimal string alignment), three rows at a time.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const char p = lower(a[i - 1]), q = lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (p == q ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && p == lower(b[j - 2]) && q == lower(a[i - 2]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string show(std::string_view untrusted) {
  std::string shown;
  for (std::size_t at = 0; at < untrusted.size();) {
    const auto [point, length] = decode(untrusted.substr(at));
    std::string piece;
    if (length == 0) {
      piece = fmt::format("\\x{:02X}", static_cast<unsigned char>(untrusted[at]));
    } else if (is_printable(point)) {
      piece = untrusted.substr(at, length);
    } else {
      piece = fmt::format("\\u{{{:X}}}", static_cast<std::uint32_t>(point));
    }
    if (shown.size() + piece.size() > kShownBytes) return shown + fmt::format("...({} bytes)", untrusted.size());
    shown += piece;
    at += std::max<std::size_t>(length, 1);
  }
  return shown;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

bool printable(std::string_view untrusted) {
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7F; };
  if (std::ranges::all_of(untrusted, plain)) return true;
  for (std::size_t at = 0; at < untrusted.size();) {
    const auto [point, length] = decode(untrusted.substr(at));
    if (length == 0 || !is_printable(point)) return false;
    at += length;
  }
  return true;
}

std::size_t find_invalid_utf8(std::string_view text) {
  constexpr std::uint64_t high_bits = 0x8080808080808080U;
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t eight = high_bits;
    if (text.size() - at >= sizeof eight) std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & high_bits) == 0) {  // eight ASCII bytes at a stride: headers run to 100 MB
      at += sizeof eight;
      continue;
    }
    const std::size_t length = decode(text.substr(at)).length;
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

bool valid_utf8(std::string_view text) { return find_invalid_utf8(text) == std::string_view::npos; }

std::string closest(std::string_view wrong, std::span<const std::string> known) {
  if (wrong.empty() || wrong.size() > kLongestGuess) return {};
  const std::string* best = nullptr;
  std::size_t nearest = std::max<std::size_t>(1, wrong.size() / 3) + 1;
  for (const std::string& word : known) {
    const std::size_t gap = word.size() > wrong.size() ? word.size() - wrong.size() : wrong.size() - word.size();
    if (gap >= nearest) continue;
    const std::size_t steps = distance(wrong, word);
    if (steps >= nearest || steps >= std::max(wrong.size(), word.size())) continue;
    nearest = steps;
    best = &word;
  }
  return best == nullptr ? std::string() : *best;
}

}  // namespace stepzero
