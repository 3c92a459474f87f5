// The J rows of the hostile-input checklist that belong to the text itself, whatever it describes.
#include "stepzero/io/json.hpp"

#include <ctime>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/io/file.hpp"
#include "tests/hostile/scratch.hpp"

namespace stepzero {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& text, JsonLimits limits = {}) {
  const auto parsed = parse_json(text, "config.json", limits);
  if (parsed) return "accepted";
  EXPECT_THAT(parsed.error().message, HasSubstr("config.json: "));
  EXPECT_FALSE(parsed.error().hint.empty()) << parsed.error().message;
  for (const char c : parsed.error().message) EXPECT_TRUE(c >= ' ' && c < 0x7F) << parsed.error().message;
  return parsed.error().message;
}

TEST(Json, accepts_what_the_format_allows) {
  const auto parsed =
      parse_json(R"( {"a": [1, -2, 2.5, 1e3, true, null, "\u00e9\ud83d\ude00\n"], "b": {"c": {}}, "": []} )", "config.json");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->dump(), R"({"":[],"a":[1,-2,2.5,1000.0,true,null,"é😀\n"],"b":{"c":{}}})");
  EXPECT_EQ(parse_json("3", "")->get<int>(), 3);
  EXPECT_EQ(parse_json("18446744073709551615", "")->get<std::uint64_t>(), ~std::uint64_t{0});
}

TEST(Json, J4_numbers_that_json_does_not_have) {
  EXPECT_THAT(error_of(R"({"eps": NaN})"), HasSubstr("byte 8: NaN is not JSON"));
  EXPECT_THAT(error_of(R"({"eps": Infinity})"), HasSubstr("byte 8: Infinity is not JSON"));
  EXPECT_THAT(error_of(R"({"eps": -Infinity})"), HasSubstr("Infinity is not JSON"));
  EXPECT_THAT(error_of(R"({"eps": nan})"), HasSubstr("nan is not JSON"));
  EXPECT_THAT(error_of(R"({"eps": 1e400})"), HasSubstr("byte 8: the number 1e400 fits in no double"));
  EXPECT_THAT(error_of("[1e-400]"), HasSubstr("the number 1e-400 fits in no double"));
  EXPECT_EQ(error_of("[1e-310, 0e-400, 4.9e-324, 1.7976931348623157e308]"), "accepted");
  EXPECT_EQ(error_of(R"({"eps": "NaN"})"), "accepted");
  for (const std::string bad : {"01", "+1", ".5", "1.", "0x10", "1e", "--1", "1_000", "-", "-01", "1.e1", "1e+", "00"})
    EXPECT_NE(error_of("[" + bad + "]"), "accepted") << bad;
}

TEST(Json, J5_depth_bombs) {
  EXPECT_THAT(error_of(std::string(100'000, '[')), HasSubstr("byte 32: nested deeper than 32 levels"));
  std::string pairs;
  for (int i = 0; i < 50'000; ++i) pairs += "[{\"\":";
  EXPECT_THAT(error_of(pairs), HasSubstr("nested deeper than 32 levels"));
  const std::string deepest = std::string(32, '[') + std::string(32, ']');
  EXPECT_EQ(error_of(deepest), "accepted");
  EXPECT_THAT(error_of("[" + deepest + "]"), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of("[[[]]]", {.max_depth = 2}), HasSubstr("byte 2: nested deeper than 2 levels"));
  EXPECT_EQ(error_of("[[],[],[[]]]", {.max_depth = 3}), "accepted");
}

TEST(Json, J5_size_bombs) {
  const std::size_t most = std::size_t{16} << 20;
  EXPECT_EQ(error_of("1" + std::string(most - 1, ' ')), "accepted");
  EXPECT_THAT(error_of("1" + std::string(most, ' ')), HasSubstr("16777217 bytes of JSON, at most 16777216"));
  const testing::Scratch scratch;
  const std::string path = scratch.put("config.json", "12345");
  EXPECT_EQ(read_text(path, 5).value_or("refused"), "12345");
  ASSERT_FALSE(read_text(path, 4));
  EXPECT_THAT(read_text(path, 4).error().message, HasSubstr("config.json: 5 bytes, at most 4 are read"));
}

std::string object_of(int keys) {
  std::string text = "{";
  for (int i = 0; i < keys; ++i) text += fmt::format("\"{}\":0,", i);
  text.back() = '}';
  return text;
}

TEST(Json, J5_a_million_keys) {
  EXPECT_EQ(error_of(object_of(999'999)), "accepted");
  EXPECT_THAT(error_of(object_of(1'000'000)), HasSubstr("more than 1000000 values"));
  EXPECT_THAT(error_of("[1,2,3]", {.max_values = 3}), HasSubstr("byte 5: more than 3 values"));
  EXPECT_THAT(error_of("[[],[],[]]", {.max_values = 3}), HasSubstr("byte 7: more than 3 values"));
  EXPECT_THAT(error_of("[{},{},{}]", {.max_values = 3}), HasSubstr("byte 7: more than 3 values"));
}

TEST(Json, J6_keys_given_twice) {
  EXPECT_THAT(error_of(R"({"a": 1, "a": 1})"), HasSubstr("byte 9: the key \"a\" is given twice"));
  EXPECT_THAT(error_of(R"({"a": 1, "b": {}, "\u0061": 2})"), HasSubstr("byte 18: the key \"a\" is given twice"));
  EXPECT_THAT(error_of(R"({"x": [{"a\"b": 1, "a\u0022b": null}]})"), HasSubstr("is given twice"));
  EXPECT_THAT(error_of(R"({"\\\"": 1, "\\\"": 1})"), HasSubstr("byte 12: "));
  EXPECT_THAT(error_of(R"({"\u001b[2J": 1, "\u001b[2J": 1})"), HasSubstr("\\u{1B}[2J"));
  EXPECT_EQ(error_of(R"([{"a": 1}, {"a": {"a": 1}}])"), "accepted");
}

TEST(Json, J7_time_grows_with_the_length_alone) {
  // A hundred thousand keys in one object, looked through one by one, would be five thousand million comparisons.
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += fmt::format("\"{:0>100}\":0,", i);
  text.back() = '}';
  const std::clock_t start = std::clock();
  EXPECT_EQ(error_of(text), "accepted");
  EXPECT_LE(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 3.0);
}

TEST(Json, J8_encodings) {
  EXPECT_THAT(error_of("\xEF\xBB\xBF{}"), HasSubstr("byte 0: a byte order mark"));
  EXPECT_THAT(error_of(std::string("\xFF\xFE{\0}\0", 6)), HasSubstr("UTF-16"));
  EXPECT_THAT(error_of(std::string("\xFE\xFF\0{\0}", 6)), HasSubstr("UTF-16"));
  EXPECT_THAT(error_of(std::string("{\0}\0", 4)), HasSubstr("UTF-16"));
  EXPECT_THAT(error_of(std::string("\0{\0}", 4)), HasSubstr("UTF-16"));
  EXPECT_THAT(error_of("{\"a\": \"\xC3\"}"), HasSubstr("byte 7: not UTF-8: found \\xC3"));
  EXPECT_THAT(error_of("{\"a\": \"\xED\xA0\x80\"}"), HasSubstr("byte 7: not UTF-8"));
  EXPECT_THAT(error_of("{}" + std::string(1, '\0')), HasSubstr("byte 2: a zero byte"));
  EXPECT_THAT(error_of("{}" + std::string(1, '\0') + "{\"hidden\": 1}"), HasSubstr("byte 2: a zero byte"));
  EXPECT_THAT(error_of(R"(["\ud800"])"), HasSubstr("surrogate"));
}

TEST(Json, broken_text_is_located) {
  EXPECT_THAT(error_of(""), HasSubstr("byte 0: no JSON"));
  EXPECT_THAT(error_of("  "), HasSubstr("byte 2: a value must stand here, found the end of the text"));
  EXPECT_THAT(error_of(R"({"a": 1)"), HasSubstr("byte 7: "));
  EXPECT_THAT(error_of(R"({"a" 123})"), HasSubstr("byte 5: `:` must stand here, found `123}`"));
  EXPECT_THAT(error_of(R"({"a": 1,})"), HasSubstr("byte 8: a key in double quotes must stand here, found `}`"));
  EXPECT_THAT(error_of("{'a': 1}"), HasSubstr("byte 1: a key in double quotes must stand here, found `'a': 1}`"));
  EXPECT_THAT(error_of("{} // note"), HasSubstr("byte 3: "));
  EXPECT_THAT(error_of("{} {}"), HasSubstr("byte 3: the document is complete, found `{}`"));
  EXPECT_THAT(error_of("[\"a\x1B[2J\"]"), HasSubstr("byte 3: a control character must be written as \\u00XX, found `\\u{1B}[2J"));
}

TEST(Json, strings_are_unescaped_exactly) {
  const auto text = parse_json(R"("\"\\\/\b\f\n\r\t\u0000\u007f\u0080\u07ff\u0800\uFFFF\uD800\uDC00\udbff\udfff")", "");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->get<std::string>(), std::string("\"\\/\b\f\n\r\t\0\x7F", 10) + "\u0080\u07FF\u0800\uFFFF\U00010000\U0010FFFF");
  for (const std::string bad :
       {R"(\x)", R"(\u12)", R"(\u12G4)", R"(\u+123)", R"(\ud800x)", R"(\ud800\n)", R"(\ud800\u0041)", R"(\)", "\n", "\t"})
    EXPECT_NE(error_of("[\"" + bad + "\"]"), "accepted") << bad;
  for (const std::string cut : {R"("a)", R"("\)", R"("\u)", R"("\u00)", R"("\ud800)", R"("\ud800\u)"})
    EXPECT_NE(error_of(cut), "accepted") << cut;
}

// Texts a few slips away from JSON: what we take, nlohmann takes and understands the same; what we alone refuse is
// refused for one of the reasons this reader exists for.
TEST(Json, agrees_with_nlohmann_but_for_its_own_rules) {
  const std::vector<std::string> seeds = {R"({"a": [1, -2.5e-3, true, false, null, "x\u00e9\n"], "b": {"c": "d", "e": []}})",
                                          R"([[], {}, [{"": 0.1}], "\ud83d\ude00", -0, 1E+2])",
                                          R"({"hidden_size": 768, "eps": 1e-05, "names": ["q", "k"]})"};
  const std::string alphabet = "{}[]\",:\\ \n0123456789+-.eEtrufalsn/b\x01\x7F\xC3\xA9";
  std::mt19937 random(7);
  int taken = 0;
  for (int round = 0; round < 40'000; ++round) {
    std::string text = seeds[random() % seeds.size()];
    for (auto slips = random() % 3 + 1; slips > 0 && !text.empty(); --slips) {
      const std::size_t at = random() % text.size();
      const char letter = alphabet[random() % alphabet.size()];
      if (random() % 3 == 0)
        text.erase(at, random() % 4 + 1);
      else if (random() % 2 == 0)
        text.insert(at, 1, letter);
      else
        text[at] = letter;
    }
    const auto ours = parse_json(text, "f");
    const auto theirs = nlohmann::json::parse(text, nullptr, false);
    if (ours) {
      ++taken;
      ASSERT_FALSE(theirs.is_discarded()) << text;
      ASSERT_EQ(ours->dump(), theirs.dump()) << text;
    } else if (!theirs.is_discarded()) {
      ASSERT_THAT(ours.error().message, ::testing::AnyOf(HasSubstr("given twice"), HasSubstr("fits in no double"))) << text;
    }
  }
  EXPECT_GT(taken, 4'000);
}

}  // namespace
}  // namespace stepzero
