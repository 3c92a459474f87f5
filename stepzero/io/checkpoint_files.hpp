#pragma once
// A checkpoint, whatever its form: a safetensors file, a GGUF file (whole or split), a directory with one of them or with
// shards and their index, or tensors that lie in memory. The one reader for measure, diff and audit.
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stepzero/core/lock.hpp"
#include "stepzero/io/encoding.hpp"
#include "stepzero/io/file.hpp"
#include "stepzero/io/gguf.hpp"

namespace stepzero {

struct CheckpointTensor {
  std::string name;  // any text: show() it
  std::vector<std::uint64_t> shape;
  Encoding encoding;
  std::uint64_t elements = 0;
  std::size_t file = 0;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
  std::uint64_t header_byte = 0;          // where its entry stands, for messages
  const std::byte* memory = nullptr;      // where it lies, if not in a file
  std::vector<std::uint64_t> whole = {};  // of a box of a tensor, such as a shard: that tensor's shape; empty: it is whole
  std::vector<std::uint64_t> at = {};     // likewise where the box begins

  [[nodiscard]] const std::vector<std::uint64_t>& whole_shape() const { return whole.empty() ? shape : whole; }
};

// A tensor of a running program: row by row, without gaps.
struct MemoryTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  DType dtype = DType::F32;
  const std::byte* data = nullptr;
  std::vector<std::uint64_t> whole = {}, at = {};  // as CheckpointTensor's
};

struct OpenOptions {
  bool follow_symlinks = false;  // to shards, wherever they lead
  bool lenient = false;          // white space before a safetensors header
};

class CheckpointFiles {
 public:
  // Every tensor the index names must be in the shard it names, and no shard may hold another.
  static Expected<CheckpointFiles> open(const std::string& path, const OpenOptions& options = {});
  // Tensors where they lie, which must stay there; `path` is what messages call them.
  static Expected<CheckpointFiles> of(const std::vector<MemoryTensor>& tensors, const std::string& path);

  [[nodiscard]] const std::map<std::string, CheckpointTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const CheckpointTensor* find(const std::string& name) const;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& path_of(const CheckpointTensor& tensor) const { return files_[tensor.file].path; }
  [[nodiscard]] std::string note(const std::string& key) const;  // of the metadata; empty: none
  [[nodiscard]] const std::optional<GgufHeader>& gguf() const { return gguf_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  [[nodiscard]] std::uint64_t bytes() const;  // of all tensors

  // Elements [first, first + out.size()) of a readable tensor; of a quantised one whole blocks. Any number of threads
  // may read.
  [[nodiscard]] Expected<void> read_f32(const CheckpointTensor& tensor, std::uint64_t first, std::span<float> out) const;
  [[nodiscard]] Expected<void> read_f64(const CheckpointTensor& tensor, std::uint64_t first, std::span<double> out) const;
  [[nodiscard]] Expected<void> read_bytes(const CheckpointTensor& tensor, std::uint64_t first_byte, std::span<std::byte> out) const;

  // Bytes of a tensor where they lie, or a copy where they cannot be mapped.
  class Bytes {
   public:
    [[nodiscard]] std::span<const std::byte> get() const { return !copy_.empty() ? copy_ : file_ ? mapping_.bytes() : lies_; }
    [[nodiscard]] Expected<void> intact() const;  // ask when done

   private:
    friend class CheckpointFiles;
    std::shared_ptr<const InputFile> file_;
    Mapping mapping_;
    std::uint64_t offset_ = 0;
    std::vector<std::byte> copy_;
    std::span<const std::byte> lies_;  // in memory
  };
  [[nodiscard]] Expected<Bytes> map(const CheckpointTensor& tensor, std::uint64_t first_byte, std::uint64_t count) const;

 private:
  friend class CheckpointOpener;
  struct File {
    std::string path;
    FileIdentity identity;
    std::shared_ptr<const InputFile> open;  // null: closed to save descriptors, opened again when wanted
    std::uint64_t used = 0;
  };
  Expected<std::shared_ptr<const InputFile>> acquire(std::size_t file) const;
  std::size_t keep(InputFile file);

  std::string path_;
  mutable std::vector<File> files_;
  mutable std::unique_ptr<Lock> lock_ = std::make_unique<Lock>();
  mutable std::uint64_t clock_ = 0;
  std::map<std::string, CheckpointTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::optional<GgufHeader> gguf_;
  std::vector<std::string> warnings_;
};

// A file *.safetensors or *.gguf, or a directory that holds a checkpoint.
bool is_checkpoint(const std::string& path);

}  // namespace stepzero
