#include "stepzero/io/encoding.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "stepzero/core/half.hpp"

namespace stepzero {
namespace {

using Kind = Encoding::Kind;

struct GgmlType {
  std::uint32_t type;
  Encoding encoding;
};

// Numbers that are missing were given up by ggml.
constexpr std::array kGgmlTypes = std::to_array<GgmlType>({
    {0, {Kind::f32, "F32", 1, 32}},           {1, {Kind::f16, "F16", 1, 16}},           {2, {Kind::q4_0, "Q4_0", 32, 144}},
    {3, {Kind::other, "Q4_1", 32, 160}},      {6, {Kind::other, "Q5_0", 32, 176}},      {7, {Kind::other, "Q5_1", 32, 192}},
    {8, {Kind::q8_0, "Q8_0", 32, 272}},       {9, {Kind::other, "Q8_1", 32, 288}},      {10, {Kind::other, "Q2_K", 256, 672}},
    {11, {Kind::other, "Q3_K", 256, 880}},    {12, {Kind::q4_k, "Q4_K", 256, 1152}},    {13, {Kind::other, "Q5_K", 256, 1408}},
    {14, {Kind::q6_k, "Q6_K", 256, 1680}},    {15, {Kind::other, "Q8_K", 256, 2336}},   {16, {Kind::other, "IQ2_XXS", 256, 528}},
    {17, {Kind::other, "IQ2_XS", 256, 592}},  {18, {Kind::other, "IQ3_XXS", 256, 784}}, {19, {Kind::other, "IQ1_S", 256, 400}},
    {20, {Kind::other, "IQ4_NL", 32, 144}},   {21, {Kind::other, "IQ3_S", 256, 880}},   {22, {Kind::other, "IQ2_S", 256, 656}},
    {23, {Kind::other, "IQ4_XS", 256, 1088}}, {24, {Kind::other, "I8", 1, 8}},          {25, {Kind::other, "I16", 1, 16}},
    {26, {Kind::other, "I32", 1, 32}},        {27, {Kind::other, "I64", 1, 64}},        {28, {Kind::f64, "F64", 1, 64}},
    {29, {Kind::other, "IQ1_M", 256, 448}},   {30, {Kind::bf16, "BF16", 1, 16}},        {34, {Kind::other, "TQ1_0", 256, 432}},
    {35, {Kind::other, "TQ2_0", 256, 528}},   {39, {Kind::other, "MXFP4", 32, 136}},
});

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float half_at(const std::byte* from) { return half_to_float(load<std::uint16_t>(from)); }
unsigned byte_at(const std::byte* from) { return std::to_integer<unsigned>(*from); }
float signed_at(const std::byte* from) { return static_cast<float>(load<std::int8_t>(from)); }
float level(unsigned stored, int zero) { return static_cast<float>(static_cast<int>(stored) - zero); }

// A scale and 32 signed bytes.
void block_q8_0(const std::byte* block, float* out) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = scale * signed_at(block + 2 + i);
}

// A scale and 32 numbers of 4 bits, 8 meaning zero: the lower halves of 16 bytes, then the upper ones.
void block_q4_0(const std::byte* block, float* out) {
  const float scale = half_at(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * level(byte_at(block + 2 + i) & 15U, 8);
    out[i + 16] = scale * level(byte_at(block + 2 + i) >> 4, 8);
  }
}

// Eight groups of 32 numbers of 4 bits, each with a scale and a minimum of 6 bits, packed in 12 bytes.
void block_q4_k(const std::byte* block, float* out) {
  const float scale = half_at(block);
  const float minimum = half_at(block + 2);
  const auto packed = [&](int i) { return byte_at(block + 4 + i); };
  for (int group = 0; group < 8; ++group) {
    const unsigned s = group < 4 ? packed(group) & 63U : (packed(group + 4) & 15U) | packed(group - 4) >> 6 << 4;
    const unsigned m = group < 4 ? packed(group + 4) & 63U : packed(group + 4) >> 4 | packed(group) >> 6 << 4;
    const std::byte* const from = block + 16 + 32 * (group / 2);
    for (int i = 0; i < 32; ++i) {
      const unsigned nibble = group % 2 == 0 ? byte_at(from + i) & 15U : byte_at(from + i) >> 4;
      out[32 * group + i] = scale * static_cast<float>(s) * static_cast<float>(nibble) - minimum * static_cast<float>(m);
    }
  }
}

// Two halves of 128 numbers of 6 bits: 4 low bits in 64 bytes, 2 high bits in 32; a signed scale for each 16.
void block_q6_k(const std::byte* block, float* out) {
  const float scale = half_at(block + 208);
  for (int half = 0; half < 2; ++half) {
    const std::byte *const low = block + 64 * half, *const high = block + 128 + 32 * half, *const scales = block + 192 + 8 * half;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        const unsigned bits = byte_at(low + i + 32 * (quarter % 2));
        const unsigned nibble = quarter < 2 ? bits & 15U : bits >> 4;
        const unsigned top = byte_at(high + i) >> (2 * quarter) & 3U;
        out[128 * half + 32 * quarter + i] = scale * signed_at(scales + 2 * quarter + i / 16) * level(nibble | top << 4, 32);
      }
    }
  }
}

template <class Block>
void each_block(const Encoding& encoding, const std::byte* bytes, std::span<float> out, Block block) {
  for (std::size_t at = 0; at < out.size(); at += encoding.elements, bytes += encoding.block_bytes()) block(bytes, out.data() + at);
}

}  // namespace

Encoding encoding_of(DType dtype) {
  const Kind kind = dtype == DType::F32    ? Kind::f32
                    : dtype == DType::F16  ? Kind::f16
                    : dtype == DType::BF16 ? Kind::bf16
                    : dtype == DType::F64  ? Kind::f64
                                           : Kind::other;
  return {kind, dtype_name(dtype), 1, static_cast<std::uint32_t>(dtype_bits(dtype))};
}

std::optional<Encoding> ggml_encoding(std::uint32_t type) {
  const auto found = std::ranges::find(kGgmlTypes, type, &GgmlType::type);
  return found == kGgmlTypes.end() ? std::nullopt : std::optional(found->encoding);
}

void decode(const Encoding& encoding, const std::byte* bytes, std::span<float> out) {
  const auto one_by_one = [&]<class Stored>(Stored, auto widen) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = widen(load<Stored>(bytes + i * sizeof(Stored)));
  };
  switch (encoding.kind) {
    case Kind::f32:
      std::memcpy(out.data(), bytes, out.size_bytes());
      break;
    case Kind::f64:
      one_by_one(double{}, [](double x) { return static_cast<float>(x); });
      break;
    case Kind::f16:
      one_by_one(std::uint16_t{}, half_to_float);
      break;
    case Kind::bf16:
      one_by_one(std::uint16_t{}, bfloat16_to_float);
      break;
    case Kind::q8_0:
      each_block(encoding, bytes, out, block_q8_0);
      break;
    case Kind::q4_0:
      each_block(encoding, bytes, out, block_q4_0);
      break;
    case Kind::q4_k:
      each_block(encoding, bytes, out, block_q4_k);
      break;
    case Kind::q6_k:
      each_block(encoding, bytes, out, block_q6_k);
      break;
    case Kind::other:
      std::ranges::fill(out, 0.0F);
      break;
  }
}

std::optional<std::uint64_t> element_count(const std::vector<std::uint64_t>& shape) {
  if (std::ranges::find(shape, 0U) != shape.end()) return 0;
  std::uint64_t count = 1;
  for (const std::uint64_t size : shape)
    if (__builtin_mul_overflow(count, size, &count)) return std::nullopt;
  return count;
}

}  // namespace stepzero
