// Audit's readings of a checkpoint in the page cache, against what the memory gives. The fast sums are checked against the
// counted patterns first.
//
//     bench_audit FILE THREADS     one JSON line
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "bench/roof.hpp"
#include "stepzero/walks/audit.hpp"

namespace {

using namespace stepzero;

// Bytes a second that all threads together can read from memory.
double read_bandwidth() {
  constexpr std::size_t words = std::size_t{1} << 27;  // a gigabyte
  static std::vector<std::uint64_t> memory(words, 1);
  double best = 0;
  volatile std::uint64_t sink = 0;
  for (int round = 0; round < 5; ++round) {
    const double start = bench::now();
    constexpr Index pieces = 512;
    parallel_for(pieces, [&](Index i) {
      const std::uint64_t* const from = memory.data() + static_cast<std::size_t>(i) * (words / pieces);
      std::uint64_t sums[32] = {};
      for (std::size_t w = 0; w < words / pieces; w += 32) {
        for (std::size_t lane = 0; lane < 32; ++lane) sums[lane] += from[w + lane];
      }
      sink = sums[0] + sums[31];
    });
    best = std::max(best, static_cast<double>(words * 8) / (bench::now() - start));
  }
  (void)sink;
  return best;
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
  const auto seconds = [&](const auto& work) {
    double best = INFINITY;
    for (int round = 0; round < 5; ++round) {
      const double start = bench::now();
      work();
      best = std::min(best, bench::now() - start);
    }
    return best;
  };
  const double bytes = static_cast<double>(files->bytes());
  const double moments = seconds([&] { (void)take(true); });
  const double all = seconds([&] {
    const auto list = take(false);
    (void)find_similar(*files, list);
  });
  const double read = read_bandwidth();
  fmt::print(R"({{"bytes": {}, "read_gbs": {:.2f}, "moments_gbs": {:.2f}, "all_gbs": {:.2f}, "moments_s": {:.4f}}})"
             "\n",
             files->bytes(), read * 1e-9, bytes / moments * 1e-9, bytes / all * 1e-9, moments);
  return 0;
}
