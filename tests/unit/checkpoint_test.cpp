// The bytes of a checkpoint are a function of the command's words that matter: not of threads, SIMD, makers or accidents.
#include "stepzero/weights/checkpoint.hpp"

#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <nlohmann/json.hpp>

#include "stepzero/audit/difference.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/io/checkpoint_files.hpp"
#include "stepzero/io/output.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/weights/tensor_draw.hpp"
#include "tests/hostile/program.hpp"

namespace stepzero {
namespace {

using ::testing::HasSubstr;
using testing::Program;
using testing::Scratch;

struct Model {
  Architecture a;
  Graph graph;
  Assignment assignment;
};

Model small(const std::string& scheme = "hf") {
  Model m;
  m.a = *load_model("gpt2");
  for (const char* s : {"layers=2", "width=96", "heads=4", "vocab=997", "positions=64"}) EXPECT_TRUE(set_field(m.a, s).has_value());
  EXPECT_TRUE(resolve(m.a).has_value());
  const Scheme* found = *find_scheme(scheme);
  EXPECT_TRUE(adapt(m.a, *found).has_value());
  m.graph = build_graph(m.a);
  m.assignment = Assignment(m.graph, m.a, *found);
  return m;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Name -> bytes of every file of a folder.
std::map<std::string, std::string> folder(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) files[entry.path().filename().string()] = bytes_of(entry.path());
  return files;
}

std::string write(const Model& m, CheckpointOptions options) {
  const auto done = write_checkpoint(m.graph, m.assignment, options);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  return bytes_of(options.path);
}

TEST(Checkpoint, HoldsWhatTheSchemeDraws) {
  const Scratch scratch;
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    const Model m = small("deepnet");  // the value third of a fused tensor has a law of its own
    const std::string path = scratch.path("model.safetensors");
    write(m, {.path = path, .dtype = dtype, .seed = 11, .replace = true, .metadata = {{"format", "pt"}}});
    const auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ(file->metadata().at("format"), "pt");
    ASSERT_EQ(file->tensors().size(), m.graph.params.size());
    const auto same = difference(*CheckpointFiles::open(path), Drawn{m.graph, m.assignment, 11});
    ASSERT_TRUE(same.has_value());
    for (const TensorDifference& d : *same) EXPECT_EQ(d.kind, TensorDifference::Kind::same_bits) << d.name;
    const auto other = difference(*CheckpointFiles::open(path), Drawn{m.graph, m.assignment, 12});
    ASSERT_TRUE(other.has_value());
    for (const TensorDifference& d : *other) {
      const bool constant = d.name.ends_with("bias") || d.name.find("ln_") != std::string::npos;
      EXPECT_EQ(d.kind, constant ? TensorDifference::Kind::same_bits : TensorDifference::Kind::same_law) << d.name << " z " << d.z;
    }
  }
}

TEST(Checkpoint, SameBytesForAnyNumberOfThreads) {
  const Scratch scratch;
  const Model m = small();
  std::string want;
  for (const int threads : {1, 2, 3}) {
    set_threads(threads);
    const std::string got = write(m, {.path = scratch.path("model.safetensors"), .dtype = DType::BF16, .seed = 5, .replace = true});
    if (want.empty()) want = got;
    EXPECT_TRUE(got == want) << threads;
  }
  set_threads(0);
}

TEST(Checkpoint, SameBytesOnEverySimdLevel) {
  const Scratch scratch;
  for (const char* scheme : {"hf", "xavier-uniform", "bert"}) {
    const Model m = small(scheme);
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      std::string want;
      for (const std::int64_t level : hwy::SupportedAndGeneratedTargets()) {
        hwy::SetSupportedTargetsForTest(level);
        hwy::GetChosenTarget().Update(hwy::SupportedTargets());
        const std::string got = write(m, {.path = scratch.path("model.safetensors"), .dtype = dtype, .seed = 5, .replace = true});
        if (want.empty()) want = got;
        EXPECT_TRUE(got == want) << scheme << " " << hwy::TargetName(level);
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// In any order, one at a time or all in one.
TEST(Checkpoint, AnyNumberOfMakersMakeTheSameFolder) {
  const Scratch scratch;
  const Model m = small();
  CheckpointOptions options{.seed = 3, .max_shard_bytes = 100'000, .metadata = {{"format", "pt"}}, .config = "{}\n"};
  options.path = scratch.path("one");
  ASSERT_TRUE(write_checkpoint(m.graph, m.assignment, options).has_value());
  options.path = scratch.path("three");
  options.makers = 3;
  for (const int maker : {3, 1, 2}) {
    options.maker = maker;
    const auto done = write_checkpoint(m.graph, m.assignment, options);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(done->shards_missing == 0, maker == 2);
    EXPECT_EQ(std::filesystem::exists(scratch.path("three/model.safetensors.index.json")), maker == 2);
  }
  const auto one = folder(scratch.path("one"));
  EXPECT_GT(one.size(), 6U);
  EXPECT_TRUE(one == folder(scratch.path("three")));
  const auto index = nlohmann::json::parse(one.at("model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"].size(), m.graph.params.size());
  EXPECT_EQ(index["metadata"]["total_size"], 4 * m.graph.parameter_count());
  const auto files = CheckpointFiles::open(scratch.path("three"));
  ASSERT_TRUE(files.has_value()) << files.error().message;
  EXPECT_EQ(files->tensors().size(), m.graph.params.size());
}

TEST(Checkpoint, WholeShardsAreKeptAndForeignOnesRefused) {
  const Scratch scratch;
  const Model m = small();
  CheckpointOptions options{.path = scratch.path("dir"), .seed = 3, .max_shard_bytes = 100'000, .config = "{}\n"};
  ASSERT_TRUE(write_checkpoint(m.graph, m.assignment, options).has_value());
  const auto want = folder(options.path);
  const std::string shard = scratch.path(fmt::format("dir/model-00002-of-{:05}.safetensors", want.size() - 2));
  ASSERT_TRUE(std::filesystem::remove(shard)) << shard;
  const auto again = write_checkpoint(m.graph, m.assignment, options);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  for (const CheckpointFile& f : again->files) EXPECT_EQ(f.kept, f.path != shard) << f.path;
  EXPECT_TRUE(folder(options.path) == want);
  options.metadata["stepzero.seed"] = "4";  // another checkpoint, so another index
  const auto other = write_checkpoint(m.graph, m.assignment, options);
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message, HasSubstr("another checkpoint"));
  options.replace = true;
  EXPECT_TRUE(write_checkpoint(m.graph, m.assignment, options).has_value());
}

TEST(Checkpoint, NumbersThatDoNotFitAreAnError) {
  const Scratch scratch;
  Model m = small();
  m.a.init_std = 1e5;
  m.assignment = Assignment(m.graph, m.a, **find_scheme("hf"));
  CheckpointOptions options{.path = scratch.path("model.safetensors"), .dtype = DType::F16};
  const auto done = write_checkpoint(m.graph, m.assignment, options);
  ASSERT_FALSE(done.has_value());
  EXPECT_THAT(done.error().message, HasSubstr("too large for F16"));
  EXPECT_EQ(scratch.files(), 0U);
}

// ---- the program, killed

const std::vector<std::string> kMedium = {"init",    "gpt2",  "--set",      "layers=6",         "--set", "width=512", "--set",
                                          "heads=8", "--set", "vocab=9973", "--max-shard-size", "4MB",   "--threads", "1",
                                          "--quiet", "-o"};

std::vector<std::string> medium(const std::string& path) {
  auto args = kMedium;
  args.push_back(path);
  return args;
}

bool has_temporary(const std::string& path) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
    if (entry.path().extension() == ".tmp") return true;
  }
  return false;
}

std::size_t shards(const std::string& path) {
  std::size_t count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
    const std::string name = entry.path().filename().string();
    count += name.starts_with("model-") && name.ends_with(".safetensors") ? 1 : 0;
  }
  return count;
}

TEST(Checkpoint, KilledInTheMiddleAndResumed) {
  const Scratch scratch;
  Program whole(medium(scratch.path("whole")), scratch);
  ASSERT_EQ(whole.wait(), 0) << whole.err();
  const auto want = folder(scratch.path("whole"));
  const std::string path = scratch.path("killed");
  for (const int number : {SIGKILL, SIGTERM, SIGKILL}) {
    Program victim(medium(path), scratch);
    const std::size_t before = shards(path);
    for (int i = 0; i < 50000 && shards(path) < before + 2; ++i) std::this_thread::sleep_for(std::chrono::microseconds(100));
    victim.signal(number);
    const int code = victim.wait();
    EXPECT_TRUE(code == (number == SIGKILL ? 1000 + SIGKILL : 128 + SIGTERM)) << code << " " << victim.err();
    EXPECT_FALSE(std::filesystem::exists(path + "/model.safetensors.index.json"));
    EXPECT_TRUE(number == SIGKILL || !has_temporary(path));
  }
  Program again(medium(path), scratch);
  ASSERT_EQ(again.wait(), 0) << again.err();
  EXPECT_THAT(again.out(), HasSubstr("kept"));
  EXPECT_TRUE(folder(path) == want);  // the same files, the same bytes, and no temporary left behind
}

// Into the same directory, with files of other names: what the killed one left goes, what somebody writes or owns stays.
TEST(Checkpoint, AnotherOneClearsWhatAKilledOneLeft) {
  const Scratch scratch;
  const std::string path = scratch.path("there");
  for (int attempt = 0; attempt < 50 && !has_temporary(path); ++attempt) {  // a kill between two files leaves nothing: another try
    std::filesystem::remove_all(path);
    Program victim(medium(path), scratch);
    for (int i = 0; i < 50000 && !has_temporary(path); ++i) std::this_thread::sleep_for(std::chrono::microseconds(100));
    victim.signal(SIGKILL);
    victim.wait();
  }
  ASSERT_TRUE(has_temporary(path));
  std::ofstream(path + "/.notes.tmp") << "mine";
  const auto writer = OutputFile::create(path + "/other.bin", 8);
  ASSERT_TRUE(writer.has_value());
  Program next({"init", "gpt2", "--set", "layers=1", "--set", "vocab=97", "--force", "--quiet", "-o", path}, scratch);
  EXPECT_EQ(next.wait(), 0) << next.err();
  std::vector<std::string> hidden;
  for (const auto& [name, bytes] : folder(path)) {
    if (name.ends_with(".tmp")) hidden.push_back(name);
  }
  EXPECT_THAT(hidden, ::testing::UnorderedElementsAre(".notes.tmp", ::testing::StartsWith(fmt::format(".other.bin.{}-", ::getpid()))));
}

TEST(Checkpoint, TwoWritersDoNotMix) {
  const Scratch scratch;
  const std::string path = scratch.path("model.safetensors");
  {
    const auto writer = OutputFile::create(path, 8);
    ASSERT_TRUE(writer.has_value());
    Program second({"init", "gpt2", "--set", "layers=1", "--set", "vocab=97", "-o", path}, scratch);
    EXPECT_EQ(second.wait(), 75);
    EXPECT_THAT(second.err(), HasSubstr(fmt::format("process {} is writing it", ::getpid())));
  }
  Program third({"init", "gpt2", "--set", "layers=1", "--set", "vocab=97", "-o", path}, scratch);
  EXPECT_EQ(third.wait(), 0) << third.err();
}

}  // namespace
}  // namespace stepzero
