#pragma once
// How often each 16-bit pattern occurred. Weights use a few thousand of the 65536: only the stretch between the smallest
// and the largest of each sign is kept.
#include <array>
#include <cstdint>
#include <vector>

#include "stepzero/kernels/census.hpp"

namespace stepzero {

class PatternCounts {
 public:
  // Adds what count_patterns() left in its tables, and clears them.
  void take(std::uint32_t* tables, const kernels::PatternRange& range);
  void merge(const PatternCounts& other);

  [[nodiscard]] std::uint64_t operator[](std::uint32_t pattern) const;
  // Sizes (patterns without their sign) that may have been counted: [first, end).
  [[nodiscard]] std::uint32_t first(bool negative) const { return sides_[negative ? 1 : 0].first; }
  [[nodiscard]] std::uint32_t end(bool negative) const;

 private:
  struct Side {
    std::uint32_t first = 0;
    std::vector<std::uint64_t> counts;
  };
  static void widen(Side& side, std::uint32_t low, std::uint32_t high);

  std::array<Side, 2> sides_;  // positive, negative
};

}  // namespace stepzero
