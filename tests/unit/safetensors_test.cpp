#include "stepzero/io/safetensors.hpp"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "stepzero/core/half.hpp"
#include "stepzero/io/output.hpp"
#include "tests/hostile/scratch.hpp"

namespace stepzero {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::safetensors_bytes;
using testing::Scratch;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

SafetensorsFile one_tensor(const Scratch& scratch, const char* dtype, std::size_t elements, const std::string& data) {
  const std::string header = fmt::format(R"({{"w":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})", dtype, elements, data.size());
  auto opened = SafetensorsFile::open(scratch.put("w.safetensors", safetensors_bytes(header, data)));
  if (!opened) throw std::runtime_error(opened.error().message);
  return std::move(*opened);
}

// IEEE 754 in words: sign, exponent biased by `bias`, and a fraction with a leading one unless the exponent is zero.
double value_of(unsigned pattern, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(pattern >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = static_cast<int>(pattern) & ((1 << fraction_bits) - 1);
  const double sign = (pattern >> (exponent_bits + fraction_bits)) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

void expect_every_pattern(const char* dtype, int exponent_bits, int fraction_bits) {
  std::vector<std::uint16_t> patterns(65536);
  for (unsigned i = 0; i < 65536; ++i) patterns[i] = static_cast<std::uint16_t>(i);
  const Scratch scratch;
  const auto file = one_tensor(scratch, dtype, patterns.size(), bytes_of(patterns));
  std::vector<float> narrow(65536);
  std::vector<double> wide(65536);
  ASSERT_TRUE(file.read_f32(file.tensors()[0], 0, narrow));
  ASSERT_TRUE(file.read_f64(file.tensors()[0], 0, wide));
  for (unsigned i = 0; i < 65536; ++i) {
    const double exact = value_of(i, exponent_bits, fraction_bits);
    if (std::isnan(exact)) {
      ASSERT_TRUE(std::isnan(narrow[i]) && std::isnan(wide[i])) << i;
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint64_t>(wide[i]), std::bit_cast<std::uint64_t>(exact)) << i;  // tells -0 from 0
    ASSERT_EQ(std::bit_cast<std::uint64_t>(static_cast<double>(narrow[i])), std::bit_cast<std::uint64_t>(exact)) << i;
  }
}

TEST(SafetensorsRead, every_pattern_of_f16) { expect_every_pattern("F16", 5, 10); }
TEST(SafetensorsRead, every_pattern_of_bf16) { expect_every_pattern("BF16", 8, 7); }

TEST(SafetensorsRead, nan_keeps_its_sign_and_payload) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(half_to_float(0xFE01)), 0xFFC02000U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(bfloat16_to_float(0x7FC1)), 0x7FC10000U);
}

TEST(SafetensorsRead, f64_and_f32_into_each_other) {
  const Scratch scratch;
  const auto doubles = one_tensor(scratch, "F64", 4, bytes_of<double>({1.0 + 0x1p-40, -0.0, 1e300, 0x1p-149}));
  double wide[4];
  ASSERT_TRUE(doubles.read_f64(doubles.tensors()[0], 0, wide));
  EXPECT_THAT(wide, ElementsAre(1.0 + 0x1p-40, -0.0, 1e300, 0x1p-149));
  float narrow[4];
  ASSERT_TRUE(doubles.read_f32(doubles.tensors()[0], 0, narrow));
  EXPECT_THAT(narrow, ElementsAre(1.0F, -0.0F, std::numeric_limits<float>::infinity(), 0x1p-149F));
  const auto floats = one_tensor(scratch, "F32", 2, bytes_of<float>({0.1F, 0x1p-149F}));
  ASSERT_TRUE(floats.read_f64(floats.tensors()[0], 0, std::span(wide, 2)));
  EXPECT_EQ(wide[0], static_cast<double>(0.1F));
  EXPECT_EQ(wide[1], 0x1p-149);
}

TEST(SafetensorsRead, parts_of_a_tensor) {
  const Scratch scratch;
  std::vector<std::uint16_t> brains(100'000);  // several blocks of the converting reader
  for (std::size_t i = 0; i < brains.size(); ++i)
    brains[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(i % 256)) >> 16);
  const auto file = one_tensor(scratch, "BF16", brains.size(), bytes_of(brains));
  const TensorInfo& tensor = file.tensors()[0];
  for (const std::size_t first : {0UL, 1UL, 16383UL, 16384UL, 40'000UL, 99'999UL}) {
    std::vector<float> part(std::min<std::size_t>(50'000, brains.size() - first));
    ASSERT_TRUE(file.read_f32(tensor, first, part));
    for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], static_cast<float>((first + i) % 256));
  }
  EXPECT_TRUE(file.read_f32(tensor, brains.size(), {}));
  std::vector<float> two(2);
  EXPECT_THAT(file.read_f32(tensor, 99'999, two).error().message,
              HasSubstr("tensor \"w\": 2 elements from 99999 on are wanted, it has 100000"));
  // In 64 bits this is one element before the first.
  EXPECT_THAT(file.read_f32(tensor, ~std::uint64_t{0}, two).error().message, HasSubstr("it has 100000"));
}

TEST(SafetensorsRead, other_dtypes_are_refused_by_name) {
  const Scratch scratch;
  for (const char* dtype : {"I32", "U32"}) {
    const auto file = one_tensor(scratch, dtype, 1, "abcd");
    float value = 0;
    const auto read = file.read_f32(file.tensors()[0], 0, {&value, 1});
    ASSERT_FALSE(read);
    EXPECT_THAT(read.error().message, HasSubstr(fmt::format("tensor \"w\": dtype {} cannot be read", dtype)));
  }
}

TEST(SafetensorsRead, threads_share_one_file) {
  const Scratch scratch;
  std::vector<float> values(1 << 16);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto file = one_tensor(scratch, "F32", values.size(), bytes_of(values));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<float> part(1000);
      for (std::size_t first = t * 7; first + part.size() < values.size(); first += 501) {
        if (!file.read_f32(file.tensors()[0], first, part) || part[0] != values[first] || part.back() != values[first + 999]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(InputFile, reads_within_its_size) {
  const Scratch scratch;
  const auto file = InputFile::open(scratch.put("f", "abc"));
  ASSERT_TRUE(file);
  std::byte two[2];
  EXPECT_TRUE(file->read(1, two));
  EXPECT_TRUE(file->read(3, {}));
  for (const std::uint64_t offset : {std::uint64_t{2}, std::uint64_t{4}, ~std::uint64_t{0}})
    EXPECT_THAT(file->read(offset, two).error().message,
                HasSubstr("f: byte " + std::to_string(offset) + ": 2 bytes wanted, the file has 3"));
}

TEST(SafetensorsWrite, comes_back_as_it_went) {
  const Scratch scratch;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {std::numeric_limits<float>::quiet_NaN()};
  const std::string odd = "q\"\\\x1B\u202E" + std::string(1, '\0');
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"note", "a \"b\"\n"}};
  const auto wrote = write_safetensors(scratch.path("m.safetensors"), {{"z", {2, 3}, a}, {odd, {}, b}, {"empty", {0, 4}, {}}}, metadata);
  ASSERT_TRUE(wrote) << wrote.error().message;
  const auto file = SafetensorsFile::open(scratch.path("m.safetensors"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata(), metadata);
  EXPECT_THAT(file->find("z")->shape, ElementsAre(2U, 3U));
  EXPECT_EQ(file->find("empty")->elements(), 0U);
  std::vector<float> back(6);
  ASSERT_TRUE(file->read_f32(*file->find("z"), 0, back));
  EXPECT_EQ(back, a);
  ASSERT_TRUE(file->read_f32(*file->find(odd), 0, std::span(back).first(1)));
  EXPECT_TRUE(std::isnan(back[0]));
  EXPECT_EQ(scratch.files(), 1U);
}

TEST(SafetensorsWrite, bytes_are_the_reference_writer_s) {
  const Scratch scratch;
  const std::vector<float> one = {1.0F};
  ASSERT_TRUE(write_safetensors(scratch.path("m"), {{"b", {1}, one}, {"a", {}, one}}, {{"format", "pt"}}));
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(scratch.get("m"), safetensors_bytes(padded, bytes_of<float>({1, 1})));
  ASSERT_TRUE(write_safetensors(scratch.path("nothing"), {}, {}));
  EXPECT_EQ(scratch.get("nothing"), safetensors_bytes("{}      "));
}

TEST(SafetensorsWrite, writes_only_what_can_be_read) {
  const Scratch scratch;
  const std::vector<float> two = {1, 2};
  const auto error = [&](const std::vector<TensorData>& tensors, const std::map<std::string, std::string>& metadata = {}) {
    const auto wrote = write_safetensors(scratch.path("m"), tensors, metadata);
    return wrote ? "written" : wrote.error().message;
  };
  EXPECT_THAT(error({{"a", {3}, two}}), HasSubstr("shape [3] does not hold the 2 numbers given"));
  EXPECT_THAT(error({{"a", {1ULL << 40, 1ULL << 40}, two}}), HasSubstr("does not hold"));
  EXPECT_THAT(error({{"a", {0, 1ULL << 48}, {}}}), HasSubstr("a dimension is larger"));
  EXPECT_THAT(error({{"a", std::vector<std::uint64_t>(65, 1), std::span(two).first(1)}}), HasSubstr("more than 64 dimensions"));
  EXPECT_THAT(error({{"a", {2}, two}, {"b", {2}, two}, {"a", {2}, two}}), HasSubstr("tensor \"a\" is given twice"));
  EXPECT_THAT(error({{"\xFF", {2}, two}}), HasSubstr("tensor \"\\xFF\": the name is not UTF-8"));
  EXPECT_THAT(error({{std::string(1025, 'n'), {2}, two}}), HasSubstr("longer than 1024"));
  EXPECT_THAT(error({{"__metadata__", {2}, two}}), HasSubstr("keeps this name"));
  EXPECT_THAT(error({}, {{"k", "\xFF"}}), HasSubstr("\"k\" is not UTF-8"));
  EXPECT_THAT(error({}, {{"\xFF", "v"}}), HasSubstr("is not UTF-8"));
  EXPECT_EQ(scratch.files(), 0U);
}

TEST(OutputFile, old_file_stays_unless_told) {
  const Scratch scratch;
  const std::string path = scratch.put("m", "old");
  EXPECT_THAT(write_safetensors(path, {}, {}).error().message, HasSubstr("m: the file exists"));
  EXPECT_FALSE(OutputFile::create(path, 0));  // said before the work, not after
  EXPECT_EQ(scratch.get("m"), "old");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(write_safetensors(path, {}, {}, true));
  EXPECT_EQ(scratch.get("m"), safetensors_bytes("{}      "));
  struct stat status = {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0640U);
  ASSERT_EQ(::mkfifo(scratch.path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(write_safetensors(scratch.path("pipe"), {}, {}, true).error().message, HasSubstr("not a regular file"));
  EXPECT_EQ(scratch.files(), 2U);
}

TEST(OutputFile, appears_whole_or_not_at_all) {
  const Scratch scratch;
  const std::string text = "new";
  {
    auto file = OutputFile::create(scratch.path("m"), 1000);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(std::as_bytes(std::span(text))));
    EXPECT_EQ(scratch.files(), 1U);  // the temporary
    EXPECT_EQ(::access(scratch.path("m").c_str(), F_OK), -1);
  }
  EXPECT_EQ(scratch.files(), 0U);  // not committed
  auto file = OutputFile::create(scratch.path("m"), 1000);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->write(std::as_bytes(std::span(text))));
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(scratch.get("m"), "new");  // no longer than what was written
}

TEST(OutputFile, someone_else_was_faster) {
  const Scratch scratch;
  {
    auto file = OutputFile::create(scratch.path("m"), 0);
    ASSERT_TRUE(file);
    EXPECT_EQ(scratch.get(scratch.put("m", "theirs").substr(scratch.path("").size())), "theirs");
    EXPECT_THAT(file->commit().error().message, HasSubstr("the file exists"));
  }
  EXPECT_EQ(scratch.get("m"), "theirs");
  EXPECT_EQ(scratch.files(), 1U);
}

TEST(OutputFile, places_that_cannot_be_written) {
  const Scratch scratch;
  const auto error = [](const std::string& path) {
    const auto made = OutputFile::create(path, 0);
    return made ? "made" : made.error().message;
  };
  EXPECT_THAT(error(scratch.path("absent/m")), HasSubstr("cannot open its directory: No such file"));
  EXPECT_THAT(error(scratch.path("")), HasSubstr("a file name is missing"));
  EXPECT_THAT(error(scratch.path("m") + std::string("\0x", 2)), HasSubstr("zero byte"));
  EXPECT_TRUE(OutputFile::create(scratch.path(std::string(255, 'n')), 0));
}

// A real limit of the system in the place of a full disk: the file may not grow beyond 64 kB.
TEST(OutputFile, room_runs_out) {
  const Scratch scratch;
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {65536, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string reserved, written;
  if (const auto file = OutputFile::create(scratch.path("m"), 100'000); !file) reserved = file.error().message;
  {
    auto file = OutputFile::create(scratch.path("m"), 0);
    const std::vector<std::byte> bytes(100'000);
    if (const auto done = file->write(bytes); !done) written = done.error().message;
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(reserved, HasSubstr("cannot reserve room for it: File too large"));
  EXPECT_THAT(written, HasSubstr("cannot write: File too large"));
  EXPECT_EQ(scratch.files(), 0U);
}

}  // namespace
}  // namespace stepzero
