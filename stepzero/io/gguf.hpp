#pragma once
// The GGUF format (versions 2 and 3), read strictly: every number of the file is held against the bytes that remain
// before anything is made of it.
//
//   "GGUF" | u32 version | u64 tensors | u64 keys | keys and values | tensor infos | padding | data
//
// Values of arrays are checked and passed over; what is kept is their length.
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/io/encoding.hpp"

namespace stepzero {

struct GgufValue {
  enum class Type : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

  Type type = Type::u8;
  std::variant<std::uint64_t, std::int64_t, double, std::string> value;  // of an array: its length
};
std::string_view to_string(GgufValue::Type type);

struct GgufTensor {
  std::string name;                  // any text: show() it
  std::vector<std::uint64_t> shape;  // as elsewhere: the last dimension is the one that lies side by side
  Encoding encoding;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
  std::uint64_t header_byte = 0;  // where its entry stands
};

struct GgufHeader {
  std::uint32_t version = 0;
  std::map<std::string, GgufValue> metadata;
  std::vector<GgufTensor> tensors;  // in the order of the file
  std::vector<std::string> warnings;

  // A whole number or a text that must be of its type where it is there; `fallback` where it is not.
  [[nodiscard]] Expected<std::uint64_t> count(std::string_view key, std::uint64_t fallback, std::string_view file_name) const;
  [[nodiscard]] Expected<std::string> text(std::string_view key, std::string_view fallback, std::string_view file_name) const;
};

// What the header is read from: `size` bytes, a stretch at a time.
struct ByteSource {
  std::uint64_t size = 0;
  std::function<Expected<void>(std::uint64_t offset, std::span<std::byte> out)> read;
};

Expected<GgufHeader> parse_gguf(const ByteSource& source, std::string_view file_name);

}  // namespace stepzero
