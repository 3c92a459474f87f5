// tokenizer.json files that are wrong or made to harm: every one is refused with its name, the field and a hint.
#include "stepzero/io/tokenizer.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace stepzero {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string repeated(std::string_view what, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += what;
  return out;
}

// A small tokenizer whose parts can be put in place of the good ones.
struct File {
  std::string model = R"("type":"BPE")", vocab = R"("a":0,"b":1,"c":2,"ab":3,"abc":4)", merges = R"("a b","ab c")";
  std::string added = "[]", normalizer = "null", cuts = "null";

  [[nodiscard]] std::string text() const {
    return fmt::format(
        R"({{"version":"1.0","added_tokens":{},"normalizer":{},"pre_tokenizer":{},"model":{{{},"vocab":{{{}}},"merges":[{}]}}}})", added,
        normalizer, cuts, model, vocab, merges);
  }
};

std::string error_of(const std::string& text) {
  const auto read = Tokenizer::parse(text, "tokenizer.json");
  if (read) return "accepted";
  EXPECT_THAT(read.error().message, HasSubstr("tokenizer.json: "));
  EXPECT_FALSE(read.error().hint.empty()) << read.error().message;
  return read.error().message;
}

std::string error_of(const File& file) { return error_of(file.text()); }

std::vector<TokenId> ids_of(const File& file, std::string_view text) {
  const auto read = Tokenizer::parse(file.text(), "tokenizer.json");
  EXPECT_TRUE(read) << read.error().message;
  const auto ids = read->encode(text);
  EXPECT_TRUE(ids) << ids.error().message;
  return ids.value_or(std::vector<TokenId>());
}

std::string failure_of(const File& file, std::string_view text) {
  const auto read = Tokenizer::parse(file.text(), "tokenizer.json");
  EXPECT_TRUE(read) << read.error().message;
  const auto ids = read->encode(text);
  return ids ? "encoded" : ids.error().message;
}

File split_by(const std::string& regex) {
  return {.cuts = fmt::format(R"({{"type":"Split","pattern":{{"Regex":{}}},"behavior":"Isolated","invert":false}})",
                              nlohmann::json(regex).dump())};
}

TEST(Tokenizer, a_good_one) {
  EXPECT_THAT(ids_of({}, "abcab"), ElementsAre(4, 3));
  EXPECT_EQ(Tokenizer::parse(File{.vocab = R"("a":0,"b":1,"c":2,"ab":3,"abc":70)"}.text(), "")->vocab(), 71);
  EXPECT_EQ(Tokenizer::parse(File{.added = R"([{"id":9,"content":"<x>"}])"}.text(), "")->vocab(), 10);
  EXPECT_THAT(ids_of({.merges = R"(["a","b"],["ab","c"])"}, "abcab"), ElementsAre(4, 3));
  EXPECT_THAT(ids_of({.merges = R"("#version: 0.2","a b","ab c")"}, "abc"), ElementsAre(4));
  EXPECT_THAT(ids_of({.model = R"("dropout":null,"unk_token":null,"continuing_subword_prefix":"")"}, "ab"), ElementsAre(3));
}

TEST(Tokenizer, the_lowest_rank_then_the_leftmost) {
  const File file{.vocab = R"("a":0,"b":1,"ab":2,"ba":3,"aa":4)", .merges = R"("b a","a b","a a")"};
  EXPECT_THAT(ids_of(file, "aba"), ElementsAre(0, 3));
  EXPECT_THAT(ids_of(file, "aaaaa"), ElementsAre(4, 4, 0));
  const File twice{.vocab = R"("a":0,"b":1,"c":2,"ab":3,"bc":4)", .merges = R"("a b","b c","a b")"};
  EXPECT_THAT(ids_of(twice, "abc"), ElementsAre(0, 4));  // of the two the last counts
}

// Without cuts a text is one word; it is told apart where no merge can join.
TEST(Tokenizer, long_words_are_as_short_ones) {
  const std::string text = repeated("abcab", 30'000);
  const auto ids = ids_of({}, text);
  ASSERT_EQ(ids.size(), 60'000U);
  for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], i % 2 == 0 ? 4 : 3) << i;
  const File mixed{.vocab = R"("a":0,"b":1,"ab":2,"bab":3,"abab":4)", .merges = R"("a b","b ab","ab ab")"};
  EXPECT_EQ(ids_of(mixed, repeated("ab", 5000)).size(), 2500U);
}

TEST(Tokenizer, models_that_are_none) {
  EXPECT_THAT(error_of(std::string("{}")), HasSubstr("model: it is missing"));
  EXPECT_THAT(error_of(std::string("[]")), HasSubstr("model: it is missing"));
  EXPECT_THAT(error_of(std::string(R"({"model":"BPE"})")), HasSubstr("model: it is missing"));
  EXPECT_THAT(error_of(File{.model = R"("type":"Unigram")"}), HasSubstr("model.type: \"Unigram\" is not BPE"));
  EXPECT_THAT(error_of(File{.model = R"("type":3)"}), HasSubstr("model.type: 3 is not BPE"));
  EXPECT_THAT(error_of(File{.model = R"("dropout":0.1)"}), HasSubstr("model.dropout: merges left out at random"));
  EXPECT_EQ(error_of(File{.model = R"("dropout":0.0)"}), "accepted");
  EXPECT_THAT(error_of(File{.model = R"("fuse_unk":1)"}), HasSubstr("model: \"fuse_unk\" is 1"));
  EXPECT_THAT(error_of(File{.model = R"("unk_token":7)"}), HasSubstr("model: \"unk_token\" is 7, not a text"));
  EXPECT_THAT(error_of(File{.model = R"("unk_token":"<unk>")"}), HasSubstr("model.unk_token: the vocabulary has no token \"<unk>\""));
  EXPECT_THAT(error_of(std::string(R"({"model":{"type":"BPE","vocab":[],"merges":[]}})")),
              HasSubstr("model.vocab: it is missing or empty"));
  EXPECT_THAT(error_of(std::string(R"({"model":{"type":"BPE","merges":[]}})")), HasSubstr("model.vocab: it is missing or empty"));
  EXPECT_THAT(error_of(std::string(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":{}}})")), HasSubstr("model.merges: it is missing"));
}

TEST(Tokenizer, ids_that_are_none) {
  for (const std::string id : {"-1", "4194304", "18446744073709551615", "1.5", "\"1\"", "null", "[]", "true"})
    EXPECT_THAT(error_of(File{.vocab = "\"a\":" + id, .merges = ""}), HasSubstr("model.vocab: ")) << id;
  EXPECT_EQ(error_of(File{.vocab = R"("a":4194303)", .merges = ""}), "accepted");
  EXPECT_THAT(error_of(File{.vocab = R"("a":0,"b":0)", .merges = ""}),
              HasSubstr("model.vocab: the id 0 of \"b\" is that of another token too"));
  EXPECT_THAT(error_of(File{.vocab = R"("a":0,"a":1)", .merges = ""}), HasSubstr("the key \"a\" is given twice"));
}

TEST(Tokenizer, merges_that_are_none) {
  EXPECT_THAT(error_of(File{.merges = R"("a b","a x")"}), HasSubstr("model.merges[1]: the vocabulary has no token \"x\""));
  EXPECT_THAT(error_of(File{.merges = R"("b a")"}), HasSubstr("model.merges[0]: the vocabulary has no token \"ba\""));
  for (const std::string merge : {"\"ab\"", "\"a b c\"", "[\"a\"]", "[\"a\",\"b\",\"c\"]", "[\"a\",3]", "4", "null", "{}"})
    EXPECT_THAT(error_of(File{.merges = merge}), HasSubstr("model.merges[0]: ")) << merge;
  EXPECT_THAT(error_of(File{.merges = "\"ab\""}), HasSubstr("is no merge"));
  EXPECT_THAT(error_of(File{.model = R"("continuing_subword_prefix":"##")", .vocab = R"("a":0,"b":1)", .merges = R"("a b")"}),
              HasSubstr("model.merges[0]: its right side is shorter than the prefix"));
}

TEST(Tokenizer, added_tokens) {
  const File file{.added = R"([{"id":4,"content":"abc"},{"id":7,"content":"[x]"},{"id":8,"content":"[x][y]"}])"};
  EXPECT_THAT(ids_of(file, "a[x]b[x][y]a"), ElementsAre(0, 7, 1, 8, 0));
  EXPECT_THAT(failure_of(file, "[x][y"), HasSubstr("has no token for \"[\""));
  EXPECT_THAT(error_of(File{.added = "{}"}), HasSubstr("added_tokens: no list"));
  EXPECT_THAT(error_of(File{.added = R"([{"id":9}])"}), HasSubstr("added_tokens[0]: \"content\" is null"));
  EXPECT_THAT(error_of(File{.added = R"([{"content":"x"}])"}), HasSubstr("added_tokens[0]: null is no id"));
  EXPECT_THAT(error_of(File{.added = R"([{"id":2,"content":"x"}])"}), HasSubstr("the id 2 of \"x\" is that of another token too"));
  EXPECT_THAT(error_of(File{.added = R"([{"id":2,"content":"a"}])"}), HasSubstr("\"a\" has the id 2, in model.vocab 0"));
  EXPECT_THAT(error_of(File{.added = R"([{"id":9,"content":"x","lstrip":"yes"}])"}), HasSubstr("\"lstrip\" is \"yes\""));
  EXPECT_THAT(error_of(File{.added = fmt::format(R"([{{"id":9,"content":"{}"}}])", repeated("x", 1025))}),
              HasSubstr("more than 1024 bytes"));
}

TEST(Tokenizer, steps_that_are_not_known) {
  EXPECT_THAT(error_of(File{.normalizer = R"({"type":"NFKC"})"}), HasSubstr("normalizer: the normalizer \"NFKC\" is not known here"));
  EXPECT_THAT(error_of(File{.cuts = R"({"type":"UnicodeScripts"})"}), HasSubstr("pre_tokenizer: the pre-tokenizer \"UnicodeScripts\""));
  EXPECT_THAT(error_of(File{.cuts = "3"}), HasSubstr("pre_tokenizer: \"type\" is null"));
  EXPECT_THAT(error_of(File{.cuts = R"({"type":"Sequence"})"}), HasSubstr("pre_tokenizer: its list is missing"));
  EXPECT_THAT(error_of(File{.cuts = R"({"type":"Sequence","pretokenizers":[{"type":"x\u001b"}]})"}), HasSubstr("pre_tokenizer[0]: "));
  EXPECT_THAT(error_of(File{.cuts = R"({"type":"Split","pattern":{"String":"a"},"behavior":"Kept"})"}), HasSubstr("the behavior \"Kept\""));
  EXPECT_THAT(error_of(File{.cuts = R"({"type":"Split","pattern":{"String":""},"behavior":"Removed"})"}), HasSubstr("has 0 bytes"));
  EXPECT_THAT(error_of(File{.cuts = R"({"type":"CharDelimiterSplit","delimiter":""})"}), HasSubstr("has 0 bytes"));
  EXPECT_THAT(error_of(File{.cuts = R"({"type":"Metaspace","replacement":"__"})"}), HasSubstr("is not one character"));
  EXPECT_THAT(error_of(File{.cuts = R"({"type":"Metaspace","replacement":"_","prepend_scheme":"last"})"}),
              HasSubstr("\"prepend_scheme\" is \"last\""));
  EXPECT_THAT(
      error_of(File{.normalizer = R"({"type":"Sequence","normalizers":[)" + repeated(R"({"type":"NFC"},)", 100) + R"({"type":"NFC"}]})"}),
      HasSubstr("more than 100 steps"));
}

TEST(Tokenizer, expressions_that_are_not_taken) {
  const auto refused = [](const std::string& regex) { return error_of(split_by(regex)); };
  for (const std::string regex : {R"((?<=a)b)", R"((?<!a)b)",
                                  R"((a)\1)",   R"(\bword)",
                                  R"(a+?)",     R"((?>a))",
                                  R"((?x)a)",   R"(\p{Han})",
                                  R"(\p{L)",    R"([[:alpha:]])",
                                  "[]",         "[a",
                                  "(a",         "a)",
                                  "*a",         "a**",
                                  "a{3,1}",     "a{9999}",
                                  "[z-a]",      "\\",
                                  R"(\q)",      R"(\u{110000})",
                                  "(?:a|b)++",  R"(\x{D800})",
                                  "[a-\\w]"})
    EXPECT_THAT(refused(regex), AllOf(HasSubstr("pre_tokenizer: the regular expression"), HasSubstr(" at byte "))) << regex;
  EXPECT_THAT(refused("a*"), HasSubstr("can match nothing at all"));
  EXPECT_THAT(refused("(?:a*)+b"), HasSubstr("a repeated group that can be empty"));
  EXPECT_THAT(refused("(?i:ss)"), HasSubstr("a pair of letters that one character stands for"));
  EXPECT_THAT(refused(repeated("(", 51) + "a" + repeated(")", 51)), HasSubstr("too many groups"));
  EXPECT_THAT(refused(repeated("[", 51) + "a" + repeated("]", 51)), HasSubstr("too many brackets"));
  EXPECT_THAT(refused(repeated("a", 1001)), HasSubstr("more classes than are taken"));
  EXPECT_THAT(refused("(?:abc){1000}"), HasSubstr("more repeats than are taken"));
  EXPECT_THAT(refused(repeated("(?:ab){900}", 3)), HasSubstr("more parts than are taken"));
  EXPECT_THAT(refused("[" + repeated("a", 8192) + "]"), HasSubstr("8194 bytes, at most 8192"));
}

// What an expression cuts out of a text, "|" between.
std::string found_by(const std::string& regex, std::string_view text) {
  const auto compiled = Expression::compile(regex);
  if (!compiled) return compiled.error().message;
  Expression::Budget budget(text.size());
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto match = compiled->find(text, at, budget).value();
    if (!match) break;
    out += fmt::format("{}{}", out.empty() ? "" : "|", text.substr(match->begin, match->end - match->begin));
    at = match->end;
  }
  return out;
}

TEST(Tokenizer, expressions_mean_what_oniguruma_means) {
  EXPECT_EQ(found_by("a|ab", "ab"), "a");
  EXPECT_EQ(found_by("(?:a|ab)c", "abc"), "abc");
  EXPECT_EQ(found_by("a{2,3}", "aaaaa"), "aaa|aa");
  EXPECT_EQ(found_by("(?:a{2})+", "aaaaa"), "aaaa");
  EXPECT_EQ(found_by("a{2}+", "aaaaa"), "aaaa");
  EXPECT_EQ(found_by("(?:ab){2,3}", "abababab"), "ababab");
  EXPECT_EQ(found_by("(?:ab)?c", "abcc"), "abc|c");
  EXPECT_EQ(found_by("a++ab?", "aaab"), "");
  EXPECT_EQ(found_by("a+ab?", "aaab"), "aaab");
  EXPECT_EQ(found_by(R"(\s+(?!\S)|\s+)", "a   b"), "  | ");
  EXPECT_EQ(found_by("a(?=b)", "aab"), "a");
  EXPECT_EQ(found_by("^a|b$", "ab\nab"), "a|b|a|b");
  EXPECT_EQ(found_by("[a-d&&[^b]]+", "abcd"), "a|cd");
  EXPECT_EQ(found_by("[^a[bc]]", "abcd"), "d");
  EXPECT_EQ(found_by("(?i:k's)", "K'\u017f \u212a's k's"), "K'\u017f|\u212a's|k's");
  EXPECT_EQ(found_by(R"(\w+)", "x\u00b2 y\u2460"), "x\u00b2|y");  // a superscript of Latin-1, a number in a circle
  EXPECT_EQ(found_by(R"([\w]+)", "x\u00b2 y"), "x|y");
  EXPECT_EQ(found_by(R"(\p{Lu}\P{Lu}|\p{^L})", "Aa1"), "Aa|1");
  EXPECT_EQ(found_by(R"(\u4e2d|[\x{41}-\u0043])", "A\u4e2dD"), "A|\u4e2d");
}

TEST(Tokenizer, expressions_that_would_never_end) {
  EXPECT_THAT(failure_of(split_by("(?:a+)+b"), repeated("a", 40) + "c"), HasSubstr("takes too long"));
  EXPECT_THAT(failure_of(split_by("(?:ab)+c"), repeated("ab", 3000) + "c"), HasSubstr("takes too long"));
}

TEST(Tokenizer, texts_that_would_never_end) {
  const std::string replace = fmt::format(R"({{"type":"Replace","pattern":{{"String":"a"}},"content":"{}"}})", repeated("a", 1000));
  const File growing{.normalizer = R"({"type":"Sequence","normalizers":[)" + replace + "," + replace + "," + replace + "]}"};
  EXPECT_THAT(failure_of(growing, "aaaa"), HasSubstr("more than sixteen times as long"));
  std::string bytes = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  File doubling{.cuts = R"({"type":"Sequence","pretokenizers":[)" + bytes};
  for (int i = 0; i < 20; ++i) doubling.cuts += "," + bytes;
  doubling.cuts += "]}";
  EXPECT_THAT(failure_of(doubling, repeated("\u00e9", 100)), HasSubstr("more than sixteen times as long"));
}

TEST(Tokenizer, texts_that_cannot_be_spelt) {
  EXPECT_THAT(failure_of({}, "abd"), HasSubstr("the vocabulary has no token for \"d\" of the text"));
  EXPECT_THAT(failure_of({}, "ab\xff"), HasSubstr("byte 2 of the text is not UTF-8"));
  const File fused{.model = R"("unk_token":"c","fuse_unk":true)"};
  EXPECT_THAT(ids_of(fused, "xyaxy"), ElementsAre(2, 0, 2));
  EXPECT_THAT(ids_of({.model = R"("unk_token":"c")"}, "xya"), ElementsAre(2, 2, 0));
}

}  // namespace
}  // namespace stepzero
