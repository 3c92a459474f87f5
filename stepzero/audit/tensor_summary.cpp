#include "stepzero/audit/tensor_summary.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/core/half.hpp"

namespace stepzero {

namespace {

constexpr std::uint64_t kKnots = 64;
constexpr std::uint32_t kSign = 0x8000U;

double value_of(Patterns p, std::uint32_t pattern) {
  const auto bits = static_cast<std::uint16_t>(pattern);
  return static_cast<double>(p == Patterns::f16 ? half_to_float(bits) : bfloat16_to_float(bits));
}

// The largest finite size, as a pattern.
std::uint32_t largest_pattern(Patterns p) { return p == Patterns::f16 ? 0x7BFFU : 0x7F7FU; }

struct Bin {
  double value;       // of the pattern
  double upper_edge;  // what lies above it belongs to the next
  std::uint64_t count;
};

// Every finite pattern that occurs, from the smallest number to the largest. -0 counts with 0.
std::vector<Bin> bins_of(Patterns p, const PatternCounts& counts) {
  const std::uint32_t last = largest_pattern(p);
  const bool rounded = p != Patterns::upper_halves;  // else cut: a bin reaches from its size to the next one's
  const auto size = [&](std::uint32_t pattern) { return value_of(p, std::min(pattern, last)); };
  std::vector<Bin> bins;
  for (std::uint32_t s = std::min(last + 1, counts.end(true)); s-- > std::max(1U, counts.first(true));) {
    if (const std::uint64_t n = counts[kSign | s]; n > 0) bins.push_back({-size(s), rounded ? -(size(s) + size(s - 1)) / 2 : -size(s), n});
  }
  if (const std::uint64_t n = counts[0] + counts[kSign]; n > 0) bins.push_back({0, rounded ? size(1) / 2 : size(1), n});
  for (std::uint32_t s = std::max(1U, counts.first(false)); s < std::min(last + 1, counts.end(false)); ++s) {
    if (const std::uint64_t n = counts[s]; n > 0) bins.push_back({size(s), rounded ? (size(s) + size(s + 1)) / 2 : size(s + 1), n});
  }
  return bins;
}

void shape_of(Summary& out, double m2, double m3, double m4) {
  const double n = static_cast<double>(out.count);
  if (out.count == 0) return;
  const double variance = m2 / n;
  out.std = std::sqrt(variance);
  if (variance <= 0 || out.constant()) {
    out.std = 0;
    return;
  }
  out.skew = m3 / n / (variance * out.std);
  out.kurtosis = m4 / n / (variance * variance);
}

void moments_of(Summary& out, const std::vector<Bin>& bins) {
  double sum = 0, correction = 0;
  for (const Bin& bin : bins) {  // compensated: counts times values are exact, their sum need not be
    const double term = static_cast<double>(bin.count) * bin.value - correction;
    const double next = sum + term;
    correction = (next - sum) - term;
    sum = next;
  }
  out.mean = out.count > 0 ? sum / static_cast<double>(out.count) : 0;
  double m2 = 0, m3 = 0, m4 = 0;
  for (const Bin& bin : bins) {
    const double d = bin.value - out.mean, n = static_cast<double>(bin.count);
    m2 += n * d * d;
    m3 += n * d * d * d;
    m4 += n * (d * d) * (d * d);
  }
  shape_of(out, m2, m3, m4);
}

void moments_of(Summary& out, const kernels::PowerSums& s) {
  out.count = s.count;
  if (s.count == 0) return;
  const double n = static_cast<double>(s.count);
  const double shift = s.sums[0] / n;
  out.mean = s.pivot + shift;
  out.min = s.min;
  out.max = s.max;
  const double m2 = s.sums[1] - n * shift * shift;
  const double m3 = s.sums[2] - 3 * shift * s.sums[1] + 2 * n * shift * shift * shift;
  const double m4 = s.sums[3] - 4 * shift * s.sums[2] + 6 * shift * shift * s.sums[1] - 3 * n * (shift * shift) * (shift * shift);
  shape_of(out, std::max(m2, 0.0), m3, m4);
}

void special_of(Summary& out, Patterns p, const PatternCounts& counts) {
  const std::uint32_t last = largest_pattern(p), subnormal = p == Patterns::f16 ? 0x3FFU : 0x7FU;
  for (const std::uint32_t sign : {0U, kSign}) {
    out.infs += counts[sign | (last + 1)];
    const std::uint32_t first = counts.first(sign != 0), end = counts.end(sign != 0);
    for (std::uint32_t s = std::max(last + 2, first); s < end; ++s) out.nans += counts[sign | s];
    for (std::uint32_t s = std::max(1U, first); s < std::min(subnormal + 1, end); ++s) out.subnormals += counts[sign | s];
  }
  out.zeros = counts[0] + counts[kSign];
}

}  // namespace

double Summary::largest() const { return std::max(std::abs(min), std::abs(max)); }

Summary summarise(const kernels::PowerSums& sums) {
  Summary out;
  moments_of(out, sums);
  out.zeros = sums.zeros;
  out.subnormals = sums.subnormals;
  out.nans = sums.nans;
  out.infs = sums.infs;
  return out;
}

Summary summarise(Patterns p, const PatternCounts& counts, const kernels::PowerSums* sums) {
  Summary out;
  const std::vector<Bin> bins = bins_of(p, counts);
  std::uint64_t total = 0;
  for (const Bin& bin : bins) total += bin.count;
  if (sums != nullptr) {
    out = summarise(*sums);
  } else {
    special_of(out, p, counts);
    out.count = total;
    if (!bins.empty()) out.min = bins.front().value;
    if (!bins.empty()) out.max = bins.back().value;
    moments_of(out, bins);
  }
  std::uint64_t below = 0, knot = 1;
  std::size_t level = 0;
  for (const Bin& bin : bins) {
    below += bin.count;
    for (; level < Summary::kLevels.size() && static_cast<double>(below) >= Summary::kLevels[level] * static_cast<double>(total); ++level)
      out.quantiles[level] = std::clamp(bin.value, out.min, out.max);
    if (below * kKnots < knot * total || below == total) continue;
    out.knots.push_back({bin.upper_edge, below});
    knot = below * kKnots / total + 1;
  }
  return out;
}

}  // namespace stepzero
