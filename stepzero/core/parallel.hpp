#pragma once
// The one place that starts threads. Work is cut into `count` pieces that do not depend on the number of threads,
// so whatever each piece computes, its bits are the same on any machine.
#include <functional>

#include "stepzero/core/view.hpp"

namespace stepzero {

void set_threads(int n);  // 0: all the cores this process may use
int threads();
bool in_parallel();  // called from inside a parallel_for

// Calls body(i) for i in [0, count), in any order, from any thread; returns when all are done.
// Inside another parallel_for it runs in the calling thread.
void parallel_for(Index count, const std::function<void(Index)>& body);

// While it lives, neither this thread nor the libraries it calls start others: for work too small to share.
class Alone {
 public:
  Alone();
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  int threads_;
};

// Cuts [0, n) into pieces of `grain` (the last may be shorter): body(begin, end).
void parallel_ranges(Index n, Index grain, const std::function<void(Index, Index)>& body);

}  // namespace stepzero
