#pragma once
// One reading of a tensor's numbers: patterns counted, powers summed, and a step of W'W on the way.
#include <cstddef>
#include <cstdint>
#include <limits>

namespace stepzero::kernels {

inline constexpr std::size_t kPatterns = 65536;

struct PowerSums {
  double sums[4] = {};  // of (x - pivot)^k, k = 1 .. 4
  double pivot = 0;     // a float
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  std::uint64_t count = 0;  // finite ones; the others take no part in the sums
  std::uint64_t zeros = 0, subnormals = 0, nans = 0, infs = 0;

  void merge(const PowerSums& other);  // of the same pivot
};

enum class Stored : std::uint8_t { f32, bf16, f16 };

struct Rows {
  std::size_t count = 0, length = 0, stride = 0;  // in numbers
};

// Sizes (patterns without their sign) that occur, of positive and of negative numbers.
struct PatternRange {
  std::uint16_t low[2] = {0xFFFF, 0xFFFF};
  std::uint16_t high[2] = {0, 0};
};

// Counts patterns; of a float the upper half: sign, exponent, 7 bits. Adds to two tables of kPatterns side by side:
// neighbours that are equal do not wait for each other. Widens `range` to all that was counted.
void count_patterns(Stored stored, const void* x, const Rows& rows, std::uint32_t* tables, PatternRange& range);

// `x` holds the rows' numbers as stored, aligned for their type. Sums of floats are right to 1e-12, those of 16-bit numbers
// to 1e-7 of the powers' own size (3e-7 where a few outweigh all): who wants them exact counts patterns. 0 is the fastest
// pivot; one of few bits keeps differences exact.
PowerSums power_sums(Stored stored, const void* x, const Rows& rows, double pivot);

// Of every row y = sum_c w_c v_c, then z_c += y w_c. Equal rows give equal y; equal columns give equal z.
void gram_steps(Stored stored, const void* w, const Rows& rows, const float* v, float* z, float* y);

}  // namespace stepzero::kernels
