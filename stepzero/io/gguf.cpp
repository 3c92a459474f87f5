#include "stepzero/io/gguf.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/byte_cursor.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {
namespace {

using Type = GgufValue::Type;

constexpr std::uint64_t kMinKeyBytes = 13;     // an empty key's length, its type, one byte
constexpr std::uint64_t kMinTensorBytes = 24;  // an empty name's length, dimensions, type, offset
constexpr std::uint64_t kMaxKeyBytes = 65535;
constexpr std::uint64_t kMaxNameBytes = 64;
constexpr std::uint32_t kMaxDimensions = 4;
constexpr int kMaxArrayDepth = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr const char* kDamaged = "the file is damaged, cut short or made to harm";

constexpr std::array<std::uint64_t, 13> kSizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // 0: string, array
constexpr std::array<std::string_view, 13> kTypeNames = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                         "bool", "string", "array", "u64", "i64", "f64"};

class Parser {
 public:
  Parser(const ByteSource& source, std::string_view file_name) : in_(source, file_name), file_name_(file_name), size_(source.size) {}

  Expected<GgufHeader> run() {
    const bool fine = start() && counts() && keys() && find_alignment() && tensor_infos() && data();
    if (!fine) return std::unexpected(in_.take_error());
    return std::move(header_);
  }

 private:
  bool start();
  bool counts();
  bool keys();
  bool key(std::string& name);
  bool type(Type& type);
  bool value(Type type, GgufValue& value);
  bool number(Type type, GgufValue& value);
  bool array(int depth, std::uint64_t& length);
  bool text(std::string& text, const char* what);
  bool find_alignment();
  bool tensor_infos();
  bool tensor_name(std::string& name);
  bool dimensions(GgufTensor& tensor);
  bool size_of(GgufTensor& tensor);
  bool data();
  bool place(GgufTensor& tensor, std::uint64_t start, std::uint64_t& filled);
  bool refuse(std::uint64_t byte, std::string_view what, std::string hint = kDamaged) { return in_.refuse(byte, what, std::move(hint)); }
  bool refuse_tensor(const GgufTensor& t, std::string_view what, std::string hint = kDamaged) {
    return in_.refuse(t.header_byte, fmt::format("tensor \"{}\": {}", show(t.name), what), std::move(hint));
  }
  [[nodiscard]] std::uint64_t aligned(std::uint64_t at) const { return (at + alignment_ - 1) / alignment_ * alignment_; }

  ByteCursor in_;
  std::string_view file_name_;
  std::uint64_t size_;
  GgufHeader header_;
  std::uint64_t tensors_ = 0;
  std::uint64_t keys_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
};

bool Parser::start() {
  std::array<char, 4> magic = {};
  if (!in_.read(magic, "the magic")) return false;
  if (rejects("gguf.magic", std::string_view(magic.data(), 4) != "GGUF")) {
    std::string hex;
    for (const char c : magic) hex += fmt::format("{:02x} ", static_cast<unsigned char>(c));
    return refuse(0, fmt::format("the magic is {}(\"{}\"), must be 47 47 55 46 (\"GGUF\")", hex, show({magic.data(), 4})),
                  "not a GGUF file");
  }
  if (!in_.read(header_.version, "the version")) return false;
  const std::uint32_t v = header_.version;
  if (rejects("gguf.big-endian", v != 0 && (v & 0xFFFFU) == 0)) {
    return refuse(4, fmt::format("version {:#010x}: the file is big-endian", v), "convert it anew on, or for, a little-endian machine");
  }
  if (rejects("gguf.version-0", v == 0)) return refuse(4, "version 0 never was", kDamaged);
  if (rejects("gguf.version-1", v == 1))
    return refuse(4, "version 1, with lengths of 32 bits, is no longer read", "convert the model anew");
  if (rejects("gguf.version-new", v > 3)) {
    return refuse(4, fmt::format("version {}, versions 2 and 3 are known", v), "a newer program wrote it; does stepzero have an update?");
  }
  return true;
}

bool Parser::counts() {
  if (!in_.read(tensors_, "the number of tensors") || !in_.read(keys_, "the number of keys")) return false;
  const std::uint64_t left = in_.left();
  if (rejects("gguf.tensor-count", tensors_ > left / kMinTensorBytes)) {
    return refuse(8, fmt::format("{} tensors, but {} bytes follow, of which each takes {}", tensors_, left, kMinTensorBytes));
  }
  if (rejects("gguf.key-count", keys_ > left / kMinKeyBytes)) {
    return refuse(16, fmt::format("{} keys, but {} bytes follow, of which each takes {}", keys_, left, kMinKeyBytes));
  }
  return true;
}

bool Parser::keys() {
  for (std::uint64_t i = 0; i < keys_; ++i) {
    const std::uint64_t at = in_.at();
    std::string name;
    GgufValue entry;
    if (!key(name) || !type(entry.type) || !value(entry.type, entry)) return false;
    const auto [place, fresh] = header_.metadata.try_emplace(std::move(name), std::move(entry));
    if (rejects("gguf.key-twice", !fresh)) return refuse(at, fmt::format("the key \"{}\" is given twice", show(place->first)));
  }
  return true;
}

bool Parser::key(std::string& name) {
  const std::uint64_t at = in_.at();
  std::uint64_t length = 0;
  if (!in_.read(length, "the length of a key")) return false;
  if (rejects("gguf.key-length", length > kMaxKeyBytes))
    return refuse(at, fmt::format("a key of {} bytes, at most {} are allowed", length, kMaxKeyBytes));
  if (rejects("gguf.key-empty", length == 0)) return refuse(at, "an empty key");
  if (!in_.read(name, length, "a key")) return false;
  const bool plain = std::ranges::all_of(name, [](char c) { return c >= 0x20 && c < 0x7F; });
  if (rejects("gguf.key-ascii", !plain)) return refuse(at, fmt::format("the key \"{}\" is not plain ASCII", show(name)));
  return true;
}

bool Parser::type(Type& type) {
  const std::uint64_t at = in_.at();
  std::uint32_t number = 0;
  if (!in_.read(number, "the type of a value")) return false;
  if (rejects("gguf.value-type", number >= kSizes.size()))
    return refuse(at, fmt::format("a value of type {}, known are 0 to {}", static_cast<std::int32_t>(number), kSizes.size() - 1));
  type = static_cast<Type>(std::min<std::uint32_t>(number, kSizes.size() - 1));
  return true;
}

bool Parser::value(Type type, GgufValue& value) {
  if (type == Type::string) return text(value.value.emplace<std::string>(), "a text");
  if (type == Type::array) return array(1, value.value.emplace<std::uint64_t>());
  return number(type, value);
}

bool Parser::number(Type type, GgufValue& value) {
  const auto take = [&]<class Stored, class Kept>(Stored stored, Kept) {
    if (!in_.read(stored, "a value")) return false;
    value.value.emplace<Kept>(static_cast<Kept>(stored));
    return true;
  };
  const std::uint64_t at = in_.at();
  switch (type) {
    case Type::u8:
      return take(std::uint8_t{}, std::uint64_t{});
    case Type::u16:
      return take(std::uint16_t{}, std::uint64_t{});
    case Type::u32:
      return take(std::uint32_t{}, std::uint64_t{});
    case Type::u64:
      return take(std::uint64_t{}, std::uint64_t{});
    case Type::i8:
      return take(std::int8_t{}, std::int64_t{});
    case Type::i16:
      return take(std::int16_t{}, std::int64_t{});
    case Type::i32:
      return take(std::int32_t{}, std::int64_t{});
    case Type::i64:
      return take(std::int64_t{}, std::int64_t{});
    case Type::f32:
      return take(float{}, double{});
    case Type::f64:
      return take(double{}, double{});
    default:
      break;
  }
  if (!take(std::uint8_t{}, std::uint64_t{})) return false;
  if (rejects("gguf.bool", std::get<std::uint64_t>(value.value) > 1))
    return refuse(at, fmt::format("a bool of {}, must be 0 or 1", std::get<std::uint64_t>(value.value)));
  return true;
}

bool Parser::text(std::string& text, const char* what) {
  std::uint64_t length = 0;
  return in_.read(length, "the length of a text") && in_.read(text, length, what);
}

bool Parser::array(int depth, std::uint64_t& length) {
  Type of = Type::u8;
  const std::uint64_t at = in_.at();
  if (!type(of) || !in_.read(length, "the length of an array")) return false;
  if (rejects("gguf.array-depth", of == Type::array && depth >= kMaxArrayDepth))
    return refuse(at, fmt::format("arrays nested deeper than {}", kMaxArrayDepth));
  // A string or an array takes at least 8 bytes: an array is never longer than the file that holds it.
  const std::uint64_t size = std::max<std::uint64_t>(kSizes[static_cast<std::size_t>(of)], of == Type::string || of == Type::array ? 8 : 1);
  if (rejects("gguf.array-length", length > in_.left() / size)) {
    return refuse(at, fmt::format("an array of {} {}, but {} bytes follow", length, to_string(of), in_.left()));
  }
  if (of == Type::boolean) {
    for (std::uint64_t i = 0; i < length; ++i) {
      GgufValue one;
      if (!number(of, one)) return false;
    }
    return true;
  }
  if (of != Type::string && of != Type::array) return in_.skip(length * size, "the elements of an array");
  for (std::uint64_t i = 0; i < length; ++i) {
    std::uint64_t inner = 0;
    const bool fine = of == Type::array ? array(depth + 1, inner) : in_.read(inner, "the length of a text") && in_.skip(inner, "a text");
    if (!fine) return false;
  }
  return true;
}

bool Parser::find_alignment() {
  const auto given = header_.metadata.find("general.alignment");
  if (given == header_.metadata.end()) return true;
  if (rejects("gguf.alignment-type", given->second.type != Type::u32)) {
    return refuse(in_.at(), fmt::format("general.alignment is a {}, must be a u32", to_string(given->second.type)));
  }
  if (const auto* number = std::get_if<std::uint64_t>(&given->second.value)) alignment_ = *number;
  if (rejects("gguf.alignment", !std::has_single_bit(alignment_) || alignment_ < 8 || alignment_ > 65536)) {
    return refuse(in_.at(), fmt::format("general.alignment is {}, must be a power of two from 8 to 65536", alignment_));
  }
  return true;
}

bool Parser::tensor_infos() {
  std::set<std::string_view> names;
  header_.tensors.reserve(tensors_);
  for (std::uint64_t i = 0; i < tensors_; ++i) {
    GgufTensor tensor;
    tensor.header_byte = in_.at();
    std::uint32_t type = 0;
    if (!tensor_name(tensor.name) || !dimensions(tensor) || !in_.read(type, "the type of a tensor")) return false;
    const auto encoding = ggml_encoding(type);
    if (rejects("gguf.tensor-type", !encoding)) {
      return refuse_tensor(tensor, fmt::format("type {} is none of ggml's, or one it has given up", type), "convert the model anew");
    }
    tensor.encoding = encoding.value_or(Encoding{});
    if (!in_.read(tensor.offset, "the offset of a tensor") || !size_of(tensor)) return false;
    header_.tensors.push_back(std::move(tensor));
    if (rejects("gguf.tensor-twice", !names.insert(header_.tensors.back().name).second))
      return refuse_tensor(header_.tensors.back(), "is given twice");
  }
  return true;
}

bool Parser::tensor_name(std::string& name) {
  const std::uint64_t at = in_.at();
  std::uint64_t length = 0;
  if (!in_.read(length, "the length of a tensor's name")) return false;
  if (rejects("gguf.name-length", length > kMaxNameBytes))
    return refuse(at, fmt::format("a tensor's name of {} bytes, at most {} are allowed", length, kMaxNameBytes));
  if (!in_.read(name, length, "a tensor's name")) return false;
  if (rejects("gguf.name-zero", name.find('\0') != name.npos))
    return refuse(at, fmt::format("the tensor's name \"{}\" holds a zero byte", show(name)));
  if (!printable(name)) {
    header_.warnings.push_back(
        fmt::format("{}: byte {}: tensor \"{}\" has characters in its name that cannot be seen", show(file_name_), at, show(name)));
  }
  return true;
}

bool Parser::dimensions(GgufTensor& tensor) {
  std::uint32_t count = 0;
  if (!in_.read(count, "the number of dimensions")) return false;
  if (rejects("gguf.rank", count > kMaxDimensions))
    return refuse_tensor(tensor, fmt::format("{} dimensions, at most {} are allowed", count, kMaxDimensions));
  tensor.shape.resize(std::min<std::uint64_t>(count, in_.left() / 8));
  for (std::uint64_t& size : tensor.shape) {
    if (!in_.read(size, "a dimension")) return false;
    if (rejects("gguf.dimension", size > std::uint64_t{1} << 48))
      return refuse_tensor(tensor, fmt::format("a dimension of {}: no file is that large", static_cast<std::int64_t>(size)));
  }
  std::ranges::reverse(tensor.shape);
  return true;
}

bool Parser::size_of(GgufTensor& tensor) {
  const Encoding& e = tensor.encoding;
  const std::uint64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (rejects("gguf.blocks", row % e.elements != 0)) {
    return refuse_tensor(tensor, fmt::format("rows of {} numbers are no whole blocks of {}, which hold {}", row, e.name, e.elements));
  }
  const auto count = element_count(tensor.shape);
  std::uint64_t bits = 0;
  const bool overflow = !count || __builtin_mul_overflow(*count / e.elements, std::uint64_t{e.bits}, &bits);
  if (rejects("gguf.overflow", overflow || bits / 8 > size_)) {
    return refuse_tensor(
        tensor, fmt::format("shape [{}] of {} takes more bytes than the file has, {}", fmt::join(tensor.shape, ", "), e.name, size_));
  }
  tensor.bytes = bits / 8;
  return true;
}

bool Parser::data() {
  const std::uint64_t start = aligned(in_.at());
  const bool any = std::ranges::any_of(header_.tensors, [](const GgufTensor& t) { return t.bytes > 0; });
  if (rejects("gguf.data-start", any && start > size_))
    return refuse(in_.at(), fmt::format("the data begin at byte {}, behind the file's {} bytes", start, size_), "the file is incomplete");
  std::uint64_t filled = 0;
  for (GgufTensor& tensor : header_.tensors) {
    if (!place(tensor, start, filled)) return false;
  }
  const std::uint64_t end = start + filled;  // the last padding may be left out
  if (end < size_) {
    header_.warnings.push_back(fmt::format("{}: byte {}: {} bytes after the last tensor", show(file_name_), end, size_ - end));
  }
  return true;
}

// Tensors follow each other in their order, each padded to the alignment.
bool Parser::place(GgufTensor& tensor, std::uint64_t start, std::uint64_t& filled) {
  if (rejects("gguf.offset-alignment", tensor.offset % alignment_ != 0))
    return refuse_tensor(tensor, fmt::format("its offset {} is no multiple of the alignment, {}", tensor.offset, alignment_));
  if (rejects("gguf.overlap", tensor.offset < filled))
    return refuse_tensor(tensor, fmt::format("its offset {} lies before {}, the end of the tensor before it", tensor.offset, filled));
  if (rejects("gguf.hole", tensor.offset > filled))
    return refuse_tensor(tensor,
                         fmt::format("its offset {} leaves a hole behind {}, the end of the tensor before it", tensor.offset, filled));
  const std::uint64_t room = size_ - std::min(size_, start);
  if (rejects("gguf.truncated", tensor.offset > room || tensor.bytes > room - tensor.offset)) {
    return refuse_tensor(
        tensor, fmt::format("truncated: needs {} bytes from byte {} on, the file has {}", tensor.bytes, start + tensor.offset, size_),
        "the file is incomplete; copy or download it again");
  }
  filled = aligned(tensor.offset + tensor.bytes);
  tensor.offset += start;
  return true;
}

}  // namespace

std::string_view to_string(Type type) { return kTypeNames[static_cast<std::size_t>(type)]; }

Expected<std::uint64_t> GgufHeader::count(std::string_view key, std::uint64_t fallback, std::string_view file_name) const {
  const auto found = metadata.find(std::string(key));
  if (found == metadata.end()) return fallback;
  const GgufValue& v = found->second;
  const bool whole = std::holds_alternative<std::uint64_t>(v.value) && v.type != Type::array && v.type != Type::boolean;
  if (whole) return std::get<std::uint64_t>(v.value);
  if (const auto* number = std::get_if<std::int64_t>(&v.value); number != nullptr && *number >= 0)
    return static_cast<std::uint64_t>(*number);
  return fail(fmt::format("{}: the key \"{}\" is a {}, must be a whole number", show(file_name), show(key), to_string(v.type)), kDamaged);
}

Expected<std::string> GgufHeader::text(std::string_view key, std::string_view fallback, std::string_view file_name) const {
  const auto found = metadata.find(std::string(key));
  if (found == metadata.end()) return std::string(fallback);
  if (const auto* text = std::get_if<std::string>(&found->second.value)) return *text;
  return fail(fmt::format("{}: the key \"{}\" is a {}, must be a string", show(file_name), show(key), to_string(found->second.type)),
              kDamaged);
}

Expected<GgufHeader> parse_gguf(const ByteSource& source, std::string_view file_name) { return Parser(source, file_name).run(); }

}  // namespace stepzero
