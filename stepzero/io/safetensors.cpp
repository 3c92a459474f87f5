#include "stepzero/io/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/half.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/recognise.hpp"
#include "stepzero/io/safetensors_header.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers in the file are read as they stand");

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr std::array kDTypes = std::to_array<DTypeRow>({
    {DType::Bool, "BOOL", 8},
    {DType::F4, "F4", 4},
    {DType::F6_E2M3, "F6_E2M3", 6},
    {DType::F6_E3M2, "F6_E3M2", 6},
    {DType::U8, "U8", 8},
    {DType::I8, "I8", 8},
    {DType::F8_E5M2, "F8_E5M2", 8},
    {DType::F8_E4M3, "F8_E4M3", 8},
    {DType::F8_E8M0, "F8_E8M0", 8},
    {DType::F8_E4M3FNUZ, "F8_E4M3FNUZ", 8},
    {DType::F8_E5M2FNUZ, "F8_E5M2FNUZ", 8},
    {DType::I16, "I16", 16},
    {DType::U16, "U16", 16},
    {DType::F16, "F16", 16},
    {DType::BF16, "BF16", 16},
    {DType::I32, "I32", 32},
    {DType::U32, "U32", 32},
    {DType::F32, "F32", 32},
    {DType::C64, "C64", 64},
    {DType::F64, "F64", 64},
    {DType::I64, "I64", 64},
    {DType::U64, "U64", 64},
});

const DTypeRow& row_of(DType dtype) { return *std::ranges::find(kDTypes, dtype, &DTypeRow::dtype); }

// The length of the header, bounded by the file before anything is made of it.
Expected<std::uint64_t> header_length(const InputFile& file) {
  using safetensors::kLengthBytes, safetensors::kMaxHeaderBytes;
  if (rejects("safetensors.too-small", file.size() < kLengthBytes)) {
    return fail(fmt::format("{}: byte 0: header too small: the file has {} bytes, the header's length alone takes 8", show(file.path()),
                            file.size()),
                "the file is empty or was not written completely");
  }
  std::array<char, kMagicBytes> head = {};
  const auto begin = std::span(head).first(std::min<std::uint64_t>(head.size(), file.size()));
  if (auto read = file.read(0, std::as_writable_bytes(begin)); !read) return std::unexpected(std::move(read.error()));
  std::uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof length);
  const std::uint64_t left = file.size() - kLengthBytes;
  const bool empty = rejects("safetensors.empty-header", length == 0);
  const bool too_long = rejects("safetensors.header-cap", length > kMaxHeaderBytes);
  if (!empty && !too_long && !rejects("safetensors.header-in-file", length > left)) return length;
  if (const FileKind* it = recognise({head.data(), begin.size()}))
    return fail(fmt::format("{}: byte 0: this is {}", show(file.path()), it->what), it->hint);
  const std::string said = fmt::format("{}: byte 0: header length {}", show(file.path()), length);
  if (empty) return fail(said + ", an empty header holds not even {}", "the file is damaged or not a safetensors file");
  if (too_long)
    return fail(fmt::format("{}, at most {} is allowed", said, kMaxHeaderBytes), "the file is damaged or not a safetensors file");
  return fail(fmt::format("{}, but {} bytes follow", said, left), "the file is incomplete or not a safetensors file");
}

template <class T, class Stored, class Convert>
Expected<void> read_converted(const InputFile& file, std::uint64_t offset, std::span<T> out, Convert convert) {
  constexpr std::size_t block = std::size_t{1} << 14;
  const auto buffer = std::make_unique_for_overwrite<Stored[]>(std::min(out.size(), block));
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), block);
    const std::span<Stored> stored(buffer.get(), count);
    if (auto read = file.read(offset, std::as_writable_bytes(stored)); !read) return read;
    std::ranges::transform(stored, out.begin(), convert);
    out = out.subspan(count);
    offset += stored.size_bytes();
  }
  return {};
}

}  // namespace

namespace safetensors {

std::optional<DType> find_dtype(std::string_view name) {
  const auto found = std::ranges::find(kDTypes, name, &DTypeRow::name);
  return found == kDTypes.end() ? std::nullopt : std::optional(found->dtype);
}

std::string known_dtypes() {
  std::vector<std::string_view> names;
  for (const DTypeRow& row : kDTypes) names.push_back(row.name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::optional<std::uint64_t> bits_of(const std::vector<std::uint64_t>& shape, DType dtype) {
  if (std::ranges::find(shape, 0U) != shape.end()) return 0;
  auto bits = static_cast<std::uint64_t>(dtype_bits(dtype));
  for (const std::uint64_t size : shape)
    if (__builtin_mul_overflow(bits, size, &bits)) return std::nullopt;
  return bits;
}

}  // namespace safetensors

int dtype_bits(DType dtype) { return row_of(dtype).bits; }
std::string_view dtype_name(DType dtype) { return row_of(dtype).name; }

std::uint64_t TensorInfo::elements() const {
  return safetensors::bits_of(shape, dtype).value_or(0) / static_cast<std::uint64_t>(dtype_bits(dtype));
}

Expected<SafetensorsFile> SafetensorsFile::open(const std::string& path, bool lenient) {
  auto file = InputFile::open(path);
  if (!file) return std::unexpected(std::move(file.error()));
  const auto length = header_length(*file);
  if (!length) return std::unexpected(length.error());
  SafetensorsFile opened(std::move(*file));
  std::string text(*length, '\0');
  auto read = opened.file_.read(safetensors::kLengthBytes, std::as_writable_bytes(std::span(text)));
  if (!read) return std::unexpected(std::move(read.error()));
  opened.data_start_ = safetensors::kLengthBytes + *length;
  auto header = safetensors::parse_header(text, path, opened.file_.size() - opened.data_start_, lenient);
  if (!header) return std::unexpected(std::move(header.error()));
  opened.tensors_ = std::move(header->tensors);
  opened.metadata_ = std::move(header->metadata);
  opened.warnings_ = std::move(header->warnings);
  return opened;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &TensorInfo::name);
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

template <class T>
Expected<void> SafetensorsFile::read_as(const TensorInfo& tensor, std::uint64_t first, std::span<T> out) const {
  const auto refuse = [&](const std::string& what, std::string hint) {
    return fail(fmt::format("{}: tensor \"{}\": {}", show(path()), show(tensor.name), what), std::move(hint));
  };
  const std::uint64_t elements = tensor.elements();
  if (first > elements || out.size() > elements - first)
    return refuse(fmt::format("{} elements from {} on are wanted, it has {}", out.size(), first, elements), "read within the shape");
  const std::uint64_t offset = data_start_ + tensor.begin + first * static_cast<std::uint64_t>(dtype_bits(tensor.dtype)) / 8;
  const auto widen = [](auto value) { return static_cast<T>(value); };
  switch (tensor.dtype) {
    case DType::F32:
      if constexpr (std::is_same_v<T, float>) return file_.read(offset, std::as_writable_bytes(out));
      return read_converted<T, float>(file_, offset, out, widen);
    case DType::F64:
      if constexpr (std::is_same_v<T, double>) return file_.read(offset, std::as_writable_bytes(out));
      return read_converted<T, double>(file_, offset, out, widen);
    case DType::F16:
      return read_converted<T, std::uint16_t>(file_, offset, out, [](std::uint16_t h) { return static_cast<T>(half_to_float(h)); });
    case DType::BF16:
      return read_converted<T, std::uint16_t>(file_, offset, out, [](std::uint16_t b) { return static_cast<T>(bfloat16_to_float(b)); });
    default:
      break;
  }
  return refuse(fmt::format("dtype {} cannot be read as numbers", dtype_name(tensor.dtype)), "F32, F16, BF16 and F64 can be");
}

Expected<void> SafetensorsFile::read_f32(const TensorInfo& tensor, std::uint64_t first, std::span<float> out) const {
  return read_as(tensor, first, out);
}

Expected<void> SafetensorsFile::read_f64(const TensorInfo& tensor, std::uint64_t first, std::span<double> out) const {
  return read_as(tensor, first, out);
}

}  // namespace stepzero
