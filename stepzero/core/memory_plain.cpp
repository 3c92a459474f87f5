// memory.cpp where there is no operating system to ask (the browser).
#include <algorithm>
#include <cstdlib>
#include <new>

#include "stepzero/core/exceptions.hpp"
#include "stepzero/core/memory.hpp"

namespace stepzero {

void* allocate(std::size_t bytes) {
  constexpr std::size_t alignment = 64;
  void* memory = std::aligned_alloc(alignment, std::max(bytes + alignment - 1, alignment) / alignment * alignment);
  if (memory == nullptr) raise(std::bad_alloc());
  return memory;
}

void release(void* memory) noexcept { std::free(memory); }

void keep_freed_memory() {}
std::size_t peak_memory() { return 0; }
std::size_t available_memory() { return std::size_t{2} << 30; }  // half of what 32 bits address

}  // namespace stepzero

// The one thread never ends: what it keeps for itself is never destroyed.
extern "C" int __cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }  // NOLINT(bugprone-reserved-identifier)
