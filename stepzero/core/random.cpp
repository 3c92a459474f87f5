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

Distribution Distribution::ramp(double count) {
  Distribution d = structured(Structure::ramp, 0);
  double squares = 0;
  for (double k = 1; k <= count; ++k) {
    d.mean += std::log(k) / count;
    squares += std::log(k) * std::log(k) / count;
  }
  d.scale = std::sqrt(std::max(squares - d.mean * d.mean, 0.0));
  d.high = count;
  return d;
}

Distribution Distribution::waves(double rows, double cols, bool halves) {
  Distribution d = structured(Structure::waves, 0);
  d.low = halves ? 1 : 0;
  d.high = rows;
  for (double c = 0; c < cols; ++c) {  // sum over the places p of sin or cos of w p
    const double w = wave_number(c, cols, halves), half = std::sin(w / 2);
    const double turns = half == 0 ? rows : std::sin(rows * w / 2) / half, middle = (rows - 1) * w / 2;
    d.mean += turns * (wave_is_sine(c, cols, halves) ? std::sin(middle) : std::cos(middle)) / (rows * cols);
  }
  d.scale = std::sqrt(std::max(0.5 - d.mean * d.mean, 0.0));
  return d;
}

Distribution Distribution::time_steps(double least, double most, double floor) {
  Distribution d = structured(Structure::time_steps, 0);
  d.low = least;
  d.high = most;
  d.cut = floor;
  constexpr int steps = 2000;
  double squares = 0;
  for (int i = 0; i < steps; ++i) {
    const double x = time_step((i + 0.5) / steps, least, most, floor);
    d.mean += x / steps;
    squares += x * x / steps;
  }
  d.scale = std::sqrt(std::max(squares - d.mean * d.mean, 0.0));
  return d;
}

double wave_number(double channel, double channels, bool halves) {
  if (!halves) return std::pow(10000.0, -2 * std::floor(channel / 2) / channels);
  const double half = std::floor(channels / 2);
  return std::exp(-std::log(10000.0) / std::max(half - 1, 1.0) * std::fmod(channel, half));
}

bool wave_is_sine(double channel, double channels, bool halves) {
  return halves ? channel < std::floor(channels / 2) : std::fmod(channel, 2) == 0;
}

double time_step(double uniform, double least, double most, double floor) {
  const double dt = std::max(std::exp(std::log(least) + uniform * (std::log(most) - std::log(least))), floor);
  return dt + std::log(-std::expm1(-dt));
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
