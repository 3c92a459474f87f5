// The S rows of the hostile-input checklist, one test a row, its bytes made here: the length, the JSON and one entry of
// it.
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
using testing::length_bytes;
using testing::safetensors_bytes;

class Safetensors : public testing::SafetensorsTest {};

TEST_F(Safetensors, S01_fewer_than_eight_bytes) {
  for (std::size_t size = 0; size < 8; ++size) EXPECT_THAT(error_of(std::string(size, '\x01')), HasSubstr("header too small"));
}

TEST_F(Safetensors, S02_header_longer_than_the_file) {
  EXPECT_THAT(error_of(length_bytes(3) + "{}"), HasSubstr("header length 3, but 2 bytes follow"));
  EXPECT_THAT(error_of(length_bytes(1) + ""), HasSubstr("but 0 bytes follow"));
}

TEST_F(Safetensors, S03_header_longer_than_any_may_be) {
  EXPECT_THAT(error_of(length_bytes(~std::uint64_t{0}) + "{}"), HasSubstr("header length 18446744073709551615, at most 100000000"));
  // A sparse file that really has the bytes: only the cap stands between it and the memory.
  const std::string path = scratch_.put("model.safetensors", length_bytes(100'000'001));
  ASSERT_EQ(::truncate(path.c_str(), 200'000'000), 0);
  const auto opened = SafetensorsFile::open(path);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("header length 100000001, at most 100000000"));
}

TEST_F(Safetensors, S04_empty_header) { EXPECT_THAT(error_of(length_bytes(0) + kFour), HasSubstr("an empty header")); }

TEST_F(Safetensors, S05_not_utf8) {
  for (const std::string bad : {"\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82"})
    EXPECT_THAT(error_of_header("{\"" + bad + "\":0}"), HasSubstr("byte 10: not UTF-8"));
  EXPECT_THAT(error_of_header("\xEF\xBB\xBF{}"), HasSubstr("byte 8: a byte order mark"));
  EXPECT_THAT(error_of_header(R"({"\ud800":0})"), HasSubstr("surrogate"));
  EXPECT_THAT(error_of_header(R"({"\udc00":0})"), HasSubstr("surrogate"));
}

TEST_F(Safetensors, S06_first_byte_is_no_brace) {
  for (const std::string white : {" ", "\t", "\r", "\n"}) {
    EXPECT_THAT(error_of_header(white + "{}"), HasSubstr("byte 8: white space before"));
    EXPECT_THAT(hint_, HasSubstr("--lenient"));
    EXPECT_NO_THROW(accepted(white + "{}", "", true));
  }
  EXPECT_THAT(error_of(safetensors_bytes("x{}"), true), HasSubstr("byte 8: a value must stand here, found `x{}`"));
}

TEST_F(Safetensors, S07_bytes_after_the_json) {
  EXPECT_THAT(accepted("{}      ").warnings(), IsEmpty());
  for (const std::string white : {"\t", "\r", "\n"})
    EXPECT_THAT(accepted("{} " + white).warnings(), ElementsAre(HasSubstr("byte 11: the header is padded")));
  EXPECT_THAT(error_of_header("{} x"), HasSubstr("byte 11:"));
  EXPECT_THAT(error_of_header("{}{}"), HasSubstr("byte 10:"));
  EXPECT_THAT(error_of_header("{}" + std::string(6, '\0')), HasSubstr("byte 10: a zero byte"));
  EXPECT_THAT(error_of_header("{}" + std::string(1, '\0') + "smuggled"), HasSubstr("byte 10: a zero byte"));
}

TEST_F(Safetensors, S08_top_level_is_no_object) {
  for (const std::string text : {"[]", "[{}]", "1", "null", "\"a\"", "true"})
    EXPECT_THAT(error_of_header(text), HasSubstr("byte 8: the header must be an object, found"));
}

TEST_F(Safetensors, S09_tensor_given_twice) {
  const std::string range = bytes_entry("a", 0, 4), next = bytes_entry("a", 4, 8);
  EXPECT_THAT(error_of_header("{" + range + "," + next + "}", kFour + kFour), HasSubstr("tensor \"a\" is given twice, first at byte 9"));
  const std::string escaped = bytes_entry("\\u0061", 4, 8), other = bytes_entry("b", 8, 12);
  EXPECT_THAT(error_of_header("{" + range + "," + other + "," + escaped + "}", kFour + kFour + kFour),
              HasSubstr("tensor \"a\" is given twice"));
}

TEST_F(Safetensors, S10_field_given_twice) {
  const std::string whole = R"("dtype":"U8","shape":[4],"data_offsets":[0,4])";
  for (const std::string again : {R"("dtype":"U8")", R"("shape":[4])", R"("data_offsets":[0,4])", R"("\u0064type":"U8")"})
    EXPECT_THAT(error_of_header("{\"a\":{" + whole + "," + again + "}}", kFour), HasSubstr("is given twice"));
}

TEST_F(Safetensors, S11_field_missing_or_unknown) {
  EXPECT_THAT(error_of_header(R"({"a":{}})"), HasSubstr("tensor \"a\": dtype is missing"));
  EXPECT_THAT(error_of_header(R"({"a":{"shape":[4],"data_offsets":[0,4]}})", kFour), HasSubstr("dtype is missing"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"U8","data_offsets":[0,4]}})", kFour), HasSubstr("shape is missing"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"U8","shape":[4]}})", kFour), HasSubstr("data_offsets is missing"));
  // Whatever an unknown field holds is passed over, and what comes after it still counts.
  const auto file = accepted(R"({"a":{"x":{"dtype":["I8",{"shape":0}]},"y":3,"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", kFour);
  EXPECT_THAT(file.warnings(), ElementsAre(HasSubstr("unknown field \"x\""), HasSubstr("unknown field \"y\"")));
  EXPECT_EQ(file.tensors().at(0).dtype, DType::U8);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "\"x\":0,";
  EXPECT_EQ(accepted("{\"a\":{" + many + R"("dtype":"U8","shape":[4],"data_offsets":[0,4]}})", kFour).warnings().size(), 17U);
}

TEST_F(Safetensors, S12_unknown_dtype) {
  EXPECT_THAT(error_of_header("{" + entry("a", "f32", "1", "0,4") + "}", kFour), HasSubstr("byte 22: tensor \"a\": unknown dtype \"f32\""));
  EXPECT_THAT(hint_, HasSubstr("BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ "
                               "I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":3}})"), HasSubstr("dtype must be a text, found 3"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":["U8"]}})"), HasSubstr("dtype must be a text, found ["));
  const int sizes[] = {8, 4, 6, 6, 8, 8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64};
  for (int i = 0; i < 22; ++i) EXPECT_EQ(dtype_bits(static_cast<DType>(i)), sizes[i]) << dtype_name(static_cast<DType>(i));
}

TEST_F(Safetensors, S13_numbers_that_are_no_sizes) {
  const std::string long_number(400, '9');
  for (const std::string bad : {"-1", "1.5", "1e3", "1E0", "-0", "0.0", "18446744073709551616", "99999999999999999999999"}) {
    EXPECT_THAT(error_of_header("{" + entry("a", "U8", bad, "0,4") + "}", kFour),
                HasSubstr("a dimension must be a whole number below 2^64, found " + bad));
    EXPECT_THAT(error_of_header("{" + entry("a", "U8", "4", "0," + bad) + "}", kFour),
                HasSubstr("an offset must be a whole number below 2^64, found " + bad));
  }
  EXPECT_THAT(error_of_header("{" + entry("a", "U8", long_number, "0,4") + "}", kFour), HasSubstr("tensor \"a\": the number 999"));
  for (const std::string bad : {"\"4\"", "null", "true", "[4]", "{}"}) {
    EXPECT_THAT(error_of_header("{" + entry("a", "U8", bad, "0,4") + "}", kFour), HasSubstr("a dimension must be a whole number, found"));
    EXPECT_THAT(error_of_header("{" + entry("a", "U8", "4", "0," + bad) + "}", kFour),
                HasSubstr("an offset must be a whole number, found"));
  }
  EXPECT_THAT(error_of_header("{" + entry("a", "U8", "4", "0") + "}", kFour), HasSubstr("data_offsets has fewer than 2 numbers"));
  EXPECT_THAT(error_of_header("{" + entry("a", "U8", "4", "0,4,4") + "}", kFour), HasSubstr("data_offsets has more than 2 numbers"));
  EXPECT_THAT(error_of_header(R"({"a":{"shape":4}})"), HasSubstr("shape must be an array, found 4"));
  EXPECT_THAT(error_of_header(R"({"a":{"data_offsets":{}}})"), HasSubstr("data_offsets must be an array, found {"));
}

TEST_F(Safetensors, S14_begin_behind_end) {
  EXPECT_THAT(error_of_header("{" + entry("a", "U8", "4", "4,0") + "}", kFour),
              HasSubstr("byte 9: tensor \"a\": data_offsets begin at 4, behind their end 0"));
  // In 64 bits this range is 4 bytes long.
  EXPECT_THAT(error_of_header("{" + entry("a", "U8", "4", "18446744073709551612,0") + "}", kFour), HasSubstr("behind their end"));
}

TEST_F(Safetensors, S15_end_behind_the_data) {
  EXPECT_THAT(error_of_header("{" + bytes_entry("a", 0, 5) + "}", kFour),
              HasSubstr("tensor \"a\": truncated: need 5 bytes of data, have 4"));
  EXPECT_THAT(error_of_header("{" + entry("a", "U8", "281474976710655", "0,281474976710655") + "}", kFour),
              HasSubstr("truncated: need 281474976710655"));
}

TEST_F(Safetensors, S16_shape_and_offsets_differ) {
  EXPECT_THAT(error_of_header("{" + entry("h.0.attn", "F32", "768, 2304", "0,7077880") + "}"),
              HasSubstr("byte 9: tensor \"h.0.attn\": shape [768, 2304] needs 7077888 bytes, data_offsets give 7077880"));
  EXPECT_THAT(error_of_header("{" + entry("a", "F32", "", "0,0") + "}"), HasSubstr("shape [] needs 4 bytes, data_offsets give 0"));
  EXPECT_THAT(error_of_header("{" + entry("a", "F32", "0", "0,4") + "}", kFour), HasSubstr("shape [0] needs 0 bytes, data_offsets give 4"));
}

TEST_F(Safetensors, S17_product_overflows) {
  for (const std::string shape : {"2,18446744073709551614", "2,9223372036854775807", "0,9223372036854775808,9223372036854775808",
                                  "9223372036854775808,9223372036854775808,0", "281474976710656"})
    EXPECT_THAT(error_of_header("{" + entry("a", "U8", shape, "0,0") + "}"), HasSubstr("at most 281474976710655 is allowed")) << shape;
  // Each product is 0 or 4 in 64 bits, in bytes or in bits.
  for (const std::string shape :
       {"4294967296,4294967296", "1099511627776,1099511627776,2", "16777216,137438953472", "2,2,65536,281474976645120"})
    EXPECT_THAT(error_of_header("{" + entry("a", "U8", shape, "0,0") + "}"), HasSubstr("needs more than 2^64 bits")) << shape;
  const std::string large = "281474976710655,281474976710655";
  EXPECT_EQ(accepted("{" + entry("a", "F32", "0," + large, "0,0") + "}").tensors().at(0).elements(), 0U);
  EXPECT_EQ(accepted("{" + entry("a", "F32", large + ",0", "0,0") + "}").tensors().at(0).elements(), 0U);
}

TEST_F(Safetensors, S18_bits_that_fill_no_byte) {
  EXPECT_THAT(error_of_header("{" + entry("a", "F4", "3", "0,1") + "}", "x"), HasSubstr("needs 12 bits of F4, not whole bytes"));
  EXPECT_THAT(error_of_header("{" + entry("a", "F6_E2M3", "2", "0,1") + "}", "x"), HasSubstr("needs 12 bits of F6_E2M3"));
  EXPECT_EQ(accepted("{" + entry("a", "F6_E3M2", "4", "0,3") + "}", "xyz").tensors().at(0).elements(), 4U);
  EXPECT_EQ(accepted("{" + entry("a", "F4", "4", "0,2") + "}", "xy").tensors().at(0).elements(), 4U);
}

}  // namespace
}  // namespace stepzero
