// The S rows of the hostile-input checklist, one test a row, its bytes made here: how tensors share the data, and what
// odd but true files hold.
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <vector>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/hostile/safetensors_fixture.hpp"

namespace stepzero {
namespace {

using testing::bytes_entry;
using ::testing::ElementsAre;
using testing::entry;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kFour;
using testing::safetensors_bytes;

class SafetensorsData : public testing::SafetensorsTest {};

TEST_F(SafetensorsData, S19_overlap) {
  std::string same = "{" + bytes_entry("a", 0, 4);
  for (int i = 0; i < 9; ++i) same += "," + bytes_entry(fmt::format("b{}", i), 0, 4);
  EXPECT_THAT(error_of_header(same + "}", kFour), HasSubstr("begins at 0, inside tensor"));
  const std::string a = "{" + bytes_entry("a", 0, 3) + ",";
  EXPECT_THAT(error_of_header(a + bytes_entry("b", 2, 4) + "}", kFour),
              HasSubstr("tensor \"b\": begins at 2, inside tensor \"a\" that ends at 3"));
  EXPECT_THAT(error_of_header(a + bytes_entry("b", 1, 2) + "}", "abc"), HasSubstr("inside tensor \"a\""));
  EXPECT_THAT(error_of_header(a + bytes_entry("b", 2, 2) + "}", "abc"), HasSubstr("inside tensor \"a\""));
}

TEST_F(SafetensorsData, S20_hole) {
  EXPECT_THAT(error_of_header("{" + bytes_entry("a", 1, 4) + "}", kFour),
              HasSubstr("tensor \"a\": begins at 1, but the data before it ends at 0"));
  EXPECT_THAT(error_of_header("{" + bytes_entry("a", 0, 2) + "," + bytes_entry("b", 3, 4) + "}", kFour),
              HasSubstr("tensor \"b\": begins at 3, but the data before it ends at 2"));
}

TEST_F(SafetensorsData, S21_data_after_the_last_tensor) {
  const std::string header = "{" + bytes_entry("a", 0, 4) + "}";
  EXPECT_THAT(error_of_header(header, kFour + "PK"), HasSubstr(fmt::format("byte {}: 2 bytes after the last tensor", 12 + header.size())));
  EXPECT_THAT(error_of_header("{}", "x"), HasSubstr("byte 10: 1 bytes after the last tensor"));
}

TEST_F(SafetensorsData, S22_last_bytes_missing) {
  const std::string header = "{" + bytes_entry("a", 0, 4) + "," + bytes_entry("b", 4, 8) + "}";
  for (std::size_t left = 0; left < 8; ++left)
    EXPECT_THAT(error_of_header(header, (kFour + kFour).substr(0, left)),
                HasSubstr(fmt::format("truncated: need 8 bytes of data, have {}", left)));
}

TEST_F(SafetensorsData, S23_metadata_that_is_no_text) {
  for (const std::string bad : {"1", "null", "true", "[\"a\"]", "{\"a\":\"b\"}", "1.5"})
    EXPECT_THAT(error_of_header("{\"__metadata__\":{\"k\":" + bad + "}}"), HasSubstr("__metadata__: \"k\" must be a text, found"));
  for (const std::string bad : {"1", "null", "\"a\"", "[]"}) {
    EXPECT_THAT(error_of_header("{\"__metadata__\":" + bad + "}"), HasSubstr("__metadata__ must be an object, found"));
    EXPECT_THAT(error_of_header("{\"a\":" + bad + "}"), HasSubstr("tensor \"a\" must be an object, found"));
  }
  EXPECT_THAT(error_of_header("{" + bytes_entry("__metadata__", 0, 4) + "}", kFour), HasSubstr("\"shape\" must be a text, found ["));
  EXPECT_THAT(error_of_header(R"({"__metadata__":{"k":"a","\u006b":"b"}})"), HasSubstr("__metadata__ gives \"k\" twice"));
  EXPECT_THAT(error_of_header(R"({"__metadata__":{},"\u005f_metadata__":{}})"), HasSubstr("__metadata__ is given twice"));
  EXPECT_EQ(accepted(R"({"__metadata__":{"format":"pt","":""}})").metadata().at("format"), "pt");
}

// Time and memory are promised for an optimised build without sanitizers, which clang and gcc announce each in its way.
#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
constexpr bool kShippedSpeed = false;
#else
constexpr bool kShippedSpeed = true;
#endif

// The most memory this process has held since the mark was set back.
std::size_t peak_bytes(bool set_back) {
  if (set_back) std::ofstream("/proc/self/clear_refs") << 5;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::size_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

TEST_F(SafetensorsData, S24_a_million_tensors) {
  constexpr int count = 1'000'000;
  std::string header = "{";
  for (int i = 0; i < count; ++i) {  // in an order that is neither that of the names nor that of the data
    const int k = static_cast<int>(i * 7919LL % count);
    header += fmt::format(R"("layers.{}.mlp.experts.up_proj":{{"dtype":"U8","shape":[1,1],"data_offsets":[{},{}]}},)", k, k, k + 1);
  }
  header.back() = '}';
  ASSERT_LE(header.size(), 100'000'000U);
  header.resize(100'000'000, ' ');
  const std::string path = scratch_.put("model.safetensors", safetensors_bytes(header, std::string(count, 'x')));
  const std::size_t before = peak_bytes(true);
  const std::clock_t start = std::clock();  // time of this process: the machine may have other work
  const auto opened = SafetensorsFile::open(path);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const std::size_t grown = peak_bytes(false) - before;
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->tensors().size(), static_cast<std::size_t>(count));
  EXPECT_EQ(opened->find("layers.77.mlp.experts.up_proj")->begin, 77U);
  RecordProperty("seconds", std::to_string(seconds));
  RecordProperty("memory_per_header_byte", std::to_string(static_cast<double>(grown) / static_cast<double>(header.size())));
  if (!kShippedSpeed) return;
  EXPECT_LE(grown, 10 * header.size());
  EXPECT_LE(seconds, 2.0);
}

TEST_F(SafetensorsData, S25_nesting_bomb) {
  const std::string bomb(100'000, '[');
  EXPECT_THAT(error_of_header(R"({"a":{"x":)" + bomb), HasSubstr("byte 24: tensor \"a\": nested deeper than 8 levels"));
  EXPECT_THAT(error_of_header(bomb), HasSubstr("must be an object"));
  std::string objects = R"({"a":{"x":)";
  for (int i = 0; i < 100'000; ++i) objects += R"({"":)";
  EXPECT_THAT(error_of_header(objects), HasSubstr("nested deeper than 8 levels"));
  const std::string deep = std::string(6, '[') + std::string(6, ']');
  EXPECT_NO_THROW(accepted(R"({"a":{"x":)" + deep + R"(,"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"));
}

TEST_F(SafetensorsData, S26_name_of_a_megabyte) {
  const std::string name(1'000'000, 'n');
  EXPECT_THAT(error_of_header("{" + bytes_entry(name, 0, 4) + "}", kFour), HasSubstr("a tensor name of 1000000 bytes, at most 1024"));
  EXPECT_THAT(error_of_header("{" + bytes_entry(name.substr(0, 1025), 0, 4) + "}", kFour), HasSubstr("1025 bytes"));
  EXPECT_NO_THROW(accepted("{" + bytes_entry(name.substr(0, 1024), 0, 4) + "}", kFour));
}

TEST_F(SafetensorsData, S27_names_that_attack_the_terminal) {
  for (const std::string name : {R"(a\u0000b)", R"(\u001b[2J)", R"(\u009b2J)", "\xC2\x9B-2J", R"(a\u202eb)", R"(\n: fine)"}) {
    const std::string header = "{" + bytes_entry(name, 0, 4) + "}";
    const auto file = accepted(header, kFour);
    ASSERT_EQ(file.warnings().size(), 1U) << name;
    EXPECT_THAT(file.warnings()[0], HasSubstr("byte 9: tensor \""));
    for (const char c : file.warnings()[0]) EXPECT_TRUE(c >= ' ' && c < 0x7F);
    EXPECT_THAT(error_of_header(header), HasSubstr("\\u{"));
  }
  const auto file = accepted("{" + bytes_entry(R"(a\u0000b)", 0, 4) + "}", kFour);
  EXPECT_NE(file.find(std::string("a\0b", 3)), nullptr);
  EXPECT_EQ(file.find("a"), nullptr);
}

TEST_F(SafetensorsData, S28_empty_name) {
  const std::string header = "{" + bytes_entry("", 0, 4) + "}";
  EXPECT_NE(accepted(header, kFour).find(""), nullptr);
  EXPECT_THAT(error_of_header(header), HasSubstr("tensor \"\": truncated"));
}

TEST_F(SafetensorsData, S29_rank_of_ten_thousand) {
  std::string shape = "1";
  for (int rank = 1; rank < 64; ++rank) shape += ",1";
  EXPECT_EQ(accepted("{" + entry("a", "U8", shape, "0,1") + "}", "x").tensors().at(0).shape.size(), 64U);
  EXPECT_THAT(error_of_header("{" + entry("a", "U8", shape + ",1", "0,1") + "}", "x"), HasSubstr("more than 64 dimensions"));
  for (int rank = 64; rank < 10'000; ++rank) shape += ",1";
  EXPECT_THAT(error_of_header("{" + entry("a", "U8", shape, "0,1") + "}", "x"), HasSubstr("more than 64 dimensions"));
}

TEST_F(SafetensorsData, S30_nothing_inside) {
  EXPECT_THAT(accepted("{}").tensors(), IsEmpty());
  EXPECT_EQ(accepted("{" + entry("a", "F32", "3,0,2", "0,0") + "}").tensors().at(0).elements(), 0U);
  const auto scalar = accepted("{" + entry("a", "F32", "", "0,4") + "}", std::string("\0\0\x80?", 4));
  EXPECT_EQ(scalar.tensors().at(0).elements(), 1U);
  float one = 0;
  ASSERT_TRUE(scalar.read_f32(scalar.tensors()[0], 0, {&one, 1}));
  EXPECT_EQ(one, 1.0F);
  // Empty tensors may stand anywhere between others.
  const std::string full = bytes_entry("a", 0, 2) + "," + bytes_entry("b", 2, 4);
  const std::string empty = bytes_entry("c", 2, 2) + "," + bytes_entry("d", 0, 0) + "," + bytes_entry("e", 4, 4);
  EXPECT_EQ(accepted("{" + full + "," + empty + "}", kFour).tensors().size(), 5U);
}

TEST_F(SafetensorsData, S31_any_order) {
  const auto file = accepted("{" + bytes_entry("b", 3, 4) + "," + bytes_entry("c", 0, 1) + "," + bytes_entry("a", 1, 3) + "}", kFour);
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[2].name, "c");
  EXPECT_EQ(file.find("b")->begin, 3U);
  EXPECT_EQ(file.find("b")->header_byte, 9U);
}

TEST_F(SafetensorsData, S31_names_alike_for_long) {
  // Beginnings in common, names within names, a zero byte that sorts like no byte at all, bytes above 127.
  std::vector<std::string> names;
  for (const std::string head : {"model.", "model.layers.experts.mlp.", "model.layers.experts.mlp.up_projection."})
    for (const std::string tail :
         {"", "a", "b", "ab", "ba", "\xC3\xA9", "\\u0000", "\\u0000\\u0000", "0123456789abcdefg", "0123456789abcdefh"})
      names.push_back(head + tail);
  std::string header = "{";
  for (std::size_t i = 0; i < names.size(); ++i) header += bytes_entry(names[i * 7 % names.size()], 0, 0) + ",";
  header.back() = '}';
  const auto file = accepted(header);
  ASSERT_EQ(file.tensors().size(), names.size());
  for (std::size_t i = 1; i < names.size(); ++i) EXPECT_LT(file.tensors()[i - 1].name, file.tensors()[i].name);
  for (const TensorInfo& tensor : file.tensors()) EXPECT_EQ(file.find(tensor.name), &tensor);
}

TEST_F(SafetensorsData, S32_misaligned_data) {
  for (std::size_t pad = 0; pad < 9; ++pad) {
    const float values[] = {1.5F, -2.25F};
    const std::string data = "z" + std::string(reinterpret_cast<const char*>(values), sizeof values);
    const std::string header = "{" + bytes_entry("a", 0, 1) + "," + entry("f", "F32", "2", "1,9") + "}";
    const auto file = accepted(header + std::string(pad, ' '), data);
    float read[2] = {};
    ASSERT_TRUE(file.read_f32(*file.find("f"), 0, read));
    EXPECT_THAT(read, ElementsAre(1.5F, -2.25F));
  }
}

TEST_F(SafetensorsData, S33_file_shrinks_while_read) {
  const auto file = accepted("{" + entry("a", "F32", "4096", "0,16384") + "}", std::string(16384, 'x'));
  ASSERT_EQ(::truncate(scratch_.path("model.safetensors").c_str(), 4096), 0);
  std::vector<float> values(4096);
  const auto read = file.read_f32(file.tensors()[0], 0, values);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("byte 4096: the file ends here"));
}

TEST_F(SafetensorsData, S34_not_a_regular_file) {
  const auto refused = [](const std::string& path) {
    const auto opened = SafetensorsFile::open(path);
    return opened ? "accepted" : opened.error().message;
  };
  const std::string pipe = scratch_.path("pipe"), socket = scratch_.path("socket");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refused(pipe), HasSubstr("not a regular file but a pipe"));
  EXPECT_THAT(refused(scratch_.path("")), HasSubstr("not a regular file but a directory"));
  EXPECT_THAT(refused("/dev/zero"), HasSubstr("not a regular file but a device"));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  ASSERT_EQ(socket.copy(address.sun_path, sizeof address.sun_path - 1), socket.size());
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(refused(socket), HasSubstr("not a regular file but a socket"));
  ::close(fd);
  EXPECT_THAT(refused(scratch_.path("absent")), HasSubstr("No such file"));
  EXPECT_THAT(refused(scratch_.put("a", safetensors_bytes("{}")) + std::string("\0b", 2)), HasSubstr("zero byte"));
}

TEST_F(SafetensorsData, S35_other_files_are_named) {
  EXPECT_THAT(error_of("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"), HasSubstr("a git-LFS pointer"));
  EXPECT_THAT(hint_, HasSubstr("git lfs pull"));
  EXPECT_THAT(error_of("<!DOCTYPE html><html></html>"), HasSubstr("an HTML page"));
  EXPECT_THAT(error_of("<html><body>denied</body></html>"), HasSubstr("an HTML page"));
  EXPECT_THAT(error_of(std::string("PK\x03\x04\0\0\x08\x08\0\0\0\0", 12)), HasSubstr("a zip archive"));
  EXPECT_THAT(hint_, HasSubstr("weights_only=True"));
  EXPECT_THAT(error_of("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"), HasSubstr("a Python pickle"));
  EXPECT_THAT(error_of("\x80\x03}q\x01pickled"), HasSubstr("a Python pickle"));
  EXPECT_THAT(error_of("\x80\x04\x95\x10 pickled"), HasSubstr("a Python pickle"));
  EXPECT_THAT(error_of("\x80\x05\x95\x10 pickled"), HasSubstr("a Python pickle"));
  EXPECT_THAT(error_of(std::string("GGUF\x03\0\0\0{\0\0\0\0\0\0\0", 16)), HasSubstr("a GGUF file"));
  EXPECT_THAT(error_of("\x89HDF\r\n\x1a\n........"), HasSubstr("an HDF5 file"));
  EXPECT_THAT(error_of("{\"weight_map\": {}}"), HasSubstr("JSON text"));
  // A true file whose length reads like a pickle's first bytes.
  EXPECT_NO_THROW(accepted("{}" + std::string(0x280 - 2, ' ')));
}

TEST_F(SafetensorsData, S36_values_that_are_no_numbers) {
  using Limits = std::numeric_limits<float>;
  const float values[] = {Limits::quiet_NaN(), -Limits::infinity(), -0.0F, Limits::denorm_min()};
  const std::string data(reinterpret_cast<const char*>(values), sizeof values);
  const auto file = accepted("{" + entry("a", "F32", "4", "0,16") + "}", data);
  float read[4] = {};
  ASSERT_TRUE(file.read_f32(file.tensors()[0], 0, read));
  EXPECT_EQ(std::memcmp(read, values, sizeof values), 0);
  double wide[4] = {};
  ASSERT_TRUE(file.read_f64(file.tensors()[0], 0, wide));
  EXPECT_TRUE(std::isnan(wide[0]) && std::isinf(wide[1]) && std::signbit(wide[2]));
  EXPECT_EQ(wide[3], 0x1p-149);
}

}  // namespace
}  // namespace stepzero
