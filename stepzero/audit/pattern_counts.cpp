#include "stepzero/audit/pattern_counts.hpp"

#include <algorithm>

namespace stepzero {

namespace {

constexpr std::uint32_t kSign = 0x8000U;

}  // namespace

void PatternCounts::widen(Side& side, std::uint32_t low, std::uint32_t high) {
  if (side.counts.empty()) side.first = low;
  if (low < side.first) {
    side.counts.insert(side.counts.begin(), side.first - low, 0);
    side.first = low;
  }
  if (high >= side.first + side.counts.size()) side.counts.resize(high - side.first + 1);
}

void PatternCounts::take(std::uint32_t* tables, const kernels::PatternRange& range) {
  for (std::size_t s = 0; s < sides_.size(); ++s) {
    if (range.low[s] > range.high[s]) continue;
    widen(sides_[s], range.low[s], range.high[s]);
    const std::size_t n = std::size_t{range.high[s]} - range.low[s] + 1;
    std::uint32_t* const even = tables + (s == 0 ? 0 : kSign) + range.low[s];
    std::uint32_t* const odd = even + kernels::kPatterns;
    std::uint64_t* const to = sides_[s].counts.data() + (range.low[s] - sides_[s].first);
    for (std::size_t i = 0; i < n; ++i) to[i] += std::uint64_t{even[i]} + odd[i];
    std::fill_n(even, n, 0U);
    std::fill_n(odd, n, 0U);
  }
}

void PatternCounts::merge(const PatternCounts& other) {
  for (std::size_t s = 0; s < sides_.size(); ++s) {
    const Side& from = other.sides_[s];
    if (from.counts.empty()) continue;
    widen(sides_[s], from.first, other.end(s == 1) - 1);
    for (std::size_t i = 0; i < from.counts.size(); ++i) sides_[s].counts[from.first - sides_[s].first + i] += from.counts[i];
  }
}

std::uint64_t PatternCounts::operator[](std::uint32_t pattern) const {
  const Side& side = sides_[(pattern & kSign) == 0 ? 0 : 1];
  const std::uint32_t size = pattern & ~kSign;
  return size >= side.first && size - side.first < side.counts.size() ? side.counts[size - side.first] : 0;
}

std::uint32_t PatternCounts::end(bool negative) const {
  const Side& side = sides_[negative ? 1 : 0];
  return side.first + static_cast<std::uint32_t>(side.counts.size());
}

}  // namespace stepzero
