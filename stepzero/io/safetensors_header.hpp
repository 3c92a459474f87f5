#pragma once
// The JSON of a safetensors file, checked to the last byte. Internal to io/.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/io/safetensors.hpp"

namespace stepzero::safetensors {

constexpr std::uint64_t kLengthBytes = 8;               // of the number the file begins with
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as the reference reader
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kMaxRank = 64;
constexpr std::uint64_t kMaxDimension = (std::uint64_t{1} << 48) - 1;
constexpr std::string_view kMetadataKey = "__metadata__";

struct Header {
  std::vector<TensorInfo> tensors;  // sorted by name
  std::map<std::string, std::string> metadata;
  std::vector<std::string> warnings;
};

// `text` stands behind the length in the named file, `data_bytes` follow it.
Expected<Header> parse_header(std::string_view text, std::string_view file_name, std::uint64_t data_bytes, bool lenient);

std::optional<DType> find_dtype(std::string_view name);
std::string known_dtypes();

// Bits of a tensor of this shape; nothing when the number does not fit. A zero anywhere makes it zero, in any order.
std::optional<std::uint64_t> bits_of(const std::vector<std::uint64_t>& shape, DType dtype);

}  // namespace stepzero::safetensors
