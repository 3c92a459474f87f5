#pragma once
// Weights are a function: weight(seed, tensor name, element index) -> number. Nothing is ever "the next" random
// number, so any slice can be made anywhere, in any order, by any number of threads, with the same bits on every
// SIMD level. kernels/fill.hpp makes the numbers.
#include <array>
#include <cstdint>
#include <string_view>

namespace stepzero {

// What a scheme assigns to a parameter.
struct Distribution {
  enum class Kind : std::uint8_t { constant, normal, uniform, truncated_normal };

  Kind kind = Kind::constant;
  double mean = 0;   // constant: the value
  double scale = 0;  // normal, truncated: standard deviation of the parent normal; uniform: half-width
  double cut = 0;    // truncated: the bound, in parent standard deviations; no value reaches mean +- cut * scale

  // Numbers that depend on each other, made as a whole (weights/structured_draw.hpp); `scale` is the std of one of them.
  // ramp: ln 1, ln 2, ... ln high, again and again; waves: sines and cosines of the place, the same in every draw; time_steps: the
  // inverse softplus of numbers uniform in the logarithm from low to high, and not below cut
  enum class Structure : std::uint8_t { none, orthogonal, diagonal, mimetic, ramp, waves, time_steps };
  Structure structure = Structure::none;
  double diagonal = 0;  // what stands on the diagonal besides the noise
  double low = 0, high = 0;

  [[nodiscard]] double std() const;  // of the values themselves: truncation has narrowed it
  [[nodiscard]] double second_moment() const { return mean * mean + std() * std(); }

  // gain times orthonormal rows or columns
  static Distribution orthogonal(double gain, std::int64_t rows, std::int64_t cols);
  static Distribution diagonal_and_noise(double diagonal, double noise, std::int64_t rows, std::int64_t cols);
  static Distribution structured(Structure structure, double std) { return {Kind::normal, 0, std, 0, structure, 0}; }

  static Distribution ramp(double count);
  static Distribution waves(double rows, double cols, bool halves);  // halves: all sines in front of all cosines, else in turns
  static Distribution time_steps(double least, double most, double floor);

  static Distribution constant(double value) { return {Kind::constant, value, 0, 0}; }
  static Distribution normal(double std, double mean = 0) { return {Kind::normal, mean, std, 0}; }
  static Distribution uniform(double half_width, double mean = 0) { return {Kind::uniform, mean, half_width, 0}; }
  static Distribution truncated(double parent_std, double cut, double mean = 0) { return {Kind::truncated_normal, mean, parent_std, cut}; }

  bool operator==(const Distribution&) const = default;
};

// A channel of sines or cosines of the place: their frequency, and which of the two it holds.
double wave_number(double channel, double channels, bool halves);
bool wave_is_sine(double channel, double channels, bool halves);

// The inverse softplus of least^(1 - u) most^u.
double time_step(double uniform, double least, double most, double floor);

// 2^64 Philox counters of one tensor: the key, and the upper half of the counter.
struct Stream {
  std::array<std::uint32_t, 2> key;
  std::uint64_t high;

  bool operator==(const Stream&) const = default;
};

// A 128-bit hash of seed and name, so that no two tensors share a stream. Stable for ever; see random.cpp.
Stream make_stream(std::uint64_t seed, std::string_view name);

}  // namespace stepzero
