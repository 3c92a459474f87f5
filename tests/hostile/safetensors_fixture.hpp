#pragma once
// What the tests of hostile safetensors files share: entries, and the error a file gives.
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/io/safetensors.hpp"
#include "tests/hostile/scratch.hpp"

namespace stepzero::testing {

inline const std::string kFour = "\x01\x02\x03\x04";

inline std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& range) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype, shape, range);
}
inline std::string bytes_entry(const std::string& name, int begin, int end) {
  return entry(name, "U8", std::to_string(end - begin), fmt::format("{},{}", begin, end));
}

class SafetensorsTest : public ::testing::Test {
 protected:
  // The error the file gives; "accepted" when it gives none. Each must name the file and hint at what to do.
  std::string error_of(const std::string& bytes, bool lenient = false) {
    const auto opened = SafetensorsFile::open(scratch_.put("model.safetensors", bytes), lenient);
    if (opened) return "accepted";
    EXPECT_THAT(opened.error().message, ::testing::HasSubstr("model.safetensors: byte "));
    EXPECT_FALSE(opened.error().hint.empty()) << opened.error().message;
    hint_ = opened.error().hint;
    return opened.error().message;
  }
  std::string error_of_header(const std::string& header, const std::string& data = {}) { return error_of(safetensors_bytes(header, data)); }
  SafetensorsFile accepted(const std::string& header, const std::string& data = {}, bool lenient = false) {
    auto opened = SafetensorsFile::open(scratch_.put("model.safetensors", safetensors_bytes(header, data)), lenient);
    if (!opened) throw std::runtime_error(opened.error().message);
    return std::move(*opened);
  }

  Scratch scratch_;
  std::string hint_;
};

}  // namespace stepzero::testing
