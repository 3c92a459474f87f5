#include "stepzero/io/checkpoint_files.hpp"

#include <algorithm>
#include <filesystem>
#include <type_traits>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {

namespace {

constexpr std::size_t kMostOpen = 12;  // files at a time: a checkpoint may have ten thousand

// Elements to bytes, a block of the file at a time.
template <class T, class Read>
Expected<void> read_numbers(const CheckpointTensor& tensor, std::uint64_t first, std::span<T> out, const Read& read) {
  const Encoding& e = tensor.encoding;
  const std::size_t step = std::size_t{1} << 14;
  std::vector<std::byte> bytes(e.bytes_of(std::min<std::uint64_t>(step, (out.size() + e.elements - 1) / e.elements * e.elements)));
  std::vector<float> narrow(std::is_same_v<T, float> ? 0 : std::min(step, out.size()));
  while (!out.empty()) {
    const std::size_t n = std::min(step, out.size());
    const auto stored = std::span(bytes).first(e.bytes_of(n));
    if (auto done = read(e.bytes_of(first), stored); !done) return done;
    if constexpr (std::is_same_v<T, float>) {
      decode(e, stored.data(), out.first(n));
    } else if (e.kind == Encoding::Kind::f64) {
      std::memcpy(out.data(), stored.data(), stored.size());
    } else {
      decode(e, stored.data(), std::span(narrow).first(n));
      std::copy_n(narrow.begin(), n, out.begin());
    }
    first += n;
    out = out.subspan(n);
  }
  return {};
}

}  // namespace

const CheckpointTensor* CheckpointFiles::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::string CheckpointFiles::note(const std::string& key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? std::string() : it->second;
}

std::uint64_t CheckpointFiles::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors_) sum += tensor.bytes;
  return sum;
}

Expected<CheckpointFiles> CheckpointFiles::of(const std::vector<MemoryTensor>& tensors, const std::string& path) {
  CheckpointFiles out;
  out.path_ = path;
  out.files_.push_back({.path = path, .identity = {}, .open = nullptr});
  for (const MemoryTensor& t : tensors) {
    const auto elements = element_count(t.shape);
    const Encoding encoding = encoding_of(t.dtype);
    if (!elements) return fail(fmt::format("{}: tensor \"{}\" has no size", show(path), show(t.name)));
    if (t.data == nullptr && *elements > 0) return fail(fmt::format("{}: tensor \"{}\" lies nowhere", show(path), show(t.name)));
    CheckpointTensor tensor{t.name, t.shape, encoding, *elements, 0, 0, encoding.bytes_of(*elements)};
    tensor.memory = t.data;
    bool inside = t.whole.size() == t.at.size() && (t.whole.empty() || t.whole.size() == t.shape.size());
    for (std::size_t d = 0; inside && d < t.whole.size(); ++d) inside = t.shape[d] <= t.whole[d] && t.at[d] <= t.whole[d] - t.shape[d];
    if (!inside) return fail(fmt::format("{}: tensor \"{}\" is no box of the whole", show(path), show(t.name)));
    tensor.whole = t.whole;
    tensor.at = t.at;
    if (!out.tensors_.try_emplace(t.name, std::move(tensor)).second)
      return fail(fmt::format("{}: two tensors are called \"{}\"", show(path), show(t.name)));
  }
  return out;
}

std::size_t CheckpointFiles::keep(InputFile file) {
  File entry;
  entry.path = file.path();
  entry.identity = file.identity();
  if (files_.size() < kMostOpen) entry.open = std::make_shared<const InputFile>(std::move(file));
  files_.push_back(std::move(entry));
  return files_.size() - 1;
}

// The same file throughout: one that was closed to save descriptors must be what it was when its header was read.
Expected<std::shared_ptr<const InputFile>> CheckpointFiles::acquire(std::size_t index) const {
  const Hold hold(*lock_);
  File& file = files_[index];
  file.used = ++clock_;
  if (file.open) return file.open;
  auto opened = InputFile::open(file.path);
  if (!opened) return std::unexpected(opened.error());
  if (rejects("index.replaced", opened->identity() != file.identity)) {
    return fail(fmt::format("{}: was replaced or changed while it was read", show(file.path)), "try again when nothing writes to it");
  }
  File* oldest = nullptr;
  std::size_t open = 0;
  for (File& other : files_) {
    if (!other.open) continue;
    ++open;
    if (oldest == nullptr || other.used < oldest->used) oldest = &other;
  }
  if (open >= kMostOpen && oldest != nullptr) oldest->open.reset();
  file.open = std::make_shared<const InputFile>(std::move(*opened));
  return file.open;
}

Expected<void> CheckpointFiles::read_bytes(const CheckpointTensor& tensor, std::uint64_t first, std::span<std::byte> out) const {
  if (first > tensor.bytes || out.size() > tensor.bytes - first) {
    return fail(fmt::format("{}: tensor \"{}\": {} bytes from {} on are wanted, it has {}", show(path_of(tensor)), show(tensor.name),
                            out.size(), first, tensor.bytes),
                "read within the shape");
  }
  if (tensor.memory != nullptr) {
    std::copy_n(tensor.memory + first, out.size(), out.begin());
    return {};
  }
  const auto file = acquire(tensor.file);
  if (!file) return std::unexpected(file.error());
  return (*file)->read(tensor.offset + first, out);
}

namespace {
constexpr std::uint64_t kWorthMapping = std::uint64_t{1} << 18;
}

Expected<CheckpointFiles::Bytes> CheckpointFiles::map(const CheckpointTensor& tensor, std::uint64_t first, std::uint64_t count) const {
  Bytes bytes;
  if (tensor.memory != nullptr) {
    bytes.lies_ = {tensor.memory + first, count};
    return bytes;
  }
  auto file = acquire(tensor.file);
  if (!file) return std::unexpected(file.error());
  bytes.file_ = std::move(*file);
  bytes.offset_ = tensor.offset + first;
  if (count == 0) return bytes;
  // a short copy costs less than a mapping, which every core must forget again
  if (count >= kWorthMapping) bytes.mapping_ = bytes.file_->map(bytes.offset_, count);
  if (!bytes.mapping_.bytes().empty()) return bytes;
  bytes.copy_.resize(count);
  if (auto done = read_bytes(tensor, first, bytes.copy_); !done) return std::unexpected(done.error());
  return bytes;
}

Expected<void> CheckpointFiles::Bytes::intact() const {
  if (!rejects("file.shrunk", !mapping_.intact())) return {};
  return file_->cut_short(offset_);
}

namespace {

Expected<void> check_readable(const CheckpointFiles& files, const CheckpointTensor& tensor) {
  if (tensor.encoding.readable()) return {};
  return fail(fmt::format("{}: tensor \"{}\": dtype {} cannot be read as numbers", show(files.path_of(tensor)), show(tensor.name),
                          tensor.encoding.name),
              "F32, F16, BF16, F64, Q8_0, Q4_0, Q4_K and Q6_K can be");
}

}  // namespace

Expected<void> CheckpointFiles::read_f32(const CheckpointTensor& tensor, std::uint64_t first, std::span<float> out) const {
  if (auto fine = check_readable(*this, tensor); !fine) return fine;
  return read_numbers(tensor, first, out, [&](std::uint64_t at, std::span<std::byte> to) { return read_bytes(tensor, at, to); });
}

Expected<void> CheckpointFiles::read_f64(const CheckpointTensor& tensor, std::uint64_t first, std::span<double> out) const {
  if (auto fine = check_readable(*this, tensor); !fine) return fine;
  return read_numbers(tensor, first, out, [&](std::uint64_t at, std::span<std::byte> to) { return read_bytes(tensor, at, to); });
}

}  // namespace stepzero
