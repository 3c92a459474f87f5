#include "stepzero/io/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/json.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero::safetensors {
namespace {

constexpr const char* kOffsetsHint = "data_offsets is [begin, end], in bytes from the start of the data";
constexpr std::size_t kMaxDepth = 8;
constexpr std::size_t kMinEntryBytes = 50;  // "":{"dtype":"U8","shape":[],"data_offsets":[0,0]},
constexpr std::size_t kMaxWarnings = 16;    // a file of a million odd names must not fill the screen

std::string titled(const TensorInfo& tensor) { return fmt::format("tensor \"{}\"", show(tensor.name)); }

class Warnings {
 public:
  // The text is made only when it will be kept: a hostile header can ask for twenty million.
  template <class Make>
  void add(Make make) {
    if (++count_ <= kMaxWarnings) texts_.push_back(make());
  }
  std::vector<std::string> take(std::string_view file_name) {
    if (count_ > kMaxWarnings) texts_.push_back(fmt::format("{}: {} more warnings", show(file_name), count_ - kMaxWarnings));
    return std::move(texts_);
  }

 private:
  std::vector<std::string> texts_;
  std::size_t count_ = 0;
};

// Walks the header once. At any moment it stands in one place, and every place says what may come.
class HeaderVisitor final : public JsonVisitor {
 public:
  HeaderVisitor(std::string_view file_name, Header& header, Warnings& warnings)
      : file_name_(file_name), header_(header), warnings_(warnings) {}

  bool begin_object() override;
  bool begin_array() override;
  bool end_object() override;
  bool end_array() override;
  bool key(std::string& name) override;
  bool value(nlohmann::json&& scalar) override;
  std::string context() const override {
    return place_ == Place::entry || place_ == Place::shape || place_ == Place::offsets ? titled(tensor_) + ": " : std::string();
  }

 private:
  enum class Place { outside, top, metadata, entry, shape, offsets };
  enum Field : unsigned { unknown = 0, dtype = 1, shape = 2, offsets = 4, all = 7 };

  bool begin_tensor(std::string& name);
  bool begin_field(const std::string& name);
  bool finish_tensor();
  bool add_dimension(const nlohmann::json& number);
  bool add_offset(const nlohmann::json& number);
  bool bad_offsets(const char* count);
  bool set_dtype(const nlohmann::json& text);
  bool skipping() const { return skipped_ > 0 || (place_ == Place::entry && field_ == unknown); }
  bool misplaced();
  bool whole_number(const nlohmann::json& number, const char* what);
  template <class... Args>
  void warn(fmt::format_string<Args...> what, Args&&... args) {
    warnings_.add([&] { return fmt::format("{}: byte {}: {}", show(file_name_), byte(), fmt::format(what, std::forward<Args>(args)...)); });
  }

  std::string_view file_name_;
  Header& header_;
  Warnings& warnings_;
  Place place_ = Place::outside;
  Field field_ = unknown;
  unsigned seen_ = 0;        // fields of the entry so far
  std::size_t skipped_ = 0;  // containers open inside an unknown field
  bool metadata_seen_ = false;
  bool in_metadata_key_ = false;
  std::string metadata_name_;
  TensorInfo tensor_;
  std::vector<std::uint64_t> range_;
};

bool HeaderVisitor::begin_object() {
  if (skipping()) return ++skipped_ > 0;
  if (place_ == Place::outside) {
    place_ = Place::top;
    return true;
  }
  if (place_ != Place::top) return misplaced();
  place_ = in_metadata_key_ ? Place::metadata : Place::entry;
  field_ = unknown;
  return true;
}

bool HeaderVisitor::begin_array() {
  if (skipping()) return ++skipped_ > 0;
  if (place_ != Place::entry || field_ == dtype) return misplaced();
  place_ = field_ == shape ? Place::shape : Place::offsets;
  if (field_ == shape) tensor_.shape.reserve(4);  // one piece of memory for a usual shape
  return true;
}

bool HeaderVisitor::end_object() {
  if (skipped_ > 0) return skipped_-- > 0;
  if (place_ == Place::entry && !finish_tensor()) return false;
  place_ = place_ == Place::top ? Place::outside : Place::top;
  return true;
}

bool HeaderVisitor::end_array() {
  if (skipped_ > 0) return skipped_-- > 0;
  if (place_ == Place::offsets && range_.size() < 2) return bad_offsets("fewer than 2");
  place_ = Place::entry;
  return true;
}

bool HeaderVisitor::key(std::string& name) {
  if (skipped_ > 0) return true;
  if (place_ == Place::top) return begin_tensor(name);
  if (place_ == Place::entry) return begin_field(name);
  metadata_name_ = std::move(name);
  return true;
}

bool HeaderVisitor::value(nlohmann::json&& scalar) {
  if (skipping()) return true;
  if (place_ == Place::shape) return add_dimension(scalar);
  if (place_ == Place::offsets) return add_offset(scalar);
  if (place_ == Place::entry && field_ == dtype && scalar.is_string()) return set_dtype(scalar);
  if (place_ != Place::metadata || !scalar.is_string()) return misplaced();
  auto& text = scalar.get_ref<std::string&>();
  if (header_.metadata.try_emplace(metadata_name_, std::move(text)).second) return true;
  return refuse(fmt::format("{} gives \"{}\" twice", kMetadataKey, show(metadata_name_)), "keep one of the two");
}

bool HeaderVisitor::begin_tensor(std::string& name) {
  in_metadata_key_ = name == kMetadataKey;
  if (in_metadata_key_) {
    if (!std::exchange(metadata_seen_, true)) return true;
    return refuse(fmt::format("{} is given twice", kMetadataKey), "keep one of the two");
  }
  if (rejects("safetensors.name-length", name.size() > kMaxNameBytes)) {
    return refuse(fmt::format("a tensor name of {} bytes, at most {} are allowed: \"{}\"", name.size(), kMaxNameBytes, show(name)),
                  "no program writes such names; the file may be made to harm");
  }
  if (!printable(name)) warn("tensor \"{}\" has characters in its name that cannot be seen", show(name));
  tensor_ = TensorInfo{std::move(name), DType::F32, {}, 0, 0, byte()};
  range_.clear();
  seen_ = 0;
  return true;
}

bool HeaderVisitor::begin_field(const std::string& name) {
  field_ = name == "dtype" ? dtype : name == "shape" ? shape : name == "data_offsets" ? offsets : unknown;
  if (field_ == unknown) {
    warn("{}unknown field \"{}\" is ignored", context(), show(name));
    return true;
  }
  if (rejects("safetensors.field-twice", (seen_ & field_) != 0))
    return refuse(fmt::format("{}{} is given twice", context(), name), "keep one of the two");
  seen_ |= field_;
  return true;
}

bool HeaderVisitor::misplaced() {
  const char* const hint = "an entry reads \"name\": {\"dtype\": \"F32\", \"shape\": [2, 3], \"data_offsets\": [0, 24]}";
  const std::string found = show(token());
  switch (place_) {
    case Place::outside:
      return refuse(fmt::format("the header must be an object, found {}", found), hint);
    case Place::metadata:
      return refuse(fmt::format("{}: \"{}\" must be a text, found {}", kMetadataKey, show(metadata_name_), found),
                    "metadata maps texts to texts; put numbers in quotes");
    case Place::top:
      if (in_metadata_key_) return refuse(fmt::format("{} must be an object, found {}", kMetadataKey, found), hint);
      return refuse(fmt::format("{} must be an object, found {}", titled(tensor_), found), hint);
    case Place::shape:
      return refuse(fmt::format("{}a dimension must be a whole number, found {}", context(), found), hint);
    case Place::offsets:
      return refuse(fmt::format("{}an offset must be a whole number, found {}", context(), found), hint);
    case Place::entry:
      break;
  }
  const char* const want = field_ == dtype   ? "dtype must be a text"
                           : field_ == shape ? "shape must be an array"
                                             : "data_offsets must be an array";
  return refuse(fmt::format("{}{}, found {}", context(), want, found), hint);
}

// nlohmann keeps apart what was written: -0 is signed, 1e3 and 2^64 are floating.
bool HeaderVisitor::whole_number(const nlohmann::json& number, const char* what) {
  if (number.is_number_unsigned()) return true;
  if (!number.is_number()) return misplaced();
  return refuse(fmt::format("{}{} must be a whole number below 2^64, found {}", context(), what, show(token())),
                "write it in digits only, without sign, point or exponent");
}

bool HeaderVisitor::add_dimension(const nlohmann::json& number) {
  if (!whole_number(number, "a dimension")) return false;
  if (rejects("safetensors.rank", tensor_.shape.size() == kMaxRank))
    return refuse(fmt::format("{}shape has more than {} dimensions", context(), kMaxRank), "the file may be made to harm");
  const auto size = number.get<std::uint64_t>();
  if (rejects("safetensors.dimension", size > kMaxDimension)) {
    return refuse(fmt::format("{}dimension {} of shape is {}, at most {} is allowed", context(), tensor_.shape.size(), size, kMaxDimension),
                  "no file is that large; the header is damaged or made to harm");
  }
  tensor_.shape.push_back(size);
  return true;
}

bool HeaderVisitor::add_offset(const nlohmann::json& number) {
  if (!whole_number(number, "an offset")) return false;
  range_.push_back(number.get<std::uint64_t>());
  return range_.size() <= 2 || bad_offsets("more than 2");
}

bool HeaderVisitor::bad_offsets(const char* count) {
  return refuse(fmt::format("{}data_offsets has {} numbers", context(), count), kOffsetsHint);
}

bool HeaderVisitor::set_dtype(const nlohmann::json& text) {
  const auto& name = text.get_ref<const std::string&>();
  const auto found = find_dtype(name);
  if (rejects("safetensors.dtype", !found)) {
    return refuse(fmt::format("{}unknown dtype \"{}\"", context(), show(name)), fmt::format("known are {}", known_dtypes()));
  }
  tensor_.dtype = *found;
  return true;
}

bool HeaderVisitor::finish_tensor() {
  const std::uint64_t at = tensor_.header_byte;
  if (rejects("safetensors.field-missing", seen_ != all)) {
    const char* const missing = (seen_ & dtype) == 0 ? "dtype" : (seen_ & shape) == 0 ? "shape" : "data_offsets";
    return refuse_at(at, fmt::format("{}{} is missing", context(), missing), "every tensor has dtype, shape and data_offsets");
  }
  tensor_.begin = range_[0];
  tensor_.end = range_[1];
  if (rejects("safetensors.begin-after-end", tensor_.begin > tensor_.end)) {
    return refuse_at(at, fmt::format("{}data_offsets begin at {}, behind their end {}", context(), tensor_.begin, tensor_.end),
                     kOffsetsHint);
  }
  const std::uint64_t given = tensor_.end - tensor_.begin;
  const auto bits = bits_of(tensor_.shape, tensor_.dtype);
  const auto contradict = [&](const std::string& needs) {
    return refuse_at(at, fmt::format("{}shape [{}] needs {}", context(), fmt::join(tensor_.shape, ", "), needs),
                     "shape, dtype and data_offsets contradict each other; the writer of this file is at fault");
  };
  if (rejects("safetensors.overflow", !bits)) return contradict("more than 2^64 bits");
  if (rejects("safetensors.whole-bytes", *bits % 8 != 0))
    return contradict(fmt::format("{} bits of {}, not whole bytes", *bits, dtype_name(tensor_.dtype)));
  if (rejects("safetensors.size", *bits / 8 != given)) return contradict(fmt::format("{} bytes, data_offsets give {}", *bits / 8, given));
  header_.tensors.push_back(std::move(tensor_));
  return true;
}

std::unexpected<Error> fail_tensor(std::string_view file_name, const TensorInfo& tensor, std::string_view what, std::string hint) {
  return fail(fmt::format("{}: byte {}: {}: {}", show(file_name), tensor.header_byte, titled(tensor), what), std::move(hint));
}

// Sixteen bytes of a name as two numbers that compare as the bytes do.
std::pair<std::uint64_t, std::uint64_t> prefix_of(std::string_view name) {
  std::array<char, 16> bytes = {};
  name.copy(bytes.data(), bytes.size());
  const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(bytes);
  return {__builtin_bswap64(words[0]), __builtin_bswap64(words[1])};
}

// A million names all over the memory: comparing them where they are takes longer than reading the file. What follows
// their common beginning decides nearly always, and lies side by side.
void sort_by_name(std::vector<TensorInfo>& tensors) {
  if (std::ranges::is_sorted(tensors, {}, &TensorInfo::name)) return;
  struct Key {
    std::pair<std::uint64_t, std::uint64_t> prefix;
    TensorInfo* tensor;
  };
  std::string_view common = tensors.front().name;
  for (const TensorInfo& tensor : tensors) {
    const auto ends = std::ranges::mismatch(common, tensor.name);
    common = common.substr(0, static_cast<std::size_t>(ends.in1 - common.begin()));
  }
  std::vector<Key> keys;
  keys.reserve(tensors.size());
  for (TensorInfo& tensor : tensors) keys.push_back({prefix_of(std::string_view(tensor.name).substr(common.size())), &tensor});
  std::ranges::sort(
      keys, [](const Key& a, const Key& b) { return a.prefix != b.prefix ? a.prefix < b.prefix : a.tensor->name < b.tensor->name; });
  std::vector<TensorInfo> sorted;
  sorted.reserve(tensors.size());
  for (const Key& key : keys) sorted.push_back(std::move(*key.tensor));
  tensors = std::move(sorted);
}

Expected<void> check_names(std::string_view file_name, const std::vector<TensorInfo>& tensors) {
  const auto twice = std::ranges::adjacent_find(tensors, {}, &TensorInfo::name);
  if (!rejects("safetensors.name-twice", twice != tensors.end())) return {};
  const auto& [first, second] = std::minmax(twice[0].header_byte, twice[1].header_byte);
  return fail(fmt::format("{}: byte {}: tensor \"{}\" is given twice, first at byte {}", show(file_name), second, show(twice->name), first),
              "keep one of the two; readers differ in which one they take");
}

// The data from end to end: where one tensor ends the next begins, from the first byte to the last.
Expected<void> check_layout(std::string_view file_name, const std::vector<TensorInfo>& tensors, std::uint64_t header_end,
                            std::uint64_t data_bytes) {
  std::vector<std::tuple<std::uint64_t, std::uint64_t, const TensorInfo*>> order;
  order.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) order.emplace_back(tensor.begin, tensor.end, &tensor);
  std::ranges::sort(order);
  const char* const hint = "tensors must fill the data without hole or overlap; the writer of this file is at fault";
  const TensorInfo* before = nullptr;
  std::uint64_t filled = 0;
  for (const auto& [begin, end, tensor] : order) {
    if (rejects("safetensors.overlap", begin < filled)) {
      const std::string other = show(before->name);
      return fail_tensor(file_name, *tensor, fmt::format("begins at {}, inside tensor \"{}\" that ends at {}", begin, other, filled), hint);
    }
    if (rejects("safetensors.hole", begin > filled)) {
      return fail_tensor(file_name, *tensor, fmt::format("begins at {}, but the data before it ends at {}", begin, filled), hint);
    }
    before = tensor;
    filled = end;
  }
  if (rejects("safetensors.truncated", filled > data_bytes)) {
    const std::string need = fmt::format("truncated: need {} bytes of data, have {}", filled, data_bytes);
    return fail_tensor(file_name, *before, need, "the file is incomplete; copy or download it again");
  }
  if (rejects("safetensors.trailing", filled < data_bytes)) {
    return fail(fmt::format("{}: byte {}: {} bytes after the last tensor", show(file_name), header_end + filled, data_bytes - filled),
                "something was appended to the file; it may be another file in disguise");
  }
  return {};
}

}  // namespace

Expected<Header> parse_header(std::string_view text, std::string_view file_name, std::uint64_t data_bytes, bool lenient) {
  constexpr std::string_view white = " \t\r\n";
  if (rejects("safetensors.leading-white", !lenient && !text.empty() && white.contains(text.front()))) {
    return fail(fmt::format("{}: byte {}: white space before the header's {{", show(file_name), kLengthBytes), "--lenient accepts it");
  }
  Header header;
  header.tensors.reserve(text.size() / kMinEntryBytes);
  Warnings warnings;
  HeaderVisitor visitor(file_name, header, warnings);
  const JsonLimits limits{.max_bytes = kMaxHeaderBytes, .max_depth = kMaxDepth, .max_values = JsonLimits::kNone};
  if (auto walked = walk_json({text, file_name, kLengthBytes}, limits, visitor); !walked) return std::unexpected(std::move(walked.error()));
  const std::size_t json_end = text.find_last_not_of(white) + 1;
  if (const std::size_t at = text.find_first_not_of(' ', json_end); at != text.npos)
    warnings.add(
        [&] { return fmt::format("{}: byte {}: the header is padded with other than spaces", show(file_name), kLengthBytes + at); });
  sort_by_name(header.tensors);
  if (auto unique = check_names(file_name, header.tensors); !unique) return std::unexpected(std::move(unique.error()));
  const std::uint64_t header_end = kLengthBytes + text.size();
  if (auto full = check_layout(file_name, header.tensors, header_end, data_bytes); !full) return std::unexpected(std::move(full.error()));
  header.warnings = warnings.take(file_name);
  return header;
}

}  // namespace stepzero::safetensors
