#include "stepzero/core/stop.hpp"

#include <chrono>

namespace stepzero {

namespace {
thread_local StopWord* current = nullptr;
}

bool StopWord::said() {
  if (said_) return true;
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::microseconds(1);
  if (now < next_ || asking_.exchange(true)) return false;
  if (ask_()) said_ = true;
  next_ = now + 1000;
  asking_ = false;
  return said_;
}

StopWord* stop_word() { return current; }

Under::Under(StopWord* word) : before_(current) { current = word; }
Under::~Under() { current = before_; }

void end_if_stopped() {
  if (current != nullptr && current->said()) raise(Stopped());
}

Error stopped_error() { return {.message = "stopped", .hint = "", .stopped = true}; }

}  // namespace stepzero
