// Making weights: normal numbers in float32 and bfloat16, a second; and plain writing, for the whole command to be held
// against. The result is checked first: SIMD must give the bits of the plain reference, or nothing is timed.
//
//     bench_init numbers THREADS          one JSON line: million a second, and the FMA peak
//     bench_init write PATH FROM          seconds that write() of FROM's bytes to a new file PATH takes
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "bench/roof.hpp"
#include "stepzero/core/half.hpp"
#include "stepzero/core/random.hpp"
#include "stepzero/io/file.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/random_fill.hpp"
#include "stepzero/kernels/to_half.hpp"

namespace {

using namespace stepzero;

constexpr std::size_t kPiece = 1 << 16;  // as init cuts them
constexpr std::size_t kPieces = 128;

bool correct(const Distribution& law, const Stream& stream) {
  constexpr std::size_t blocks = 4096;
  std::vector<float> got(blocks * kernels::kRandomBlock), want(got.size());
  std::vector<std::uint16_t> narrow(got.size());
  fill(law, stream, 0, std::span<float>(got));
  kernels::reference::random_blocks(kernels::make_law(law), stream, 0, blocks, want.data());
  bool same = kernels::narrow_to_bfloat16(got, narrow.data()) && std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0;
  for (std::size_t i = 0; i < want.size(); ++i) same = same && narrow[i] == float_to_bfloat16(want[i]);
  return same;
}

// Every piece to a place of its own thread, as init does before it writes; the best of many rounds.
double million_a_second(const Distribution& law, const Stream& stream, bool bf16) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 40; ++round) {
    const double start = bench::now();
    parallel_for(kPieces, [&](Index i) {
      thread_local std::vector<float> numbers(kPiece);
      thread_local std::vector<std::uint16_t> narrow(kPiece);
      fill(law, stream, static_cast<std::uint64_t>(i) * kPiece, std::span<float>(numbers));
      if (bf16) (void)kernels::narrow_to_bfloat16(numbers, narrow.data());
    });
    best = std::min(best, bench::now() - start);
  }
  return static_cast<double>(kPieces * kPiece) / best * 1e-6;
}

int numbers(int threads) {
  const Distribution law = Distribution::normal(0.02);
  const Stream stream = make_stream(1, "bench");
  if (!correct(law, stream)) {
    fmt::print(stderr, "SIMD and reference differ\n");
    return 1;
  }
  set_threads(threads);
  fmt::print(R"({{"f32": {:.1f}, "bf16": {:.1f}, "fma_peak_gflops": {:.1f}}})"
             "\n",
             million_a_second(law, stream, false), million_a_second(law, stream, true), bench::fma_peak() * 1e-9);
  return 0;
}

int plain_write(const char* path, const char* from) {
  const auto file = InputFile::open(from);
  if (!file) return 1;
  std::vector<std::byte> bytes(file->size());
  if (!file->read(0, bytes)) return 1;
  const double start = bench::now();
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t put = ::write(fd, bytes.data() + at, std::min<std::size_t>(bytes.size() - at, 1 << 20));
    if (put <= 0) return 1;
    at += static_cast<std::size_t>(put);
  }
  if (::fsync(fd) != 0 || ::close(fd) != 0) return 1;
  fmt::print(R"({{"seconds": {:.6f}, "bytes": {}}})"
             "\n",
             bench::now() - start, bytes.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "numbers" && argc == 3) return numbers(std::atoi(argv[2]));
  if (mode == "write" && argc == 4) return plain_write(argv[2], argv[3]);
  fmt::print(stderr, "bench_init numbers THREADS | write PATH FROM\n");
  return 2;
}
