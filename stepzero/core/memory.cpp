#include "stepzero/core/memory.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>

#include <malloc.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace stepzero {

namespace {
constexpr std::size_t huge_page = std::size_t{2} << 20;
}  // namespace

void* allocate(std::size_t bytes) {
  const std::size_t alignment = bytes >= 2 * huge_page ? huge_page : 64;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == huge_page) (void)madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

void release(void* memory) noexcept { std::free(memory); }

void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
  // that head room in large pages: a tenth of a short prediction went into faults
  const auto heap_end = [] { return reinterpret_cast<std::uintptr_t>(sbrk(0)); };
  const std::uintptr_t begin = (heap_end() + huge_page - 1) / huge_page * huge_page;
  void* volatile some = std::malloc(std::size_t{1} << 20);  // volatile: a compiler may leave out what is freed at once
  std::free(some);
  if (heap_end() > begin)
    (void)madvise(reinterpret_cast<void*>(begin), heap_end() - begin, MADV_HUGEPAGE);  // NOLINT(performance-no-int-to-ptr)
}

std::size_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

std::size_t available_memory() {
  std::FILE* file = std::fopen("/proc/meminfo", "r");
  if (file == nullptr) return static_cast<std::size_t>(-1);
  char line[256];
  unsigned long long kilobytes = 0;
  bool found = false;
  while (!found && std::fgets(line, sizeof line, file) != nullptr) {
    found = std::sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1;  // NOLINT(cert-err34-c)
  }
  (void)std::fclose(file);
  return found ? static_cast<std::size_t>(kilobytes) * 1024 : static_cast<std::size_t>(-1);
}

}  // namespace stepzero
