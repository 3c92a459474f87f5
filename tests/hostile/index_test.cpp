// The I rows of the hostile-input checklist: an index and its shards.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/io/checkpoint_files.hpp"
#include "stepzero/io/shard_index.hpp"
#include "tests/hostile/safetensors_fixture.hpp"

namespace stepzero {
namespace {

namespace fs = std::filesystem;
using testing::bytes_entry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kFour;
using testing::safetensors_bytes;

class Index : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(scratch_.path("m")); }
  void shard(const std::string& name, const std::string& tensor) {
    (void)scratch_.put("m/" + name, safetensors_bytes("{" + bytes_entry(tensor, 0, 4) + "}", kFour));
  }
  void index(const std::string& weight_map, const std::string& metadata = "{}") {
    (void)scratch_.put("m/model.safetensors.index.json", fmt::format(R"({{"metadata":{},"weight_map":{{{}}}}})", metadata, weight_map));
  }
  [[nodiscard]] std::string path_of_index() const { return scratch_.path("m/model.safetensors.index.json"); }
  std::string opened(const OpenOptions& options = {}) {
    auto files = CheckpointFiles::open(scratch_.path("m"), options);
    if (!files) {
      EXPECT_FALSE(files.error().hint.empty()) << files.error().message;
      return files.error().message;
    }
    warnings_ = files->warnings();
    return fmt::format("{} tensors", files->tensors().size());
  }
  testing::Scratch scratch_;
  std::vector<std::string> warnings_;
};

TEST_F(Index, whole_checkpoint_is_accepted) {
  shard("1.safetensors", "a");
  shard("2.safetensors", "b");
  index(R"("a":"1.safetensors","b":"2.safetensors")", R"({"total_size":8})");
  EXPECT_EQ(opened(), "2 tensors");
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(Index, I1_names_that_are_paths) {
  shard("1.safetensors", "a");
  for (const std::string name : {"../../etc/passwd", "/etc/passwd", "a/../../b.safetensors", "..\\\\1.safetensors", "file:1.safetensors",
                                 "", ".", ".safetensors", "..safetensors", "1.safetensors\\u0000", "./1.safetensors", "m/1.safetensors",
                                 "1.bin", "~1.safetensors", "1 .safetensors", "\\u202e1.safetensors"}) {
    index("\"a\":\"" + name + "\"");
    EXPECT_THAT(opened(), HasSubstr("is not the name of a shard")) << name;
  }
  index("\"a\":\"" + std::string(244, 'x') + ".safetensors\"");
  EXPECT_THAT(opened(), HasSubstr("is not the name of a shard"));
  index("\"a\":3");
  EXPECT_THAT(opened(), HasSubstr("is not the name of a shard"));
}

TEST_F(Index, I2_links) {
  fs::create_directory(scratch_.path("elsewhere"));
  (void)scratch_.put("elsewhere/secret", safetensors_bytes("{" + bytes_entry("a", 0, 4) + "}", kFour));
  fs::create_symlink(scratch_.path("elsewhere/secret"), scratch_.path("m/1.safetensors"));
  index(R"("a":"1.safetensors")");
  EXPECT_THAT(opened(), HasSubstr("the shard is a symbolic link that leads elsewhere"));
  EXPECT_EQ(opened({.follow_symlinks = true}), "1 tensors");
  fs::remove(scratch_.path("m/1.safetensors"));
  fs::create_hard_link(scratch_.path("elsewhere/secret"), scratch_.path("m/1.safetensors"));
  EXPECT_THAT(opened(), HasSubstr("the shard has 2 names (hard links)"));
  EXPECT_EQ(opened({.follow_symlinks = true}), "1 tensors");
  fs::remove(scratch_.path("m/1.safetensors"));
  const int fd = ::open(scratch_.path("elsewhere/secret").c_str(), O_RDONLY);
  fs::create_symlink(fmt::format("/proc/self/fd/{}", fd), scratch_.path("m/1.safetensors"));
  EXPECT_THAT(opened(), HasSubstr("leads elsewhere"));
  ::close(fd);
}

TEST_F(Index, I2_the_cache_of_hugging_face) {
  fs::create_directories(scratch_.path("cache/snapshots/rev"));
  fs::create_directories(scratch_.path("cache/blobs"));
  (void)scratch_.put("cache/blobs/hash", safetensors_bytes("{" + bytes_entry("a", 0, 4) + "}", kFour));
  fs::create_symlink("../../blobs/hash", scratch_.path("cache/snapshots/rev/1.safetensors"));
  (void)scratch_.put("cache/snapshots/rev/model.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors"}})");
  EXPECT_TRUE(CheckpointFiles::open(scratch_.path("cache/snapshots/rev")));
  fs::remove(scratch_.path("cache/snapshots/rev/1.safetensors"));
  (void)scratch_.put("cache/outside", "");
  fs::create_symlink("../../outside", scratch_.path("cache/snapshots/rev/1.safetensors"));
  EXPECT_FALSE(CheckpointFiles::open(scratch_.path("cache/snapshots/rev")));
}

TEST_F(Index, I3_shards_that_are_missing) {
  index(R"("a":"1.safetensors")");
  EXPECT_THAT(opened(), HasSubstr("1.safetensors: cannot open: No such file"));
  (void)scratch_.put("m/1.safetensors", "");
  EXPECT_THAT(opened(), HasSubstr("header too small"));
  shard("1.safetensors", "a");
  index(R"("a":"1.safetensors","a":"1.safetensors")");
  EXPECT_THAT(opened(), HasSubstr("the key \"a\" is given twice"));
  index("");
  EXPECT_THAT(opened(), HasSubstr("\"weight_map\" is empty"));
  (void)scratch_.put("m/model.safetensors.index.json", "[]");
  EXPECT_THAT(opened(), HasSubstr("\"weight_map\" is missing"));
}

TEST_F(Index, I4_tensors_in_the_wrong_place) {
  shard("1.safetensors", "a");
  shard("2.safetensors", "b");
  index(R"("a":"1.safetensors","b":"2.safetensors","c":"2.safetensors")");
  EXPECT_THAT(opened(), HasSubstr("tensor \"c\" is not in 2.safetensors"));
  index(R"("a":"2.safetensors","b":"1.safetensors")");
  EXPECT_THAT(opened(), HasSubstr("tensor \"a\" is not in 2.safetensors"));
  (void)scratch_.put("m/2.safetensors",
                     safetensors_bytes("{" + bytes_entry("b", 0, 4) + "," + bytes_entry("z", 4, 8) + "}", kFour + kFour));
  index(R"("a":"1.safetensors","b":"2.safetensors")");
  EXPECT_THAT(opened(), HasSubstr("tensor \"z\" is not in the index"));
  shard("2.safetensors", "a");
  index(R"("a":"1.safetensors","b":"2.safetensors")");
  EXPECT_THAT(opened(), ::testing::AllOf(HasSubstr("1.safetensors"), HasSubstr("2.safetensors: tensor \"a\" is in")));
}

TEST_F(Index, I5_total_size) {
  shard("1.safetensors", "a");
  index(R"("a":"1.safetensors")", R"({"total_size":5})");
  EXPECT_EQ(opened(), "1 tensors");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("total_size is 5, the tensors take 4 bytes")));
}

TEST_F(Index, I6_many_shards) {
  std::string map;
  for (int i = 0; i < 10001; ++i) map += fmt::format("{}\"t{}\":\"{}.safetensors\"", i > 0 ? "," : "", i, i);
  index(map);
  EXPECT_THAT(opened(), HasSubstr("more than 10000 shards"));
  map.clear();
  for (int i = 0; i < 100; ++i) {
    shard(fmt::format("{}.safetensors", i), fmt::format("t{}", i));
    map += fmt::format("{}\"t{}\":\"{}.safetensors\"", i > 0 ? "," : "", i, i);
  }
  index(map);
  const auto count = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); };
  const auto before = count();
  const auto files = CheckpointFiles::open(scratch_.path("m"));
  ASSERT_TRUE(files) << files.error().message;
  for (const auto& [name, tensor] : files->tensors()) {
    std::byte bytes[4];
    ASSERT_TRUE(files->read_bytes(tensor, 0, bytes)) << name;
    ASSERT_LE(count() - before, 16);
  }
}

TEST_F(Index, I6_an_index_too_large_to_be_one) {
  index(R"("a":"1.safetensors")");
  ASSERT_EQ(::truncate(path_of_index().c_str(), 65 << 20), 0);
  EXPECT_THAT(opened(), HasSubstr("68157440 bytes, at most 67108864 are read"));
}

TEST_F(Index, I7_shard_replaced_while_read) {
  std::string map;
  for (int i = 0; i < 20; ++i) {
    shard(fmt::format("{:02}.safetensors", i), fmt::format("t{:02}", i));
    map += fmt::format("{}\"t{:02}\":\"{:02}.safetensors\"", i > 0 ? "," : "", i, i);
  }
  index(map);
  const auto files = CheckpointFiles::open(scratch_.path("m"));
  ASSERT_TRUE(files);
  for (int i = 0; i < 20; ++i) {  // all of them: some are still open, some are opened again
    const std::string name = scratch_.path(fmt::format("m/{:02}.safetensors", i));
    fs::remove(name);
    shard(fmt::format("{:02}.safetensors", i), fmt::format("u{:02}", i));
  }
  int same = 0, refused = 0;
  for (const auto& [name, tensor] : files->tensors()) {
    std::byte bytes[4];
    const auto read = files->read_bytes(tensor, 0, bytes);
    if (read) {
      ++same;
      EXPECT_EQ(std::memcmp(bytes, kFour.data(), 4), 0);
    } else {
      ++refused;
      EXPECT_THAT(read.error().message, HasSubstr("was replaced or changed while it was read"));
    }
  }
  EXPECT_EQ(same, 12);
  EXPECT_EQ(refused, 8);
}

TEST_F(Index, S33_file_cut_while_mapped) {
  const std::string header = "{" + testing::entry("a", "F32", "65536", "0,262144") + "}";
  const std::string path = scratch_.put("m/model.safetensors", safetensors_bytes(header, std::string(262144, '\x01')));
  const auto files = CheckpointFiles::open(path);
  ASSERT_TRUE(files);
  const auto bytes = files->map(files->tensors().at("a"), 0, 262144);
  ASSERT_TRUE(bytes);
  ASSERT_EQ(::truncate(path.c_str(), 8192), 0);
  std::uint64_t sum = 0;
  for (const std::byte b : bytes->get()) sum += std::to_integer<std::uint64_t>(b);
  EXPECT_LT(sum, 262144U);
  const auto intact = bytes->intact();
  ASSERT_FALSE(intact);
  EXPECT_THAT(intact.error().message, HasSubstr("the file ends here"));
}

TEST_F(Index, other_files_are_named_and_never_read) {
  const auto refused = [&](const std::string& bytes) {
    const auto files = CheckpointFiles::open(scratch_.put("file", bytes));
    return files ? std::string("accepted") : files.error().message + " " + files.error().hint;
  };
  EXPECT_THAT(refused(std::string("PK\x03\x04", 4) + std::string(26, '\0') + "wte.npy" + std::string(40, '\0')), HasSubstr(".npz"));
  EXPECT_THAT(refused(std::string("PK\x03\x04", 4) + std::string(26, '\0') + "archive/data.pkl" + std::string(40, '\0')),
              HasSubstr("torch.load"));
  EXPECT_THAT(refused("\n\n  <!DOCTYPE html><html>"), HasSubstr("an HTML page"));
  EXPECT_THAT(refused("\x80\x02}q\x01. and so on"), HasSubstr("pickle"));
  EXPECT_THAT(refused("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("git lfs pull"));
  EXPECT_THAT(refused("\x93NUMPY\x01 and so on"), HasSubstr("a NumPy array"));
  (void)scratch_.put("m/pytorch_model.bin", "");
  EXPECT_THAT(opened(), HasSubstr("holds pytorch_model.bin"));
}

}  // namespace
}  // namespace stepzero
