#pragma once
// The one place that throws and catches. Where there are no exceptions (the browser), what would be thrown is told on standard error and
// ends the program: its worker starts anew.
#include <new>
#include <string>
#include <utility>

namespace stepzero {

inline constexpr const char* no_room_hint = "raise ulimit -v, or install what is missing";

// What a computation needs and the system does not give.
class NoRoom : public std::bad_alloc {
 public:
  explicit NoRoom(std::string what) : what_(std::move(what)) {}
  [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

}  // namespace stepzero

#ifdef __cpp_exceptions

namespace stepzero {

template <class E>
[[noreturn]] void raise(const E& error) {
  throw error;
}

// What `run` returns, or what `caught` makes of the E that it threw.
template <class E, class Run, class Caught>
auto catching(const Run& run, const Caught& caught) -> decltype(run()) {
  try {
    return run();
  } catch (const E& error) {
    return caught(error);
  }
}

}  // namespace stepzero

#else
#include <cstdio>
#include <cstdlib>

namespace stepzero {

template <class E>
[[noreturn]] void raise(const E& error) {
  (void)std::fprintf(stderr, "%s\n", error.what());
  std::abort();
}

template <class E, class Run, class Caught>
auto catching(const Run& run, const Caught&) -> decltype(run()) {
  return run();
}

}  // namespace stepzero

#endif
