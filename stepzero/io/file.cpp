#include "stepzero/io/file.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

std::unexpected<Error> not_regular(const std::string& path, mode_t mode) {
  return fail(fmt::format("{}: not a regular file but {}", show(path), kind_of(mode)),
              "stepzero reads by position and needs a file on disk; copy the data into one");
}

std::unexpected<Error> cannot_open(const std::string& path, int error) {
  struct stat status = {};
  // A socket cannot be opened at all (ENXIO): say what it is rather than what the kernel calls it.
  if (error == ENXIO && ::stat(path.c_str(), &status) == 0) return not_regular(path, status.st_mode);
  return fail(fmt::format("{}: cannot open: {}", show(path), std::generic_category().message(error)), "check the path and its permissions");
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Expected<InputFile> InputFile::open(const std::string& path) {
  if (rejects("file.zero-byte", path.find('\0') != std::string::npos))
    return fail(fmt::format("{}: a path cannot hold a zero byte", show(path)), "check where the path came from");
  // O_NONBLOCK: opening a pipe that nobody writes to would otherwise wait for ever.
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return cannot_open(path, errno);
  Descriptor owned(fd);
  struct stat status = {};
  if (::fstat(fd, &status) != 0) return cannot_open(path, errno);
  if (rejects("file.regular", !S_ISREG(status.st_mode))) return not_regular(path, status.st_mode);
  const auto changed =
      static_cast<std::uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(status.st_mtim.tv_nsec);
  return InputFile(std::move(owned), path, {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size), changed});
}

Expected<void> InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (rejects("file.range", offset > size_ || out.size() > size_ - offset)) {
    return fail(fmt::format("{}: byte {}: {} bytes wanted, the file has {} in all", show(path_), offset, out.size(), size_),
                "the file is shorter than what it says it holds");
  }
  while (!out.empty()) {
    constexpr std::size_t most = std::size_t{1} << 30;  // Linux moves 2 GB a call at most
    const ssize_t got = ::pread(fd_.get(), out.data(), std::min(out.size(), most), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return fail(fmt::format("{}: byte {}: cannot read: {}", show(path_), offset, std::generic_category().message(errno)),
                  "the disk or the network file system reports an error");
    }
    if (got == 0) return cut_short(offset);
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

std::unexpected<Error> InputFile::cut_short(std::uint64_t offset) const {
  return fail(fmt::format("{}: byte {}: the file ends here, it had {} bytes when it was opened", show(path_), offset, size_),
              "another program cut the file while it was read; try again when it is complete");
}

Expected<std::string> read_text(const std::string& path, std::uint64_t max_bytes) {
  const auto file = InputFile::open(path);
  if (!file) return std::unexpected(file.error());
  if (rejects("file.text-size", file->size() > max_bytes)) {
    return fail(fmt::format("{}: {} bytes, at most {} are read", show(path), file->size(), max_bytes), "is this the file that was meant?");
  }
  std::string text(file->size(), '\0');
  if (const auto done = file->read(0, std::as_writable_bytes(std::span(text))); !done) return std::unexpected(done.error());
  return text;
}

}  // namespace stepzero
