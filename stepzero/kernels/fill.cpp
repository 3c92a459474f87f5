#include "stepzero/kernels/fill.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "stepzero/core/error.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/random_fill.hpp"

namespace stepzero {

namespace {

constexpr std::uint64_t kGrain = 1 << 16;  // elements: some 50 microseconds of work, 256 KB

void check(const Distribution& d) {
  constexpr double most = std::numeric_limits<float>::max();
  STEPZERO_CHECK(std::abs(d.mean) <= most);
  STEPZERO_CHECK(d.scale >= 0 && d.scale <= most);
  STEPZERO_CHECK(d.kind != Distribution::Kind::truncated_normal || d.cut > 0);
  STEPZERO_CHECK(d.structure == Distribution::Structure::none);
}

// Elements [first, first + n) in the calling thread: whole blocks go straight to their place.
void fill_serial(const kernels::RandomLaw& law, const Stream& stream, std::uint64_t first, std::span<float> out) {
  constexpr std::size_t size = kernels::kRandomBlock;
  if (law.kind == Distribution::Kind::constant) {
    std::ranges::fill(out, law.low);
    return;
  }
  while (!out.empty()) {
    const std::uint64_t block = first / size;
    const std::size_t skip = first % size;
    std::size_t n = out.size() / size * size;
    if (skip == 0 && n > 0) {
      kernels::random_blocks(law, stream, block, n / size, out.data());
    } else {
      float whole[size];
      kernels::random_blocks(law, stream, block, 1, whole);
      n = std::min(out.size(), size - skip);
      std::copy_n(whole + skip, n, out.begin());
    }
    first += n;
    out = out.subspan(n);
  }
}

}  // namespace

void fill(const Distribution& distribution, const Stream& stream, std::uint64_t first, std::span<float> out) {
  check(distribution);
  const kernels::RandomLaw law = kernels::make_law(distribution);
  if (out.size() <= kGrain) return fill_serial(law, stream, first, out);
  // Pieces begin at multiples of the grain in the tensor, not in the slice, so that only the ends are ragged.
  const std::uint64_t base = first / kGrain * kGrain;
  const std::uint64_t end = first + out.size();
  parallel_ranges(static_cast<Index>(end - base), kGrain, [&](Index from, Index to) {
    const std::uint64_t a = std::max(first, base + static_cast<std::uint64_t>(from));
    const std::uint64_t b = base + static_cast<std::uint64_t>(to);
    fill_serial(law, stream, a, out.subspan(a - first, b - a));
  });
}

void fill(const Distribution& distribution, const Stream& stream, std::uint64_t first, std::span<double> out) {
  check(distribution);
  const kernels::RandomLaw law = kernels::make_law(distribution);
  parallel_ranges(static_cast<Index>(out.size()), kGrain, [&](Index from, Index to) {
    std::array<float, 1024> narrow;
    auto at = static_cast<std::size_t>(from);
    while (at < static_cast<std::size_t>(to)) {
      const std::size_t n = std::min(narrow.size(), static_cast<std::size_t>(to) - at);
      fill_serial(law, stream, first + at, std::span(narrow).first(n));
      std::copy_n(narrow.begin(), n, out.begin() + static_cast<Index>(at));
      at += n;
    }
  });
}

}  // namespace stepzero
