// Audit's readings of a checkpoint in the page cache, against what the memory gives. The fast sums are checked against the
// counted patterns first.
//
//     bench_audit FILE THREADS     one JSON line
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>

#include "bench/roof.hpp"
#include "stepzero/audit/audit.hpp"

namespace {

using namespace stepzero;

// The sum of all bytes' words, every one of them: wide loads, so that nothing but memory is waited for.
__attribute__((target("avx512f"))) std::uint64_t sum_wide(const std::byte* from, std::size_t bytes) {
  using V = std::uint64_t __attribute__((vector_size(64)));
  V a{}, b{}, c{}, d{};
  for (std::size_t i = 0; i < bytes; i += 4 * sizeof(V)) {
    V v[4];
    std::memcpy(v, from + i, sizeof v);
    a += v[0];
    b += v[1];
    c += v[2];
    d += v[3];
  }
  a += b + c + d;
  return a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}
std::uint64_t sum_plain(const std::byte* from, std::size_t bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + i, 8);
    sum += word;
  }
  return sum;
}
std::uint64_t sum_of(const std::byte* from, std::size_t bytes) {
  return __builtin_cpu_supports("avx512f") ? sum_wide(from, bytes) : sum_plain(from, bytes);
}

constexpr std::size_t kGigabyte = std::size_t{1} << 30;

template <class Work>
double best_of_5(const Work& work) {
  double best = INFINITY;
  for (int round = 0; round < 5; ++round) {
    const double start = bench::now();
    work();
    best = std::min(best, bench::now() - start);
  }
  return best;
}

// Bytes a second that all threads together can read from memory: a gigabyte of our own, in huge pages.
double read_bandwidth() {
  void* const memory = ::mmap(nullptr, kGigabyte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  (void)::madvise(memory, kGigabyte, MADV_HUGEPAGE);
  std::memset(memory, 1, kGigabyte);
  constexpr Index pieces = 512;
  std::vector<std::uint64_t> sums(pieces);
  const double seconds = best_of_5([&] {
    parallel_for(pieces, [&](Index i) {
      const auto at = static_cast<std::size_t>(i);
      sums[at] = sum_of(static_cast<const std::byte*>(memory) + at * (kGigabyte / pieces), kGigabyte / pieces);
    });
  });
  const std::uint64_t expected = kGigabyte / pieces / 8 * 0x0101010101010101U;
  if (std::ranges::count(sums, expected) != pieces) return 0;
  ::munmap(memory, kGigabyte);
  return static_cast<double>(kGigabyte) / seconds;
}

// The same sum over the file as it lies in the page cache, mapped by the piece as audit maps it.
double file_bandwidth(const char* path) {
  const auto file = InputFile::open(path);
  if (!file) return 0;
  constexpr std::uint64_t piece = 1 << 22;
  const auto pieces = static_cast<Index>(file->size() / piece);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(pieces));
  const double seconds = best_of_5([&] {
    parallel_for(pieces, [&](Index i) {
      const Mapping mapping = file->map(static_cast<std::uint64_t>(i) * piece, piece);
      sums[static_cast<std::size_t>(i)] = sum_of(mapping.bytes().data(), piece);
    });
  });
  return static_cast<double>(pieces) * static_cast<double>(piece) / seconds;
}

bool close(const Summary& a, const Summary& b) {
  const auto near = [](double x, double y, double scale) { return std::abs(x - y) <= 1e-7 * scale; };
  return a.count == b.count && a.zeros == b.zeros && a.min == b.min && a.max == b.max && near(a.mean, b.mean, b.std) &&
         near(a.std, b.std, b.std) && std::abs(a.kurtosis - b.kurtosis) <= 1e-6;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  set_threads(std::atoi(argv[2]));
  const auto files = CheckpointFiles::open(argv[1]);
  if (!files) {
    fmt::print(stderr, "{}\n", files.error().message);
    return 1;
  }
  const Subject subject = make_subject(*files, std::nullopt);
  const auto tensors = subject.tensors();
  const auto layouts = subject.layouts();
  const auto take = [&](bool moments_only) { return take_census(*files, tensors, layouts, {.moments_only = moments_only}).value(); };
  const auto fast = take(true), slow = take(false);
  for (std::size_t i = 0; i < fast.size(); ++i) {
    if (close(fast[i].whole, slow[i].whole)) continue;
    fmt::print(stderr, "{}: sums and counts differ\n", fast[i].tensor->name);
    return 1;
  }
  const double bytes = static_cast<double>(files->bytes());
  const double moments = best_of_5([&] { (void)take(true); });
  const double all = best_of_5([&] {
    const auto list = take(false);
    (void)find_similar(*files, list);
  });
  const double read = read_bandwidth();
  fmt::print(R"({{"bytes": {}, "read_gbs": {:.2f}, "file_gbs": {:.2f}, "moments_gbs": {:.2f}, "all_gbs": {:.2f}, "moments_s": {:.4f}}})"
             "\n",
             files->bytes(), read * 1e-9, file_bandwidth(argv[1]) * 1e-9, bytes / moments * 1e-9, bytes / all * 1e-9, moments);
  return 0;
}
