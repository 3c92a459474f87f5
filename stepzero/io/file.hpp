#pragma once
// Files that may lie: read by position, never mapped, so that a file cut short under us is an error and not a signal.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "stepzero/core/error.hpp"

namespace stepzero {

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Which file it is, and in what state: another one under the same name differs.
struct FileIdentity {
  std::uint64_t device = 0, inode = 0, size = 0, changed = 0;  // nanoseconds

  bool operator==(const FileIdentity&) const = default;
};

// A stretch of a file as memory, without a copy. Where the file is cut under us, zeros are read instead of a signal
// received, and intact() tells.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] bool intact() const;

 private:
  friend class InputFile;
  void* start_ = nullptr;  // of the page
  std::size_t length_ = 0;
  std::span<const std::byte> bytes_;
  int slot_ = -1;
};

class InputFile {
 public:
  // Regular files only; a pipe, a device or a socket is refused without waiting for it.
  static Expected<InputFile> open(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }  // as it was when opened

  // Fills `out` with the bytes from `offset` on. Any number of threads may read at once.
  [[nodiscard]] Expected<void> read(std::uint64_t offset, std::span<std::byte> out) const;
  // The same bytes where they lie. Nothing where the system cannot: then read().
  [[nodiscard]] Mapping map(std::uint64_t offset, std::uint64_t length) const;
  // What read() says when the file ends too early.
  [[nodiscard]] std::unexpected<Error> cut_short(std::uint64_t offset) const;

  [[nodiscard]] const FileIdentity& identity() const { return identity_; }

 private:
  InputFile(Descriptor fd, std::string path, const FileIdentity& identity)
      : fd_(std::move(fd)), path_(std::move(path)), size_(identity.size), identity_(identity) {}

  Descriptor fd_;
  std::string path_;
  std::uint64_t size_ = 0;
  FileIdentity identity_;
};

// The whole of a file that must not be larger than `max_bytes`.
Expected<std::string> read_text(const std::string& path, std::uint64_t max_bytes);

}  // namespace stepzero
