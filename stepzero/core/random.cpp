#include "stepzero/core/random.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "stepzero/core/philox.hpp"

namespace stepzero {

namespace {

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

}  // namespace stepzero
