#pragma once
// What threads lock. Where a program has one thread, and a library without threads (the browser), there is nothing to lock.
#ifdef __wasi__

namespace stepzero {

class Lock {
 public:
  void lock() {}
  void unlock() {}
};

#else
#include <mutex>

namespace stepzero {

using Lock = std::mutex;

#endif

// Holds a lock while it lives.
class Hold {
 public:
  explicit Hold(Lock& lock) : lock_(lock) { lock_.lock(); }
  ~Hold() { lock_.unlock(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Lock& lock_;
};

}  // namespace stepzero
