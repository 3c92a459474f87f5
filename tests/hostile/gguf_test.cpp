// The G rows of the hostile-input checklist, one test a row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/io/checkpoint_files.hpp"
#include "tests/hostile/gguf_fixture.hpp"
#include "tests/hostile/scratch.hpp"

namespace stepzero {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kData(32, 'x');  // eight floats

class Gguf : public ::testing::Test {
 protected:
  // What the reader says; "accepted" when nothing. The file is named, and there is a hint.
  std::string error_of(const std::string& bytes) {
    const auto opened = read(bytes);
    if (opened) return "accepted";
    EXPECT_THAT(opened.error().message, HasSubstr("m.gguf: byte "));
    EXPECT_FALSE(opened.error().hint.empty());
    return opened.error().message;
  }
  Expected<GgufHeader> read(const std::string& bytes) {
    return parse_gguf({bytes.size(),
                       [&](std::uint64_t at, std::span<std::byte> out) -> Expected<void> {
                         if (at > bytes.size() || out.size() > bytes.size() - at) throw std::out_of_range("read outside the file");
                         std::memcpy(out.data(), bytes.data() + at, out.size());
                         return {};
                       }},
                      "m.gguf");
  }
  std::string with_key(const std::string& entry) { return error_of(gguf_bytes({.keys = {entry}})); }
  std::string with_tensor(const GgufTensorSpec& t, const std::string& data = kData) {
    return error_of(gguf_bytes({.tensors = {tensor_info(t)}, .data = data}));
  }
  Scratch scratch_;
};

TEST_F(Gguf, whole_file_is_accepted) {
  const auto header = read(gguf_bytes({.keys = {key_u32("a.b", 7)}, .tensors = {tensor_info({.dims = {4, 2}})}, .data = kData}));
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(2, 4));
  EXPECT_EQ(header->tensors[0].bytes, 32U);
  EXPECT_THAT(header->warnings, IsEmpty());
}

TEST_F(Gguf, G01_magic) {
  EXPECT_THAT(error_of(gguf_bytes({.magic = "GGUX"})), HasSubstr("47 47 55 58"));
  EXPECT_THAT(error_of(gguf_bytes({.magic = std::string("\x1b[2J", 4)})), HasSubstr("1b 5b 32 4a (\"\\u{1B}[2J\")"));
  EXPECT_THAT(error_of("GG"), HasSubstr("the magic takes 4 bytes, but 2 follow"));
}

TEST_F(Gguf, G02_versions) {
  EXPECT_THAT(error_of(gguf_bytes({.version = 0})), HasSubstr("version 0 never was"));
  EXPECT_THAT(error_of(gguf_bytes({.version = 1})), HasSubstr("version 1, with lengths of 32 bits"));
  EXPECT_THAT(error_of(gguf_bytes({.version = 4})), HasSubstr("version 4, versions 2 and 3"));
  EXPECT_THAT(error_of(gguf_bytes({.version = 0x03000000})), HasSubstr("big-endian"));
  EXPECT_EQ(error_of(gguf_bytes({.version = 2})), "accepted");
}

TEST_F(Gguf, G03_counts_that_no_file_could_hold) {
  EXPECT_THAT(error_of(gguf_bytes({.tensor_count = UINT64_MAX - 1})), HasSubstr("byte 8: 18446744073709551614 tensors"));
  EXPECT_THAT(error_of(gguf_bytes({.key_count = UINT64_MAX - 1})), HasSubstr("byte 16: 18446744073709551614 keys"));
  EXPECT_THAT(error_of(gguf_bytes({.tensor_count = 2, .padded = false, .data = std::string(47, '\0')})),
              HasSubstr("2 tensors, but 47 bytes"));
  EXPECT_THAT(error_of(gguf_bytes({.key_count = 2, .padded = false, .data = std::string(25, '\0')})), HasSubstr("2 keys, but 25 bytes"));
}

TEST_F(Gguf, G04_keys) {
  EXPECT_THAT(with_key(u64(UINT64_MAX) + "abcdefghijkl"), HasSubstr("a key of 18446744073709551615 bytes"));
  EXPECT_THAT(with_key(u64(65536) + std::string(70000, 'a')), HasSubstr("a key of 65536 bytes, at most 65535"));
  EXPECT_THAT(with_key(u64(60000) + std::string(100, 'a')), HasSubstr("a key takes 60000 bytes, but"));
  EXPECT_THAT(with_key(key_u32("", 1)), HasSubstr("an empty key"));
  EXPECT_THAT(with_key(key_u32("caf\xc3\xa9", 1)), HasSubstr("not plain ASCII"));
  EXPECT_THAT(with_key(key_u32(std::string("a\0b", 3), 1)), HasSubstr("not plain ASCII"));
  EXPECT_EQ(with_key(key_u32(std::string(65535, 'a'), 1)), "accepted");
}

TEST_F(Gguf, G05_key_given_twice) {
  EXPECT_THAT(error_of(gguf_bytes({.keys = {key_u32("a", 1), key_u32("b", 1), key_u32("a", 2)}})),
              HasSubstr("the key \"a\" is given twice"));
}

TEST_F(Gguf, G06_unknown_value_types) {
  EXPECT_THAT(with_key(key_value("a", 13, u64(0))), HasSubstr("a value of type 13"));
  EXPECT_THAT(with_key(key_value("a", 0xFFFFFFFFU, u64(0))), HasSubstr("a value of type -1"));
  EXPECT_THAT(with_key(key_value("a", 9, u32(13) + u64(0))), HasSubstr("a value of type 13"));
}

TEST_F(Gguf, G07_bools) {
  EXPECT_THAT(with_key(key_value("a", 7, "\x02")), HasSubstr("a bool of 2"));
  EXPECT_THAT(with_key(key_value("a", 9, u32(7) + u64(3) + std::string("\x01\x00\x07", 3))), HasSubstr("a bool of 7"));
  EXPECT_EQ(with_key(key_value("a", 7, "\x01")), "accepted");
}

TEST_F(Gguf, G08_string_longer_than_the_file) {
  EXPECT_THAT(with_key(key_value("a", 8, u64(1000) + "short")), HasSubstr("a text takes 1000 bytes, but"));
  EXPECT_THAT(with_key(key_value("a", 8, u64(UINT64_MAX) + "short")), HasSubstr("a text takes 18446744073709551615 bytes"));
  EXPECT_THAT(with_key(key_value("a", 9, u32(8) + u64(1) + u64(1000))), HasSubstr("a text takes 1000 bytes, but"));
}

TEST_F(Gguf, G09_array_longer_than_the_file) {
  EXPECT_THAT(with_key(key_value("a", 9, u32(10) + u64(std::uint64_t{1} << 61))), HasSubstr("an array of 2305843009213693952 u64, but"));
  EXPECT_THAT(with_key(key_value("a", 9, u32(0) + u64(1000))), HasSubstr("an array of 1000 u8, but"));
  EXPECT_THAT(with_key(key_value("a", 9, u32(8) + u64(UINT64_MAX))), HasSubstr("an array of 18446744073709551615 string"));
}

TEST_F(Gguf, G10_nested_arrays) {
  std::string nested = u32(0) + u64(0);
  for (int i = 1; i < 4; ++i) nested = u32(9) + u64(1) + nested;
  EXPECT_EQ(with_key(key_value("a", 9, nested)), "accepted");
  EXPECT_THAT(with_key(key_value("a", 9, u32(9) + u64(1) + nested)), HasSubstr("arrays nested deeper than 4"));
}

TEST_F(Gguf, G11_values_of_another_type) {
  const auto header = read(gguf_bytes({.keys = {key_value("n", 8, text("seven")), key_u32("s", 1), key_value("i", 5, u32(0xFFFFFFFFU))}}));
  ASSERT_TRUE(header);
  EXPECT_THAT(header->count("n", 0, "m.gguf").error().message, HasSubstr("the key \"n\" is a string, must be a whole number"));
  EXPECT_THAT(header->count("i", 0, "m.gguf").error().message, HasSubstr("is a i32"));
  EXPECT_THAT(header->text("s", "", "m.gguf").error().message, HasSubstr("the key \"s\" is a u32, must be a string"));
  EXPECT_EQ(*header->count("s", 0, "m.gguf"), 1U);
  EXPECT_EQ(*header->count("absent", 5, "m.gguf"), 5U);
}

TEST_F(Gguf, G12_alignment) {
  EXPECT_THAT(with_key(key_value("general.alignment", 10, u64(32))), HasSubstr("general.alignment is a u64, must be a u32"));
  for (const std::uint32_t bad : {0U, 4U, 13U, 24U, 1U << 31, 131072U}) {
    EXPECT_THAT(with_key(key_u32("general.alignment", bad)),
                HasSubstr("general.alignment is " + std::to_string(bad) + ", must be a power of two"));
  }
  for (const std::uint32_t good : {8U, 64U, 65536U}) EXPECT_EQ(with_key(key_u32("general.alignment", good)), "accepted");
}

TEST_F(Gguf, G13_tensor_names) {
  EXPECT_THAT(with_tensor({.name = std::string(65, 'n')}), HasSubstr("a tensor's name of 65 bytes, at most 64"));
  EXPECT_THAT(with_tensor({.name = std::string("a\0b", 3)}), HasSubstr("holds a zero byte"));
  const std::string twice = error_of(gguf_bytes({.tensors = {tensor_info({}), tensor_info({.offset = 32})}, .data = kData + kData}));
  EXPECT_THAT(twice, HasSubstr("tensor \"t\": is given twice"));
  EXPECT_EQ(with_tensor({.name = std::string(64, 'n')}), "accepted");
}

TEST_F(Gguf, G14_dimensions) {
  EXPECT_EQ(with_tensor({.dims = {}}, std::string(4, 'x')), "accepted");
  EXPECT_THAT(with_tensor({.dims = {1, 1, 1, 1, 8}}), HasSubstr("5 dimensions, at most 4"));
  std::string many = text("t") + u32(1000000) + std::string(64, '\0');
  EXPECT_THAT(error_of(gguf_bytes({.tensors = {many}, .data = kData})), HasSubstr("1000000 dimensions"));
}

TEST_F(Gguf, G15_products_that_overflow) {
  EXPECT_THAT(with_tensor({.dims = {std::uint64_t{1} << 63}}), HasSubstr("a dimension of -9223372036854775808"));
  EXPECT_THAT(with_tensor({.dims = {4194305, 4194305, 211106198978564}}), HasSubstr("takes more bytes than the file has"));
  EXPECT_THAT(with_tensor({.dims = {0x7FFFFFFFFFFFFFC0U}}), HasSubstr("no file is that large"));
  EXPECT_THAT(with_tensor({.dims = {4 * std::uint64_t{0x7FFFFFFF}, 4 * std::uint64_t{0x7FFFFFFF}}}),
              HasSubstr("takes more bytes than the file has"));
  // 2^32 * 2^32 is 0 in 64 bits
  EXPECT_THAT(with_tensor({.dims = {std::uint64_t{1} << 32, std::uint64_t{1} << 32}}), HasSubstr("takes more bytes than the file has"));
  EXPECT_THAT(with_tensor({.dims = {std::uint64_t{1} << 40, std::uint64_t{1} << 20}}), HasSubstr("takes more bytes than the file has"));
}

TEST_F(Gguf, G16_zero_dimension) {
  const auto header = read(gguf_bytes({.tensors = {tensor_info({.dims = {0, 4}}), tensor_info({.name = "q", .dims = {0}, .type = 12})}}));
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].bytes, 0U);
}

TEST_F(Gguf, G17_quantised_rows) {
  EXPECT_THAT(with_tensor({.dims = {33}, .type = 2}), HasSubstr("rows of 33 numbers are no whole blocks of Q4_0"));
  EXPECT_THAT(with_tensor({.dims = {32, 8}, .type = 12}), HasSubstr("rows of 32 numbers are no whole blocks of Q4_K"));
  EXPECT_THAT(with_tensor({.dims = {std::uint64_t{1} << 60}, .type = 2}), HasSubstr("no file is that large"));
  EXPECT_THAT(with_tensor({.dims = {std::uint64_t{1} << 47, 1 << 14}, .type = 2}), HasSubstr("takes more bytes than the file has"));
  EXPECT_EQ(with_tensor({.dims = {32}, .type = 2}, std::string(18, 'x')), "accepted");
}

TEST_F(Gguf, G18_types_given_up) {
  for (const std::uint32_t type : {4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U, 40U, 1000U, 0xFFFFFFFFU})
    EXPECT_THAT(with_tensor({.type = type}), HasSubstr("none of ggml's")) << type;
}

TEST_F(Gguf, G19_offsets) {
  EXPECT_THAT(with_tensor({.offset = 1}), HasSubstr("no multiple of the alignment"));
  EXPECT_THAT(with_tensor({.offset = 32}, kData + kData), HasSubstr("leaves a hole"));
  EXPECT_THAT(with_tensor({.offset = UINT64_MAX - 31}), HasSubstr("leaves a hole"));
  const auto two = [&](std::uint64_t first, std::uint64_t second) {
    return error_of(
        gguf_bytes({.tensors = {tensor_info({.offset = first}), tensor_info({.name = "u", .offset = second})}, .data = kData + kData}));
  };
  EXPECT_EQ(two(0, 32), "accepted");
  EXPECT_THAT(two(0, 0), HasSubstr("lies before 32"));
  EXPECT_THAT(two(32, 0), HasSubstr("leaves a hole"));
  EXPECT_THAT(error_of(gguf_bytes({.tensors = {tensor_info({}), tensor_info({.name = "u", .offset = 32})}, .data = kData})),
              HasSubstr("truncated"));
}

TEST_F(Gguf, G20_one_byte_too_few) {
  EXPECT_THAT(with_tensor({}, kData.substr(1)), HasSubstr("truncated: needs 32 bytes"));
  const std::string whole = gguf_bytes({.keys = {key_value("a", 8, text("value")), key_value("b", 9, u32(8) + u64(1) + text("x"))},
                                        .tensors = {tensor_info({})},
                                        .data = kData});
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_NE(error_of(whole.substr(0, n)), "accepted") << n;
  EXPECT_EQ(error_of(whole), "accepted");
}

TEST_F(Gguf, G21_data_behind_the_end) {
  const std::string bytes = gguf_bytes({.tensors = {tensor_info({})}, .padded = false});
  ASSERT_NE(bytes.size() % 32, 0U);
  EXPECT_THAT(error_of(bytes), HasSubstr("the data begin at byte"));
}

TEST_F(Gguf, G22_trailing_bytes_are_warned_about) {
  const auto header = read(gguf_bytes({.tensors = {tensor_info({})}, .data = kData + "more"}));
  ASSERT_TRUE(header);
  EXPECT_THAT(header->warnings, ElementsAre(HasSubstr("4 bytes after the last tensor")));
}

class GgufSplit : public Gguf {
 protected:
  void part(const std::string& name, std::uint16_t no, std::uint16_t count, const std::string& tensor) {
    const auto u16 = [](std::uint16_t x) { return raw(x); };
    (void)scratch_.put(name, gguf_bytes({.keys = {key_value("split.no", 2, u16(no)), key_value("split.count", 2, u16(count))},
                                         .tensors = {tensor_info({.name = tensor})},
                                         .data = kData}));
  }
  std::string opened(const std::string& name) {
    const auto files = CheckpointFiles::open(scratch_.path(name));
    return files ? std::to_string(files->tensors().size()) + " tensors" : files.error().message;
  }
};

TEST_F(GgufSplit, G23_split_files) {
  const std::string one = "m-00001-of-00002.gguf", two = "m-00002-of-00002.gguf";
  part(one, 0, 2, "a");
  EXPECT_THAT(opened(one), HasSubstr("00002-of-00002.gguf: cannot open"));
  part(two, 1, 2, "b");
  EXPECT_EQ(opened(one), "2 tensors");
  EXPECT_THAT(opened(two), HasSubstr("one part of 2; the first part is called ...-00001-of-00002.gguf"));
  part(two, 1, 2, "a");
  EXPECT_THAT(opened(one), HasSubstr("tensor \"a\" is in"));
  part(two, 0, 2, "b");
  EXPECT_THAT(opened(one), HasSubstr("says it is part 1 of 2, its name says 2 of 2"));
  part(two, 1, 3, "b");
  EXPECT_THAT(opened(one), HasSubstr("says it is part 2 of 3"));
  part("n-00001-of-65535.gguf", 0, 65535, "a");
  EXPECT_THAT(opened("n-00001-of-65535.gguf"), HasSubstr("split.count is 65535, at most 10000"));
  part("renamed.gguf", 0, 2, "a");
  EXPECT_THAT(opened("renamed.gguf"), HasSubstr("the first part is called"));
  part(one, 1, 2, "a");
  part(two, 1, 2, "b");
  EXPECT_THAT(opened(one), HasSubstr("says it is part 2 of 2, its name says 1 of 2"));
}

}  // namespace
}  // namespace stepzero
