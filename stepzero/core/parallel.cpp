#include "stepzero/core/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <omp.h>

namespace stepzero {

namespace {
thread_local bool inside = false;
}

void set_threads(int n) { omp_set_num_threads(n > 0 ? std::min(n, 256) : omp_get_num_procs()); }

int threads() { return omp_get_max_threads(); }

bool in_parallel() { return inside; }

Alone::Alone() : threads_(threads()) { omp_set_num_threads(1); }
Alone::~Alone() { omp_set_num_threads(threads_); }

#ifndef STEPZERO_STD_THREADS

void parallel_for(Index count, const std::function<void(Index)>& body) {
  if (count <= 1 || inside || threads() == 1) {
    for (Index i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (Index i = 0; i < count; ++i) {
    inside = true;
    body(i);
    inside = false;
  }
}

#else

void parallel_for(Index count, const std::function<void(Index)>& body) {
  if (count <= 1 || inside || threads() == 1) {
    for (Index i = 0; i < count; ++i) body(i);
    return;
  }
  std::atomic<Index> next = 0;
  const auto work = [&] {
    inside = true;
    for (Index i = next++; i < count; i = next++) body(i);
    inside = false;
  };
  std::vector<std::jthread> others;
  for (int t = 1; t < threads(); ++t) others.emplace_back(work);
  work();
}

#endif

void parallel_ranges(Index n, Index grain, const std::function<void(Index, Index)>& body) {
  const Index step = std::max<Index>(grain, 1);
  parallel_for((n + step - 1) / step, [&](Index i) { body(i * step, std::min(n, (i + 1) * step)); });
}

}  // namespace stepzero
