// Our tokens against those of witness_bpe.py, a plain tokenizer in Python: vocabularies of every kind, one text of many languages.
// STEPZERO_PARITY_BPE names a folder with more (./dev parity makes random texts anew).
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/io/file.hpp"
#include "stepzero/io/tokenizer.hpp"

namespace stepzero {
namespace {

namespace fs = std::filesystem;

void compare(const fs::path& path) {
  const auto root = nlohmann::json::parse(read_text(path.string(), std::uint64_t{1} << 28).value());
  const auto tokenizer = Tokenizer::parse(root["tokenizer"].dump(), path.filename().string());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message << "\n" << tokenizer.error().hint;
  const auto ours = tokenizer->encode(root["text"].get<std::string>());
  ASSERT_TRUE(ours) << path << ": " << ours.error().message;
  const auto theirs = root["ids"].get<std::vector<TokenId>>();
  const auto differs = std::ranges::mismatch(*ours, theirs).in1 - ours->begin();
  EXPECT_EQ(*ours, theirs) << path << ": the first difference is at token " << differs << " of " << theirs.size();
}

std::size_t compare_all(const fs::path& folder) {
  std::size_t cases = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    compare(entry.path());
    ++cases;
  }
  return cases;
}

TEST(Parity, bpe) {
  EXPECT_GE(compare_all(fs::path(STEPZERO_SOURCE_DIR) / "tests/parity/golden_bpe"), 19U);
  const char* const more = std::getenv("STEPZERO_PARITY_BPE");
  if (more != nullptr) EXPECT_GT(compare_all(more), 0U);
}

}  // namespace
}  // namespace stepzero
