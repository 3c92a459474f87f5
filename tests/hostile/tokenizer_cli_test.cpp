// train with a tokenizer.json: what it is told, what is saved, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/hostile/program.hpp"

namespace stepzero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

const char* const small =
    R"({"added_tokens":[{"id":6,"content":"<x>"}],"model":{"vocab":{"a":0,"b":1," ":2,"ab":3,"abab":4},"merges":["a b","ab ab"]}})";

Result train(const Scratch& scratch, const Words& more) {
  Words words = {"train",   "gpt2",      "--set", "layers=1", "--set", "width=16", "--set",
                 "heads=2", "--seq-len", "4",     "--batch",  "2",     "--steps",  "2"};
  words.insert(words.end(), more.begin(), more.end());
  return run(words, scratch);
}

TEST(TokenizerCli, A_text_is_trained_on_as_its_tokens) {
  Scratch scratch;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abab a b<x>";
  const std::string file = scratch.put("text.txt", text), tokenizer = scratch.put("tokenizer.json", small);
  const Result r = train(scratch, {"--text", file, "--level", "bpe:" + tokenizer, "--save", scratch.path("run"), "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  const auto document = nlohmann::json::parse(r.out, nullptr, false);
  EXPECT_EQ(document["model"]["vocab"], 7);
  EXPECT_THAT(document["data"].dump(), AllOf(HasSubstr("BPE of tokenizer.json, 7 tokens"), HasSubstr("600")));
  EXPECT_EQ(scratch.get("run/tokenizer.json"), small);
}

TEST(TokenizerCli, What_is_wrong_is_said) {
  Scratch scratch;
  const std::string file = scratch.put("text.txt", "abc abc abc abc abc abc abc"), tokenizer = scratch.put("tokenizer.json", small);
  const auto refused = [&](const std::string& level) {
    const Result r = train(scratch, {"--text", file, "--level", level});
    EXPECT_EQ(r.code, 2) << level;
    return r.err;
  };
  EXPECT_THAT(refused("bpe:" + scratch.path("none.json")), HasSubstr("none.json"));
  for (const char* level : {"bpe", "bpe:"}) EXPECT_THAT(refused(level), HasSubstr("byte, char, or bpe:tokenizer.json"));
  EXPECT_THAT(refused("bpe:" + tokenizer), AllOf(HasSubstr("tokenizer.json: "), HasSubstr("no token for \"c\"")));
  EXPECT_THAT(refused("bpe:" + scratch.put("bad.json", "{}")), HasSubstr("bad.json: model: it is missing"));
}

}  // namespace
}  // namespace stepzero::testing
