#include "stepzero/core/random.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "stepzero/core/error.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/philox.hpp"
#include "stepzero/kernels/random_fill.hpp"

namespace stepzero {

namespace {

constexpr std::uint64_t kGrain = 1 << 16;  // elements: some 50 microseconds of work, 256 KB

// Variance of a standard normal kept within +-c, that is 1 - 2 c phi(c) / erf(c / sqrt 2). Written as (M - 1) / M
// with M = erf(c / sqrt 2) / (2 c phi(c)) = sum_k c^(2k) / (1 * 3 * ... * (2k + 1)), small cuts cancel nothing.
double truncated_variance(double c) {
  if (c > 3) {
    const double phi = std::exp(-c * c / 2) / std::sqrt(2 * std::numbers::pi);
    return std::isinf(c) ? 1 : 1 - 2 * c * phi / std::erf(c / std::numbers::sqrt2);
  }
  double above_one = 0;
  double term = 1;
  for (int k = 1; k < 64; ++k) above_one += term *= c * c / (2 * k + 1);
  return above_one / (1 + above_one);
}

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

double Distribution::std() const {
  switch (kind) {
    case Kind::constant:
      return 0;
    case Kind::normal:
      return scale;
    case Kind::uniform:
      return scale / std::numbers::sqrt3;
    case Kind::truncated_normal:
      return scale * std::sqrt(truncated_variance(cut));
  }
  return 0;
}

Distribution Distribution::orthogonal(double gain, std::int64_t rows, std::int64_t cols) {
  return structured(Structure::orthogonal, gain / std::sqrt(static_cast<double>(std::max(rows, cols))));
}

Distribution Distribution::diagonal_and_noise(double diagonal, double noise, std::int64_t rows, std::int64_t cols) {
  const double share = static_cast<double>(std::min(rows, cols)) / (static_cast<double>(rows) * static_cast<double>(cols));
  Distribution d = structured(Structure::diagonal, std::sqrt(noise * noise + diagonal * diagonal * share));
  d.diagonal = diagonal;
  return d;
}

// Philox as a hash, in the way of Davies and Meyer: each eight bytes of the name (little-endian, the last padded
// with zeros) are the key of one step  state ^= philox(state, bytes).  The state starts as (seed, length), so names
// that differ only in their padding start apart, and a closing step with a fixed key mixes the empty name too.
Stream make_stream(std::uint64_t seed, std::string_view name) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto top = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  philox::Counter state = {low(seed), top(seed), low(name.size()), top(name.size())};
  const auto absorb = [&](philox::Key key) {
    const philox::Counter mixed = philox4x32_10(state, key);
    for (std::size_t i = 0; i < state.size(); ++i) state[i] ^= mixed[i];
  };
  for (std::size_t i = 0; i < name.size(); i += 8) {
    std::uint64_t bytes = 0;
    for (std::size_t j = i; j < std::min(i + 8, name.size()); ++j) {
      bytes |= std::uint64_t{static_cast<unsigned char>(name[j])} << (8 * (j - i));
    }
    absorb({low(bytes), top(bytes)});
  }
  absorb({0x70657473, 0x6F72657A});  // "stepzero"
  return {{state[0], state[1]}, state[2] | std::uint64_t{state[3]} << 32};
}

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
