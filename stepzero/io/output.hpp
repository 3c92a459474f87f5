#pragma once
// A file that appears whole or not at all. Bytes go to a hidden neighbour; commit() makes them safe on disk and then
// gives them their name in one step. Whatever goes wrong before, the neighbour is removed and the target is untouched;
// what a killed process left behind is removed by the next one that writes the same file. While one lives, another that
// would write the same file is turned away (Error::busy).
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "stepzero/core/error.hpp"
#include "stepzero/io/file.hpp"

namespace stepzero {

class OutputFile {
 public:
  // `size` is reserved on the disk at once, so that a full disk is known now and not after hours.
  // Several processes that write the same bytes need not be `alone`.
  static Expected<OutputFile> create(const std::string& path, std::uint64_t size, bool replace = false, bool alone = true);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept = delete;
  ~OutputFile();

  [[nodiscard]] Expected<void> write(std::span<const std::byte> bytes);
  // Any number of threads may write at once, each its own place.
  [[nodiscard]] Expected<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;
  [[nodiscard]] Expected<void> commit();                    // the file ends where write() ended
  [[nodiscard]] Expected<void> commit(std::uint64_t size);  // the file has this size

 private:
  OutputFile(std::string path, bool replace) : path_(std::move(path)), replace_(replace) {}
  [[nodiscard]] std::string remove_stale() const;
  Expected<void> make_temporary();
  Expected<void> reserve(std::uint64_t size);
  int rename_to_target();
  void forget_temporary();
  std::unexpected<Error> failed(const char* what, int error) const;

  std::string path_;
  bool replace_;
  std::string target_;     // path without its directory
  std::string temporary_;  // empty when there is nothing to remove
  int listed_ = -1;        // where remove_unfinished() finds it
  Descriptor directory_;
  Descriptor fd_;
};

// Like std::filesystem::create_directories, and what is new survives a power cut.
void make_directories(const std::string& path, std::error_code& error);

// Removes a file, if it is there, so that after a power cut it does not stand beside what is written next.
Expected<void> remove_file(const std::string& path);

// Removes what killed processes left of the files that they wrote into this directory, whatever those were to be called.
void remove_leftovers(const std::string& directory);

// Removes the temporaries of this process, where it must go without its destructors: a signal, or a library that ends it.
// Async-signal-safe.
void remove_unfinished() noexcept;

// A whole file at once, which may replace one that is there.
Expected<void> write_file(const std::string& path, std::string_view text);

}  // namespace stepzero
