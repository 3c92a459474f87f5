#pragma once
// A stop word: how whoever waits for a long computation ends it, from outside and at any moment.
//
// It is asked by end_if_stopped(), which every parallel_for and every node of a walk calls. Once it says yes, Stopped unwinds the
// computation up to unless_stopped(), which makes an error of it: nothing that is half done is ever read. Other computations of the
// process, in other threads, have stop words of their own or none.
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>

#include "stepzero/core/error.hpp"
#include "stepzero/core/exceptions.hpp"

namespace stepzero {

class Stopped : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "stopped"; }
};

// Asks `ask` at most once a millisecond, from any thread of the computation but never from two at once. A yes is kept.
class StopWord {
 public:
  explicit StopWord(const std::function<bool()>& ask) : ask_(ask) {}
  [[nodiscard]] bool said();

 private:
  const std::function<bool()>& ask_;
  std::atomic<bool> said_ = false;
  std::atomic<bool> asking_ = false;
  std::atomic<std::int64_t> next_ = 0;  // when to ask again
};

// That of the computation this thread works for; null: none. parallel_for hands it on to the threads it uses.
StopWord* stop_word();

// While it lives, this thread works under `word`.
class Under {
 public:
  explicit Under(StopWord* word);
  ~Under();
  Under(const Under&) = delete;
  Under& operator=(const Under&) = delete;

 private:
  StopWord* before_;
};

// Throws Stopped where the stop word has been said.
void end_if_stopped();

Error stopped_error();

// What `run` returns, an Expected<T>, or the error that says that it was stopped. An empty `stop` never stops.
template <class Run>
auto unless_stopped(const std::function<bool()>& stop, const Run& run) -> decltype(run()) {
  if (!stop) return run();
  StopWord word(stop);
  const Under under(&word);
  return catching<Stopped>(
      [&] {
        end_if_stopped();
        return run();
      },
      [](const Stopped&) -> decltype(run()) { return std::unexpected(stopped_error()); });
}

}  // namespace stepzero
