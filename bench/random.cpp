// How many random weights a second. The result is checked first: the SIMD level of this machine must give the bits
// of the plain reference, or nothing is timed.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <fmt/core.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/random.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/random_fill.hpp"

namespace {

using stepzero::Distribution;

constexpr std::size_t kCount = 1 << 20;  // 4 MB, as large as the matrices of a small model; beyond any L1 or L2
constexpr int kRuns = 200;

struct Row {
  const char* name;
  Distribution distribution;
};

const Row kRows[] = {{"normal", Distribution::normal(0.02)},
                     {"normal, mean 1", Distribution::normal(0.02, 1)},
                     {"truncated at 2", Distribution::truncated(0.02, 2)},
                     {"truncated at 3", Distribution::truncated(0.02, 3)},
                     {"uniform", Distribution::uniform(0.02)}};

// The best of many runs: the machine may be shared.
template <class Body>
double million_a_second(std::size_t count, int runs, const Body& body) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return static_cast<double>(count) / best / 1e6;
}

bool same_as_reference(const Row& row, const stepzero::Stream& stream) {
  constexpr std::size_t blocks = 4096;
  std::vector<float> got(blocks * stepzero::kernels::kRandomBlock);
  std::vector<float> want(got.size());
  stepzero::fill(row.distribution, stream, 0, std::span<float>(got));
  stepzero::kernels::reference::random_blocks(stepzero::kernels::make_law(row.distribution), stream, 0, blocks, want.data());
  return std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0;
}

double standard_library(std::vector<float>& out) {
  std::mt19937_64 engine(1);
  std::normal_distribution<float> normal(0, 0.02F);
  const std::size_t count = out.size() / 4;
  return million_a_second(count, 5, [&] { std::generate_n(out.begin(), count, [&] { return normal(engine); }); });
}

}  // namespace

int main() {
  const stepzero::Stream stream = stepzero::make_stream(1, "bench");
  for (const Row& row : kRows) {
    if (!same_as_reference(row, stream)) {
      fmt::print("{}: SIMD and reference differ\n", row.name);
      return 1;
    }
  }
  std::vector<float> out(kCount);
  const double standard = standard_library(out);
  stepzero::set_threads(0);
  const int all = stepzero::threads();
  fmt::print("million a second            1 thread {:4} threads   one thread / std::normal_distribution\n", all);
  for (const Row& row : kRows) {
    double speed[2];
    for (int i = 0; i < 2; ++i) {
      stepzero::set_threads(i == 0 ? 1 : 0);
      speed[i] = million_a_second(kCount, kRuns, [&] { stepzero::fill(row.distribution, stream, 0, std::span<float>(out)); });
    }
    fmt::print("{:<26} {:9.0f} {:12.0f} {:12.1f}\n", row.name, speed[0], speed[1], speed[0] / standard);
  }
  fmt::print("{:<26} {:9.0f}\n", "std::normal_distribution", standard);
  return 0;
}
