// Memory that stands for a file. A page behind the file's end gives SIGBUS; the handler puts a page of zeros there, notes
// which mapping is broken, and the reader goes on to ask intact().
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <mutex>

#include <sys/mman.h>
#include <unistd.h>

#include "stepzero/io/file.hpp"

namespace stepzero {
namespace {

struct Slot {
  std::atomic<std::uintptr_t> begin = 0;  // 0: free
  std::atomic<std::uintptr_t> end = 0;
  std::atomic<bool> broken = false;
};

constexpr std::uint64_t kHugePage = std::uint64_t{1} << 21;
constexpr std::uintptr_t kTaken = 1;
std::array<Slot, 512> slots;
std::array<std::uintptr_t, 1> page_size;

// Only what a signal handler may do: atomics and system calls.
void patch(int signal, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Slot& slot : slots) {
    if (at < slot.begin.load() || at >= slot.end.load() || slot.begin.load() <= kTaken) continue;
    slot.broken.store(true);
    void* const page = static_cast<std::byte*>(info->si_addr) - at % page_size[0];
    if (::mmap(page, page_size[0], PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) return;
  }
  std::signal(signal, SIG_DFL);  // none of ours: it strikes again and ends the program
}

void guard() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_size[0] = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = patch;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigemptyset(&action.sa_mask);
    (void)::sigaction(SIGBUS, &action, nullptr);
  });
}

int take_slot() {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    std::uintptr_t free = 0;
    if (slots[i].begin.compare_exchange_strong(free, kTaken)) return static_cast<int>(i);
  }
  return -1;
}

Slot& slot_of(int i) { return slots[static_cast<std::size_t>(i)]; }

}  // namespace

Mapping InputFile::map(std::uint64_t offset, std::uint64_t length) const {
  Mapping mapping;
  if (length == 0 || offset > size_ || length > size_ - offset) return mapping;
  guard();
  const int slot = take_slot();
  if (slot < 0) return mapping;
  // Out to the borders of huge pages: where the system keeps the file in such, one fault brings one of them.
  const std::uint64_t unit = length >= kHugePage ? kHugePage : page_size[0];
  const std::uint64_t start = offset / unit * unit;
  const std::uint64_t whole = std::min((offset + length + unit - 1) / unit * unit, size_) - start;
  void* const at = ::mmap(nullptr, whole, PROT_READ, MAP_SHARED, fd_.get(), static_cast<off_t>(start));
  if (at == MAP_FAILED) {
    slot_of(slot).begin.store(0);
    return mapping;
  }
  slot_of(slot).broken.store(false);
  slot_of(slot).end.store(reinterpret_cast<std::uintptr_t>(at) + whole + page_size[0]);
  slot_of(slot).begin.store(reinterpret_cast<std::uintptr_t>(at));
  mapping.start_ = at;
  mapping.length_ = whole;
  mapping.slot_ = slot;
  mapping.bytes_ = {static_cast<const std::byte*>(at) + (offset - start), length};
  return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept { *this = std::move(other); }

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(length_, other.length_);
  std::swap(bytes_, other.bytes_);
  std::swap(slot_, other.slot_);
  return *this;
}

Mapping::~Mapping() {
  if (slot_ < 0) return;
  ::munmap(start_, length_);
  slot_of(slot_).end.store(0);
  slot_of(slot_).begin.store(0);
}

bool Mapping::intact() const { return slot_ < 0 || !slot_of(slot_).broken.load(); }

}  // namespace stepzero
