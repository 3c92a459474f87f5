// Every case of the fuzzers' corpus once more, and files of every kind against the plain readers.
#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "tests/fuzz/architecture.hpp"
#include "tests/fuzz/compare.hpp"
#include "tests/hostile/gguf_fixture.hpp"
#include "tests/hostile/safetensors_fixture.hpp"

namespace stepzero {
namespace {

namespace fs = std::filesystem;
using Target = std::string (*)(std::string_view);

void replay(const char* kind, Target target) {
  std::size_t cases = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(STEPZERO_SOURCE_DIR) / "tests/fuzz/corpus" / kind)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    EXPECT_EQ(target(bytes), "") << entry.path();
    ++cases;
  }
  EXPECT_GT(cases, 1U) << kind;
}

TEST(Corpus, safetensors) { replay("safetensors", fuzz::safetensors); }
TEST(Corpus, gguf) { replay("gguf", fuzz::gguf); }
TEST(Corpus, config) { replay("config", fuzz::config); }
TEST(Corpus, index) { replay("index", fuzz::index); }
TEST(Corpus, tokenizer) { replay("tokenizer", fuzz::tokenizer); }
TEST(Corpus, language) { replay("language", fuzz::language); }
TEST(Corpus, architecture) { replay("architecture", fuzz::architecture); }
TEST(Corpus, graph) { replay("graph", fuzz::graph); }

// Good files, then the same with a few bytes changed: most are bad then, some are good in another way.
void mutate(const std::vector<std::string>& seeds, Target target) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = seeds[random() % seeds.size()];
    const int changes = static_cast<int>(random() % 4);
    for (int i = 0; i < changes && !bytes.empty(); ++i) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes.erase(at, 1 + random() % 4);
          break;
        default:
          bytes.insert(at, 1, bytes[random() % bytes.size()]);
          break;
      }
    }
    ASSERT_EQ(target(bytes), "") << "round " << round;
  }
}

TEST(Oracle, expressions_that_are_slightly_wrong) {
  mutate({"x = [(a * 2 + 1) // 3 for a in range(4) if a != 2]\n", "def f(a, b=1):\n    return f\"{a}.{b}\" if a else [b]\ny = f(0)[0]\n",
          "for i, c in zip([1, 2], ['a', 'b']):\n    l = ['%d %s' % (i, c)]\n    l.append(lambda: l.pop())\n"},
         fuzz::language);
}

TEST(Oracle, safetensors_that_are_slightly_wrong) {
  using testing::entry;
  using testing::safetensors_bytes;
  mutate({safetensors_bytes("{" + entry("a", "F32", "2", "0,8") + "}", std::string(8, 'x')),
          safetensors_bytes("{" + entry("a", "U8", "4", "0,4") + "," + entry("b", "BF16", "1,2", "4,8") + "}", std::string(8, 'x')),
          safetensors_bytes(R"({"__metadata__":{"k":"v"},"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1],"more":[{}]}})", "x")},
         fuzz::safetensors);
}

TEST(Oracle, tokenizer_that_is_slightly_wrong) {
  std::vector<std::string> seeds;
  for (const auto& entry : fs::directory_iterator(fs::path(STEPZERO_SOURCE_DIR) / "tests/fuzz/corpus/tokenizer")) {
    std::ifstream in(entry.path(), std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  std::ranges::sort(seeds);
  mutate(seeds, fuzz::tokenizer);
}

TEST(Oracle, gguf_that_is_slightly_wrong) {
  using namespace testing;
  mutate({gguf_bytes({.keys = {key_u32("a", 1), key_value("b", 9, u32(8) + u64(1) + text("x"))},
                      .tensors = {tensor_info({})},
                      .data = std::string(32, 'x')}),
          gguf_bytes({.keys = {key_u32("general.alignment", 64)},
                      .tensors = {tensor_info({.dims = {32, 2}, .type = 8})},
                      .alignment = 64,
                      .data = std::string(68, 'x')}),
          gguf_bytes({.version = 2,
                      .tensors = {tensor_info({.dims = {}}), tensor_info({.name = "u", .dims = {4, 2}, .type = 1, .offset = 32})},
                      .data = std::string(48, 'x')})},
         fuzz::gguf);
}

}  // namespace
}  // namespace stepzero
