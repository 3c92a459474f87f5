// How a path becomes a checkpoint: which files, what each of them holds, and whether they agree.
#include <algorithm>
#include <array>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/checkpoint_files.hpp"
#include "stepzero/io/json.hpp"
#include "stepzero/io/recognise.hpp"
#include "stepzero/io/shard_index.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {

namespace fs = std::filesystem;

class CheckpointOpener {
 public:
  CheckpointOpener(const std::string& path, const OpenOptions& options) : options_(options) { found_.path_ = path; }

  Expected<CheckpointFiles> run() {
    if (auto done = open(); !done) return std::unexpected(done.error());
    return std::move(found_);
  }

 private:
  Expected<void> open();
  Expected<void> directory(const fs::path& path);
  Expected<void> shards(const fs::path& directory);
  Expected<void> agree(const ShardIndex& index, const std::string& path);
  Expected<void> safetensors(const std::string& path);
  Expected<void> gguf(const std::string& path);
  Expected<void> gguf_parts(const std::string& path, std::uint64_t count);
  Expected<GgufHeader> gguf_part(const std::string& path);
  Expected<void> add(CheckpointTensor tensor);
  Expected<void> check_shard(const std::string& path) const;

  OpenOptions options_;
  CheckpointFiles found_;
};

namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

Expected<std::string> first_bytes(const std::string& path) {
  const auto file = InputFile::open(path);
  if (!file) return std::unexpected(file.error());
  std::string head(std::min<std::uint64_t>(file->size(), kMagicBytes), '\0');
  if (auto done = file->read(0, std::as_writable_bytes(std::span(head))); !done) return std::unexpected(done.error());
  return head;
}

// Hugging Face's cache keeps snapshots/<revision>/<name> -> ../../blobs/<hash>.
bool stays_in_cache(const fs::path& link) {
  std::error_code bad;
  const fs::path target = fs::canonical(link, bad);
  if (bad) return false;
  const fs::path home = fs::canonical(link.parent_path(), bad);
  const fs::path blobs = home.parent_path().parent_path() / "blobs";
  return !bad && home.parent_path().filename() == "snapshots" && target.parent_path() == blobs;
}

}  // namespace

Expected<void> CheckpointOpener::open() {
  std::error_code ignored;
  const std::string& path = found_.path_;
  if (fs::is_directory(path, ignored)) return directory(path);
  const auto head = first_bytes(path);
  if (!head) return std::unexpected(head.error());
  return head->starts_with("GGUF") ? gguf(path) : safetensors(path);
}

Expected<void> CheckpointOpener::directory(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path / kIndex, ignored)) return shards(path);
  if (fs::exists(path / "model.safetensors", ignored)) return safetensors((path / "model.safetensors").string());
  std::vector<std::string> candidates;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".safetensors" || extension == ".gguf") candidates.push_back(entry.path().string());
  }
  std::ranges::sort(candidates);
  if (candidates.size() == 1) return candidates[0].ends_with(".gguf") ? gguf(candidates[0]) : safetensors(candidates[0]);
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!fs::exists(path / pickle, ignored)) continue;
    return fail(fmt::format("{}: holds {}, Python pickles, and no safetensors", show(path.string()), pickle),
                "pickles run code when they are read: convert them where you trust them, with safetensors.torch.save_file");
  }
  return fail(fmt::format("{}: {}", show(path.string()),
                          candidates.empty() ? "holds no checkpoint" : fmt::format("holds {} checkpoints and no index", candidates.size())),
              fmt::format("a checkpoint is {}, model.safetensors, or one .gguf file", kIndex));
}

Expected<void> CheckpointOpener::add(CheckpointTensor tensor) {
  const auto [at, fresh] = found_.tensors_.try_emplace(tensor.name, tensor);
  if (!rejects("index.tensor-twice", !fresh)) return {};
  return fail(
      fmt::format("{}: tensor \"{}\" is in {} too", show(found_.path_of(tensor)), show(tensor.name), show(found_.path_of(at->second))),
      "a tensor belongs to one file");
}

Expected<void> CheckpointOpener::safetensors(const std::string& path) {
  auto file = SafetensorsFile::open(path, options_.lenient);
  if (!file) return std::unexpected(file.error());
  if (found_.files_.empty()) found_.metadata_ = file->metadata();
  found_.warnings_.insert(found_.warnings_.end(), file->warnings().begin(), file->warnings().end());
  const std::vector<TensorInfo> tensors = file->tensors();
  const std::uint64_t start = file->data_start();
  const std::size_t index = found_.keep(std::move(*file).take_file());
  for (const TensorInfo& t : tensors) {
    auto done = add({t.name, t.shape, encoding_of(t.dtype), t.elements(), index, start + t.begin, t.end - t.begin, t.header_byte});
    if (!done) return done;
  }
  return {};
}

// What an index names is untrusted: a shard must be a file of its own, here, unless told otherwise.
Expected<void> CheckpointOpener::check_shard(const std::string& path) const {
  struct stat status = {};
  if (options_.follow_symlinks || ::lstat(path.c_str(), &status) != 0) return {};  // opening will say what is missing
  const char* const hint = "--follow-symlinks reads it nevertheless";
  if (S_ISLNK(status.st_mode)) {
    if (!rejects("index.symlink", !stays_in_cache(path))) return {};
    return fail(fmt::format("{}: the shard is a symbolic link that leads elsewhere", show(path)), hint);
  }
  if (rejects("index.hardlink", S_ISREG(status.st_mode) && status.st_nlink > 1))
    return fail(fmt::format("{}: the shard has {} names (hard links)", show(path), status.st_nlink), hint);
  return {};
}

Expected<void> CheckpointOpener::shards(const fs::path& directory) {
  const std::string path = (directory / kIndex).string();
  const auto text = read_text(path, kMaxIndexBytes);
  if (!text) return std::unexpected(text.error());
  const auto index = parse_shard_index(*text, path);
  if (!index) return std::unexpected(index.error());
  for (const std::string& shard : index->shards) {
    const std::string file = (directory / shard).string();
    if (auto done = check_shard(file); !done) return done;
    if (auto done = safetensors(file); !done) return done;
  }
  return agree(*index, path);
}

Expected<void> CheckpointOpener::agree(const ShardIndex& index, const std::string& path) {
  const char* const hint = "the shards belong to another index";
  for (const auto& [tensor, shard] : index.shard_of) {
    const CheckpointTensor* const there = found_.find(tensor);
    if (rejects("index.missing-tensor", there == nullptr || fs::path(found_.path_of(*there)).filename() != shard))
      return fail(fmt::format("{}: tensor \"{}\" is not in {}", show(path), show(tensor), show(shard)), hint);
  }
  for (const auto& [name, tensor] : found_.tensors_) {
    if (rejects("index.unlisted-tensor", !index.shard_of.contains(name)))
      return fail(fmt::format("{}: tensor \"{}\" is not in the index", show(found_.path_of(tensor)), show(name)), hint);
  }
  if (index.total_size && *index.total_size != found_.bytes()) {
    found_.warnings_.push_back(
        fmt::format("{}: total_size is {}, the tensors take {} bytes", show(path), *index.total_size, found_.bytes()));
  }
  return {};
}

Expected<GgufHeader> CheckpointOpener::gguf_part(const std::string& path) {
  auto file = InputFile::open(path);
  if (!file) return std::unexpected(file.error());
  const ByteSource source{file->size(), [&](std::uint64_t at, std::span<std::byte> out) { return file->read(at, out); }};
  auto header = parse_gguf(source, path);
  if (!header) return header;
  const std::size_t index = found_.keep(std::move(*file));
  for (const GgufTensor& t : header->tensors) {
    auto done = add({t.name, t.shape, t.encoding, element_count(t.shape).value_or(0), index, t.offset, t.bytes, t.header_byte});
    if (!done) return std::unexpected(done.error());
  }
  found_.warnings_.insert(found_.warnings_.end(), header->warnings.begin(), header->warnings.end());
  return header;
}

Expected<void> CheckpointOpener::gguf(const std::string& path) {
  auto header = gguf_part(path);
  if (!header) return std::unexpected(header.error());
  const auto parts = header->count("split.count", 0, path);
  if (!parts) return std::unexpected(parts.error());
  for (const auto& [key, value] : header->metadata) {
    if (const auto* text = std::get_if<std::string>(&value.value)) found_.metadata_[key] = *text;
  }
  found_.gguf_ = std::move(*header);
  return *parts > 1 ? gguf_parts(path, *parts) : Expected<void>();
}

// The first part was read; its name says what the others are called.
Expected<void> CheckpointOpener::gguf_parts(const std::string& path, std::uint64_t count) {
  if (rejects("gguf.split-count", count > kMostShards))
    return fail(fmt::format("{}: split.count is {}, at most {} parts are read", show(path), count, kMostShards), "is the file damaged?");
  const std::string ending = fmt::format("-00001-of-{:05}.gguf", count);
  if (rejects("gguf.split-name", !path.ends_with(ending))) {
    return fail(fmt::format("{}: one part of {}; the first part is called ...{}", show(path), count, ending), "give the first part");
  }
  const std::string stem = path.substr(0, path.size() - std::min(path.size(), ending.size()));
  for (std::uint64_t part = 1; part <= count; ++part) {
    const std::string name = fmt::format("{}-{:05}-of-{:05}.gguf", stem, part, count);
    std::optional<GgufHeader> header = part == 1 ? found_.gguf_ : std::nullopt;
    if (part > 1) {
      if (auto done = check_shard(name); !done) return done;
      auto opened = gguf_part(name);
      if (!opened) return std::unexpected(opened.error());
      header = std::move(*opened);
    }
    const auto no = header->count("split.no", count, name), of = header->count("split.count", 0, name);
    if (!no || !of) return std::unexpected(no ? of.error() : no.error());
    if (rejects("gguf.split-number", *no + 1 != part || *of != count)) {
      return fail(fmt::format("{}: says it is part {} of {}, its name says {} of {}", show(name), *no + 1, *of, part, count),
                  "parts of different models, or renamed");
    }
  }
  return {};
}

Expected<CheckpointFiles> CheckpointFiles::open(const std::string& path, const OpenOptions& options) {
  return CheckpointOpener(path, options).run();
}

bool is_checkpoint(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path.ends_with(".safetensors") || path.ends_with(".gguf");
  return fs::exists(fs::path(path) / kIndex, ignored) || fs::exists(fs::path(path) / "model.safetensors", ignored);
}

}  // namespace stepzero
