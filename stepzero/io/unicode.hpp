#pragma once
// What Unicode says of characters: their categories, normal forms and small letters. Text is UTF-8 that was checked before.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stepzero {

inline constexpr char32_t last_code_point = 0x10FFFF;

struct CodePoint {
  char32_t value = 0;
  std::size_t length = 0;  // in bytes
};

// The one that begins at text[at].
inline CodePoint decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[at + k]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t point = first & (0xFFU >> (length + 1));
  for (std::size_t k = 1; k < length; ++k) point = (point << 6) | (byte(k) & 0x3FU);
  return {point, length};
}

void append_utf8(std::string& out, char32_t point);

class CodePointSet {
 public:
  CodePointSet() = default;
  CodePointSet(char32_t first, char32_t last) { add(first, last); }
  // General categories by one letter or two: "L", "Lu".
  static std::optional<CodePointSet> category(std::string_view name);
  static CodePointSet white_space();  // \s
  static CodePointSet word();         // \w: letters, marks, digits, connectors

  void add(char32_t first, char32_t last);
  void add(const CodePointSet& other);
  void invert();
  void intersect(CodePointSet other);

  [[nodiscard]] bool contains(char32_t point) const {
    if (point < 128) return ascii_[point / 64] >> (point % 64) & 1U;
    return beyond_ascii(point);
  }

 private:
  void settle();
  [[nodiscard]] bool beyond_ascii(char32_t point) const;

  std::vector<std::pair<char32_t, char32_t>> ranges_;  // first and last, in order, apart
  std::array<std::uint64_t, 2> ascii_ = {0, 0};
};

enum class NormalForm { composed, decomposed };  // NFC, NFD

std::string normalized(std::string_view text, NormalForm form);

// Character by character, whatever stands beside it.
std::string lower_case(std::string_view text);

namespace unicode_data {  // how to read them: unicode_data.py
extern const std::string_view categories, decompositions, classes, lower;
}

}  // namespace stepzero
