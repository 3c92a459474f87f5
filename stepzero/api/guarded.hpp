#pragma once
// The edge of the library: stop word, threads and what is thrown inside stay on this side of it.
#include <new>
#include <utility>

#include <fmt/format.h>

#include "stepzero/core/exceptions.hpp"
#include "stepzero/core/lock.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/stop.hpp"
#include "stepzero/report/terminal_style.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero {

// How results as text look where nobody says more.
inline constexpr Look kPlainLook = {.width = 100, .color = false, .unicode = true};

// While it lives, the calling thread's loops run on so many threads; 0: as before.
class ThreadCount {
 public:
  explicit ThreadCount(int n) : before_(threads()) { set_threads(n > 0 ? n : before_); }
  ~ThreadCount() { set_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

// Runs `run`, which returns an Expected<T>, under what the caller watches with; errors are values whatever happens.
template <class Run>
auto guarded(const Watch& watch, const Run& run) -> decltype(run()) {
  const ThreadCount count(watch.threads);
  using Result = decltype(run());
  const auto stoppable = [&] { return unless_stopped(watch.stop, run); };
  const auto library = [](const NoRoom& e) -> Result { return fail(e.what(), no_room_hint); };
  const auto no_room = [](const std::bad_alloc&) -> Result {
    return fail("out of memory", "shorten the input, or make the model smaller");
  };
  const auto bug = [](const std::exception& e) -> Result { return fail(fmt::format("{}", e.what()), "this should not have happened"); };
  return catching<std::exception>([&] { return catching<std::bad_alloc>([&] { return catching<NoRoom>(stoppable, library); }, no_room); },
                                  bug);
}

// Tells of progress from one thread at a time, and of one part of a larger piece of work.
class Teller {
 public:
  Teller(const Watch& watch, std::string what, double from = 0, double to = 1)
      : watch_(watch), what_(std::move(what)), from_(from), to_(to) {}
  void operator()(double share) {
    if (!watch_.progress) return;
    const Hold hold(lock_);
    watch_.progress(from_ + (to_ - from_) * share, what_);
  }

 private:
  const Watch& watch_;
  std::string what_;
  double from_, to_;
  Lock lock_;
};

}  // namespace stepzero
