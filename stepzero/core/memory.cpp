#include "stepzero/core/memory.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>

#include <malloc.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "stepzero/core/exceptions.hpp"

namespace stepzero {

namespace {
constexpr std::size_t huge_page = std::size_t{2} << 20;

// Small blocks that were freed are kept for the next request of their size, by each thread for itself: rules that draw take and give
// back thousands of small matrices a millisecond. Sizes are powers of two, up to 64 kB.
class Pool {
 public:
  static constexpr int smallest = 6, kinds = 11;
  static int bits(std::size_t n) { return static_cast<int>(std::bit_width(n)); }

  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    for (Kind& kind : kinds_) {
      while (kind.count > 0) std::free(kind.blocks[--kind.count]);
    }
  }

  // nullptr: none is kept
  void* take(int kind) { return kinds_[kind].count > 0 ? kinds_[kind].blocks[--kinds_[kind].count] : nullptr; }
  bool keep(void* memory) noexcept {
    const int kind = bits(malloc_usable_size(memory)) - 1 - smallest;
    if (kind < 0 || kind >= kinds || kinds_[kind].count == most) return false;
    kinds_[kind].blocks[kinds_[kind].count++] = memory;
    return true;
  }

 private:
  static constexpr int most = 64;
  struct Kind {
    int count = 0;
    void* blocks[most];
  };
  Kind kinds_[kinds];
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool pooled = false;  // sanitizers must see what is freed
#else
constexpr bool pooled = true;
#endif
thread_local Pool pool;
}  // namespace

void* allocate(std::size_t bytes) {
  const int kind = bytes > 0 ? std::max(0, Pool::bits(bytes - 1) - Pool::smallest) : 0;  // the power of two that holds it
  if (pooled && kind < Pool::kinds) {
    if (void* memory = pool.take(kind)) return memory;
    bytes = std::size_t{1} << (kind + Pool::smallest);
  }
  const std::size_t alignment = bytes >= 2 * huge_page ? huge_page : 64;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) raise(std::bad_alloc());
  if (alignment == huge_page) (void)madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr && !(pooled && pool.keep(memory))) std::free(memory);
}

void keep_freed_memory() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return;  // ulimit -v: nothing is set aside
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 256 << 20);
  // the padding in huge pages: else page faults take a tenth of a short prediction
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
