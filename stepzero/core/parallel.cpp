#include "stepzero/core/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <omp.h>

#include "stepzero/core/stop.hpp"

namespace stepzero {

namespace {
thread_local bool inside = false;
}

void set_threads(int n) { omp_set_num_threads(n > 0 ? std::min(n, 256) : omp_get_num_procs()); }

int threads() { return omp_get_max_threads(); }

bool in_parallel() { return inside; }

Alone::Alone() : threads_(threads()) { omp_set_num_threads(1); }
Alone::~Alone() { omp_set_num_threads(threads_); }

namespace {

// A loop that several threads share. What one of them throws ends it, and goes on in the thread that called it.
class Loop {
 public:
  Loop(Index count, const std::function<void(Index)>& body) : count_(count), body_(body), word_(stop_word()) {}

  // What each thread does.
  void work() {
    const Under under(word_);
    inside = true;
    try {
      for (Index i = next_++; i < count_ && !broken_; i = next_++) {
        end_if_stopped();
        body_(i);
      }
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!broken_.exchange(true)) error_ = std::current_exception();
    }
    inside = false;
  }
  void finish() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  Index count_;
  const std::function<void(Index)>& body_;
  StopWord* word_;
  std::atomic<Index> next_ = 0;
  std::atomic<bool> broken_ = false;
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void parallel_for(Index count, const std::function<void(Index)>& body) {
  if (count <= 1 || inside || threads() == 1) {
    for (Index i = 0; i < count; ++i) {
      end_if_stopped();
      body(i);
    }
    return;
  }
  Loop loop(count, body);
#ifndef STEPZERO_STD_THREADS
#pragma omp parallel
  loop.work();
#else
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads(); ++t) others.emplace_back([&] { loop.work(); });
    loop.work();
  }
#endif
  loop.finish();
}

void parallel_ranges(Index n, Index grain, const std::function<void(Index, Index)>& body) {
  const Index step = std::max<Index>(grain, 1);
  parallel_for((n + step - 1) / step, [&](Index i) { body(i * step, std::min(n, (i + 1) * step)); });
}

}  // namespace stepzero
