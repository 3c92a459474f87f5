#pragma once
// Errors of the world (files, flags, configurations) travel as values; bugs stop the program in checked builds.
#include <expected>
#include <string>
#include <utility>

namespace stepzero {

// What went wrong, where, what was expected and found; and one line on what to do about it.
struct Error {
  std::string message;
  std::string hint = {};
  bool busy = false;     // another process is writing there: trying again later may succeed
  bool stopped = false;  // the caller's stop word ended it
};

template <class T>
using Expected = std::expected<T, Error>;

inline std::unexpected<Error> fail(std::string message, std::string hint = {}) {
  return std::unexpected(Error{.message = std::move(message), .hint = std::move(hint)});
}

[[noreturn]] void report_bug(const char* condition, const char* file, int line);

}  // namespace stepzero

// A condition only a bug can break. Kept in release builds at the outer layers; never inside kernels.
#define STEPZERO_CHECK(condition) ((condition) ? static_cast<void>(0) : ::stepzero::report_bug(#condition, __FILE__, __LINE__))
