#include "stepzero/io/output.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "stepzero/core/text.hpp"

namespace stepzero {
namespace {

constexpr std::size_t kNameBytes = 200;  // leaves room for the rest of a temporary's name in 255

// The temporaries that live. A fixed table without locks, since a signal may come at any moment; a file that finds no place in it is
// left behind by such an end, as by kill -9, and removed by the next run.
struct Unfinished {
  static constexpr int free = -1, taken = -2;
  std::atomic<int> directory = free;  // from 0 on: the name is there
  char name[256];
};
std::array<Unfinished, 64> unfinished;

int list_unfinished(int directory, const std::string& name) {
  if (name.size() >= sizeof(Unfinished::name)) return -1;
  for (std::size_t i = 0; i < unfinished.size(); ++i) {
    int expected = Unfinished::free;
    if (!unfinished[i].directory.compare_exchange_strong(expected, Unfinished::taken)) continue;
    std::memcpy(unfinished[i].name, name.c_str(), name.size() + 1);
    unfinished[i].directory = directory;
    return static_cast<int>(i);
  }
  return -1;
}

std::unexpected<Error> exists(const std::string& path) {
  return fail(fmt::format("{}: the file exists", show(path)), "--force replaces it");
}

// The process of ".NAME.PROCESS-RANDOM.tmp"; nothing where it is no name of ours.
std::string writer_of(std::string_view name) {
  constexpr std::string_view end = ".tmp", digits = "0123456789", hexadecimal = "0123456789abcdef";
  constexpr std::size_t random = 8;
  if (!name.starts_with('.') || !name.ends_with(end)) return {};
  name.remove_suffix(end.size());
  const std::size_t dot = name.rfind('.'), dash = name.rfind('-');
  if (dot == 0 || dash == name.npos || dash < dot + 2 || name.size() - dash - 1 != random) return {};
  const std::string_view process = name.substr(dot + 1, dash - dot - 1);
  const bool ours = process.find_first_not_of(digits) == name.npos && name.substr(dash + 1).find_first_not_of(hexadecimal) == name.npos;
  return ours ? std::string(process) : std::string();
}

// A temporary is locked for as long as its writer lives: one that can be locked has lost its writer, and goes. Returns the number of
// a process that is writing a file whose temporary begins so, or nothing.
std::string remove_unlocked(int directory, const std::string& prefix) {
  DIR* const list = ::fdopendir(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (list == nullptr) return {};
  std::string writer;
  while (const dirent* entry = ::readdir(list)) {
    const std::string_view name = entry->d_name;
    const std::string process = name.starts_with(prefix) ? writer_of(name) : std::string();
    if (process.empty()) continue;
    const Descriptor old(::openat(directory, entry->d_name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (old.get() < 0) continue;
    if (::flock(old.get(), LOCK_EX | LOCK_NB) == 0) {
      ::unlinkat(directory, entry->d_name, 0);
    } else if (errno == EWOULDBLOCK) {
      writer = process;
    }
  }
  ::closedir(list);
  return writer;
}

// Closes a file that has no name any more. Its room is given back with that, a third of a second for each gigabyte that was written:
// whoever stopped the writing need not wait for it.
void close_aside(int fd) {
  if (fd < 0) return;
  try {
    std::thread([fd] { ::close(fd); }).detach();
  } catch (const std::system_error&) {
    ::close(fd);
  }
}

// 0, or the error
int sync_directory(const std::filesystem::path& path) {
  const Descriptor folder(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder.get() >= 0 && (::fsync(folder.get()) == 0 || errno == EINVAL) ? 0 : errno;  // EINVAL: this file system has no such call
}

}  // namespace

std::unexpected<Error> OutputFile::failed(const char* what, int error) const {
  const char* const hint = error == ENOSPC || error == EDQUOT ? "make room on the disk, or write elsewhere"
                           : error == EFBIG                   ? "the file system or a limit (ulimit -f) forbids files of this size"
                                                              : "nothing was written under this name";
  return fail(fmt::format("{}: cannot {}: {}", show(path_), what, std::generic_category().message(error)), hint);
}

Expected<OutputFile> OutputFile::create(const std::string& path, std::uint64_t size, bool replace, bool alone) {
  if (path.find('\0') != std::string::npos)
    return fail(fmt::format("{}: a path cannot hold a zero byte", show(path)), "check where the path came from");
  OutputFile file(path, replace);
  const std::size_t slash = path.rfind('/');
  file.target_ = slash == path.npos ? path : path.substr(slash + 1);
  if (file.target_.empty()) return fail(fmt::format("{}: a file name is missing", show(path)), "add one to the directory");
  const std::string directory = slash == path.npos ? "." : path.substr(0, slash + 1);
  file.directory_ = Descriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.directory_.get() < 0) return file.failed("open its directory", errno);
  struct stat status = {};
  const bool there = ::fstatat(file.directory_.get(), file.target_.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  if (there && !replace) return exists(path);
  if (there && !S_ISREG(status.st_mode))
    return fail(fmt::format("{}: not a regular file, it is not replaced", show(path)), "choose another name");
  if (const std::string writer = file.remove_stale(); alone && !writer.empty()) {
    return std::unexpected(Error{.message = fmt::format("{}: process {} is writing it", show(path), writer),
                                 .hint = "wait for it, or write elsewhere",
                                 .busy = true});
  }
  if (auto made = file.make_temporary(); !made) return std::unexpected(std::move(made.error()));
  if (there && ::fchmod(file.fd_.get(), status.st_mode & 07777U) != 0) return file.failed("keep the old file's permissions", errno);
  if (auto room = file.reserve(size); !room) return std::unexpected(std::move(room.error()));
  return file;
}

std::string OutputFile::remove_stale() const {
  return remove_unlocked(directory_.get(), fmt::format(".{}.", target_.substr(0, kNameBytes)));
}

Expected<void> remove_file(const std::string& path) {
  const auto failed = [&](int error) {
    return fail(fmt::format("{}: cannot remove it: {}", show(path), std::generic_category().message(error)),
                "check the permissions of its directory");
  };
  if (::unlink(path.c_str()) != 0) return errno == ENOENT ? Expected<void>() : failed(errno);
  const int error = sync_directory(std::filesystem::path(path).parent_path());
  return error == 0 ? Expected<void>() : failed(error);
}

void make_directories(const std::string& path, std::error_code& error) {
  namespace fs = std::filesystem;
  fs::path wanted = fs::path(path).lexically_normal();
  if (!wanted.has_filename()) wanted = wanted.parent_path();
  std::vector<fs::path> fresh;  // the innermost first
  for (fs::path at = wanted; !at.empty() && !fs::exists(at, error) && !error; at = at.parent_path()) fresh.push_back(at);
  if (!error) fs::create_directories(path, error);
  for (const fs::path& directory : fresh) {
    if (!error) error.assign(sync_directory(directory.parent_path()), std::generic_category());
  }
}

void remove_leftovers(const std::string& directory) {
  const Descriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) (void)remove_unlocked(folder.get(), ".");
}

Expected<void> OutputFile::make_temporary() {
  std::random_device random;
  for (int attempt = 0; attempt < 16; ++attempt) {
    temporary_ = fmt::format(".{}.{}-{:08x}.tmp", target_.substr(0, kNameBytes), ::getpid(), random());
    constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    fd_ = Descriptor(::openat(directory_.get(), temporary_.c_str(), flags, 0666));
    if (fd_.get() >= 0) {
      listed_ = list_unfinished(directory_.get(), temporary_);
      (void)::flock(fd_.get(), LOCK_EX);  // on a file system without locks, stale files stay where they are
      struct stat status = {};
      if (::fstat(fd_.get(), &status) != 0 || status.st_nlink > 0) return {};
      forget_temporary();  // taken for a stale one between its birth and its lock
      continue;
    }
    const int error = errno;
    temporary_.clear();
    if (error != EEXIST && error != EINTR) return failed("create a file beside it", error);
  }
  return failed("create a file beside it", EEXIST);
}

Expected<void> OutputFile::reserve(std::uint64_t size) {
  if (size == 0) return {};
  struct statfs disk = {};
  if (::fstatfs(fd_.get(), &disk) == 0 && disk.f_type == TMPFS_MAGIC) {
    // To reserve memory is to clear it, which takes as long as the writing itself; a look at what is left has to do.
    const bool room =
        disk.f_blocks == 0 || static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_bsize) >= static_cast<double>(size);
    return room ? Expected<void>() : failed("reserve room for it", ENOSPC);
  }
  int done = 0;
  do {
    done = ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size));
  } while (done != 0 && errno == EINTR);
  // A file system that cannot reserve will say so when it is full.
  if (done == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return failed("reserve room for it", errno);
}

Expected<void> OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    constexpr std::size_t most = std::size_t{1} << 30;
    const ssize_t put = ::write(fd_.get(), bytes.data(), std::min(bytes.size(), most));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return failed("write", put < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Expected<void> OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    constexpr std::size_t most = std::size_t{1} << 30;
    const ssize_t put = ::pwrite(fd_.get(), bytes.data(), std::min(bytes.size(), most), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return failed("write", put < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return {};
}

int OutputFile::rename_to_target() {
  const int dir = directory_.get();
  if (replace_) return ::renameat(dir, temporary_.c_str(), dir, target_.c_str()) == 0 ? 0 : errno;
  if (::renameat2(dir, temporary_.c_str(), dir, target_.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // Network file systems know no such rename; a hard link does not replace either.
  if (::linkat(dir, temporary_.c_str(), dir, target_.c_str(), 0) != 0) return errno;
  ::unlinkat(dir, temporary_.c_str(), 0);
  return 0;
}

Expected<void> OutputFile::commit() {
  const off_t end = ::lseek(fd_.get(), 0, SEEK_CUR);
  if (end < 0) return failed("find the end of it", errno);
  return commit(static_cast<std::uint64_t>(end));
}

Expected<void> OutputFile::commit(std::uint64_t size) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return failed("give back what was reserved and not written", errno);
  // After a failed fsync the kernel forgets the pages: a second try would lie, so there is none.
  if (::fsync(fd_.get()) != 0) return failed("bring it to the disk", errno);
  if (::close(fd_.release()) != 0) return failed("close", errno);
  const int error = rename_to_target();
  if (error == EEXIST) return exists(path_);
  if (error != 0) return failed("give it its name", error);
  forget_temporary();
  if (::fsync(directory_.get()) == 0 || errno == EINVAL) return {};  // EINVAL: this file system has no such call
  auto unsure = failed("bring its name to the disk", errno);
  unsure.error().hint = "the file is there and complete, but a power cut may still lose it";
  return unsure;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      replace_(other.replace_),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),  // one of the two removes it
      listed_(std::exchange(other.listed_, -1)),
      directory_(std::move(other.directory_)),
      fd_(std::move(other.fd_)) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) {
    ::unlinkat(directory_.get(), temporary_.c_str(), 0);
    close_aside(fd_.release());
  }
  forget_temporary();
}

void OutputFile::forget_temporary() {
  temporary_.clear();
  if (const int place = std::exchange(listed_, -1); place >= 0) unfinished[static_cast<std::size_t>(place)].directory = Unfinished::free;
}

void remove_unfinished() noexcept {
  for (const Unfinished& file : unfinished) {
    if (const int directory = file.directory; directory >= 0) ::unlinkat(directory, file.name, 0);
  }
}

Expected<void> write_file(const std::string& path, std::string_view text) {
  auto file = OutputFile::create(path, text.size(), true, false);
  if (!file) return std::unexpected(file.error());
  if (auto done = file->write(std::as_bytes(std::span(text))); !done) return done;
  return file->commit();
}

}  // namespace stepzero
