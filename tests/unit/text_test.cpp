#include "stepzero/core/text.hpp"

#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace stepzero {
namespace {

std::string encoded(char32_t point) {
  const auto byte = [](char32_t bits) { return static_cast<char>(static_cast<unsigned char>(bits)); };
  if (point < 0x80) return {byte(point)};
  if (point < 0x800) return {byte(0xC0 | point >> 6), byte(0x80 | (point & 63))};
  if (point < 0x10000) return {byte(0xE0 | point >> 12), byte(0x80 | (point >> 6 & 63)), byte(0x80 | (point & 63))};
  return {byte(0xF0 | point >> 18), byte(0x80 | (point >> 12 & 63)), byte(0x80 | (point >> 6 & 63)), byte(0x80 | (point & 63))};
}

// What a terminal may be given, stated once more and in another way than in the code under test.
bool harmless(const std::string& text) {
  if (!valid_utf8(text)) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7F) return false;
    if (byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0) return false;  // C1
  }
  for (const char32_t bad : {0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x202A, 0x202B, 0x202C, 0x202D,  0x202E,  0x2060, 0x2066,
                             0x2067, 0x2068, 0x2069, 0x2028, 0x2029, 0xFEFF, 0xAD,   0x61C,  0xE0001, 0xE0041, 0xE007F})
    if (text.find(encoded(bad)) != text.npos) return false;
  return true;
}

TEST(Show, keeps_what_can_be_printed) {
  for (const std::string text : {"", "h.0.attn.c_attn.weight", "été", "層.0", "😀", "a\\b \"c\""}) {
    EXPECT_EQ(show(text), text);
    EXPECT_TRUE(printable(text));
  }
}

TEST(Show, escapes_what_cannot) {
  EXPECT_EQ(show("\x1B[2J"), "\\u{1B}[2J");
  EXPECT_EQ(show("a\nb\tc"), "a\\u{A}b\\u{9}c");
  EXPECT_EQ(show(std::string("\0", 1)), "\\u{0}");
  EXPECT_EQ(show("\x7F"), "\\u{7F}");
  EXPECT_EQ(show(encoded(0x9B)), "\\u{9B}");
  EXPECT_EQ(show("\x9B"), "\\x9B");
  EXPECT_EQ(show(encoded(0x202E) + "x" + encoded(0x2066)), "\\u{202E}x\\u{2066}");
  EXPECT_EQ(show(encoded(0xE0041)), "\\u{E0041}");
  EXPECT_EQ(show("\x1B]52;c;aGk=\x07"), "\\u{1B}]52;c;aGk=\\u{7}");
  EXPECT_EQ(show("\xC3(\xE2\x82"), "\\xC3(\\xE2\\x82");
  EXPECT_FALSE(printable("\x1B"));
  EXPECT_FALSE(printable("\xFF"));
}

TEST(Show, every_code_point_comes_out_harmless) {
  for (char32_t point = 0; point <= 0x10FFFF; ++point) {
    if (point >= 0xD800 && point <= 0xDFFF) continue;
    const std::string text = encoded(point), shown = show(text);
    const std::string escaped = fmt::format("\\u{{{:X}}}", static_cast<std::uint32_t>(point));
    ASSERT_TRUE(harmless(shown)) << escaped;
    ASSERT_TRUE(shown == text || shown == escaped) << escaped;
    ASSERT_EQ(shown == text, printable(text)) << escaped;
    ASSERT_TRUE(harmless(text) || shown == escaped) << escaped;
  }
}

TEST(Show, any_bytes_come_out_harmless) {
  std::mt19937 random(1);
  for (int round = 0; round < 10'000; ++round) {
    std::string text(random() % 64, '\0');
    for (char& c : text) c = static_cast<char>(static_cast<unsigned char>(random() & (round % 2 == 0 ? 0xFFU : 0x9FU)));
    const std::string shown = show(text);
    ASSERT_TRUE(harmless(shown)) << shown;
    if (shown.size() <= 256) {
      ASSERT_EQ(show(shown), shown);
    }
  }
}

TEST(Show, cuts_what_is_long) {
  EXPECT_EQ(show(std::string(256, 'a')), std::string(256, 'a'));
  EXPECT_EQ(show(std::string(257, 'a')), std::string(256, 'a') + "...(257 bytes)");
  EXPECT_EQ(show(std::string(1'000'000, '\n')).size(),
            255 + std::string("...(1000000 bytes)").size());  // 51 times \u{A}
  std::string wide;
  for (int i = 0; i < 100; ++i) wide += "層";
  EXPECT_TRUE(valid_utf8(show(wide)));
  EXPECT_TRUE(show(wide).ends_with("層...(300 bytes)"));
}

TEST(Utf8, as_the_standard_says) {
  for (char32_t point = 0; point <= 0x10FFFF; ++point)
    ASSERT_EQ(valid_utf8(encoded(point)), point < 0xD800 || point > 0xDFFF) << static_cast<std::uint32_t>(point);
  for (const char* bad :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2 ", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xE2\x82", "\xE2\x82 ",
        "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF8\x88\x80\x80\x80", "\xFE", "\xFF"}) {
    EXPECT_FALSE(valid_utf8(bad));
    // Wherever it stands among bytes that are read eight at a time.
    for (std::size_t at = 0; at < 20; ++at) EXPECT_EQ(find_invalid_utf8(std::string(at, 'a') + bad + std::string(20, 'b')), at);
  }
  EXPECT_TRUE(valid_utf8(""));
  // What stands behind the end of the view does not complete it.
  EXPECT_FALSE(valid_utf8(std::string_view("層").substr(0, 2)));
  EXPECT_FALSE(valid_utf8(std::string_view("é").substr(0, 1)));
}

TEST(Closest, finds_what_was_meant) {
  const std::vector<std::string> known = {"gpt2", "llama-3-8b", "mistral-7b", "bert-base", "hidden_size", "t5"};
  EXPECT_EQ(closest("gpt-2", known), "gpt2");
  EXPECT_EQ(closest("GPT2", known), "gpt2");
  EXPECT_EQ(closest("gtp2", known), "gpt2");
  EXPECT_EQ(closest("lama-3-8b", known), "llama-3-8b");
  EXPECT_EQ(closest("hiden_szie", known), "hidden_size");
  EXPECT_EQ(closest("bert-base", known), "bert-base");
  EXPECT_EQ(closest("t4", known), "t5");
}

TEST(Closest, is_silent_when_nothing_is_near) {
  const std::vector<std::string> known = {"gpt2", "a"};
  EXPECT_EQ(closest("transformer", known), "");
  EXPECT_EQ(closest("", known), "");
  EXPECT_EQ(closest("b", known), "");
  EXPECT_EQ(closest("gxyz", known), "");
  EXPECT_EQ(closest(std::string(1'000'000, 'a'), known), "");
  EXPECT_EQ(closest("gpt2", {}), "");
  const std::vector<std::string> endless = {std::string(100'000, 'a')};  // the work is the product of the lengths
  EXPECT_EQ(closest(std::string(100'001, 'a'), endless), "");
}

}  // namespace
}  // namespace stepzero
