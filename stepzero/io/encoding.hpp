#pragma once
// How numbers lie in a file: blocks of one or more, each of so many bits. Those of safetensors and of GGUF.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "stepzero/io/safetensors.hpp"

namespace stepzero {

struct Encoding {
  enum class Kind : std::uint8_t { other, f64, f32, f16, bf16, q8_0, q4_0, q4_k, q6_k };

  Kind kind = Kind::other;  // other: named, not read
  std::string_view name = {};
  std::uint32_t elements = 1;  // in a block
  std::uint32_t bits = 8;      // of a block

  [[nodiscard]] bool readable() const { return kind != Kind::other; }
  [[nodiscard]] bool quantised() const { return kind >= Kind::q8_0; }
  [[nodiscard]] std::uint32_t block_bytes() const { return bits / 8; }  // of a readable one
  // Of whole blocks.
  [[nodiscard]] std::uint64_t bytes_of(std::uint64_t count) const { return count / elements * bits / 8; }
};

Encoding encoding_of(DType dtype);

// ggml's number of a type; nothing for one that is not, or no longer, in use.
std::optional<Encoding> ggml_encoding(std::uint32_t type);

// Whole blocks to floats; doubles are rounded. `bytes` is what `out` takes.
void decode(const Encoding& encoding, const std::byte* bytes, std::span<float> out);

// The product, where it fits; a zero anywhere makes it zero, in any order.
std::optional<std::uint64_t> element_count(const std::vector<std::uint64_t>& shape);

}  // namespace stepzero
