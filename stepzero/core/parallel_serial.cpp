// parallel.cpp of the portable build: one thread does all of it.
#include <algorithm>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/stop.hpp"

namespace stepzero {

void set_threads(int) {}
int threads() { return 1; }
bool in_parallel() { return false; }

Alone::Alone() : threads_(1) {}
Alone::~Alone() = default;

void parallel_for(Index count, const std::function<void(Index)>& body) {
  for (Index i = 0; i < count; ++i) {
    end_if_stopped();
    body(i);
  }
}

void parallel_ranges(Index n, Index grain, const std::function<void(Index, Index)>& body) {
  const Index step = std::max<Index>(grain, 1);
  parallel_for((n + step - 1) / step, [&](Index i) { body(i * step, std::min(n, (i + 1) * step)); });
}

}  // namespace stepzero
