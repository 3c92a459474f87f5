#include <cmath>

#include <fmt/format.h>

#include "stepzero/report/checks.hpp"

namespace stepzero {

namespace {

constexpr double fp16_largest = 65504;
constexpr double fp16_smallest_normal = 0x1p-14;
constexpr double fp16_smallest = 0x1p-24;
constexpr double e4m3_largest = 448;
constexpr double e4m3_smallest = 0x1p-9;
constexpr double outlier = 6;             // among a million Gaussian numbers the largest is five deviations off
constexpr double bf16_half_ulp = 0x1p-9;  // relative, at worst

double size_of(const NodeSignal& n) { return std::sqrt(best(n.forward.second_moment)); }

bool broken(const Value& v) { return (v.predicted && !std::isfinite(*v.predicted)) || (v.measured && !std::isfinite(*v.measured)); }

void add_broken(const std::string& where, const char* what, Findings& out) {
  out.push_back({"not-finite", Severity::error, where, fmt::format("{} is not a finite number", what),
                 "this node is the first on the way: look at what it reads and at its weights"});
}

}  // namespace

// The first on the way down, then on the way up.
void check_finite(const Signal& s, Findings& out) {
  for (const NodeSignal& n : s.nodes) {
    if (broken(n.forward.second_moment)) return add_broken(n.name, "E[x^2]", out);
  }
  if (broken(s.loss)) return add_broken("loss", "the loss", out);
  for (std::size_t i = s.nodes.size(); i-- > 0;) {
    if (broken(s.nodes[i].backward.norm)) return add_broken(s.nodes[i].name, "the gradient's norm", out);
  }
  for (const ParameterSignal& p : s.parameters) {
    if (broken(p.gradient_norm)) return add_broken(p.name, "the gradient's norm", out);
  }
}

void check_half_precision(const Signal& s, Findings& out) {
  const NodeSignal *largest = nullptr, *smallest = nullptr;
  std::size_t flushed = 0;
  const auto gradient = [](const NodeSignal& n) { return std::sqrt(best(n.backward.second_moment)); };
  for (const NodeSignal& n : s.nodes) {
    if (size_of(n) * outlier > fp16_largest && (largest == nullptr || size_of(n) > size_of(*largest))) largest = &n;
    if (!(gradient(n) > 0 && gradient(n) < fp16_smallest)) continue;
    ++flushed;
    if (smallest == nullptr || gradient(n) < gradient(*smallest)) smallest = &n;
  }
  if (largest != nullptr) {
    out.push_back({"fp16-overflow",
                   Severity::warning,
                   largest->name,
                   fmt::format("numbers of size {:.3g}, six times that in the tails: float16 ends at 65504", size_of(*largest)),
                   "bfloat16",
                   {"largest size", size_of(*largest), std::log(size_of(*largest) * outlier / fp16_largest)}});
  }
  if (smallest != nullptr) {
    const double scale = std::exp2(std::ceil(std::log2(fp16_smallest_normal / gradient(*smallest))));
    out.push_back({"fp16-underflow",
                   Severity::note,
                   smallest->name,
                   fmt::format("gradients of size {:.2g} at {} nodes, for this batch: float16 knows nothing below {:.2g}",
                               gradient(*smallest), flushed, fp16_smallest),
                   fmt::format("a loss scale of at least {:.0f} in float16; bfloat16 needs none", scale),
                   {"smallest gradient", gradient(*smallest), std::log(fp16_smallest / gradient(*smallest))}});
  }
}

void check_quarter_precision(const Signal& s, Findings& out) {
  const NodeSignal* worst = nullptr;
  std::size_t outside = 0;
  const auto beyond = [](const NodeSignal& n) {  // how far outside, as a factor
    const double size = size_of(n);
    return size > 0 ? std::max(size * outlier / e4m3_largest, e4m3_smallest / size) : 0;
  };
  for (const NodeSignal& n : s.nodes) {
    if (!(beyond(n) > 1)) continue;
    ++outside;
    if (worst == nullptr || beyond(n) > beyond(*worst)) worst = &n;
  }
  if (worst == nullptr) return;
  out.push_back({"fp8-range",
                 Severity::note,
                 worst->name,
                 fmt::format("numbers of size {:.3g}; {} of {} nodes lie outside what fp8 E4M3 holds unscaled, {:.2g} to 448 with six "
                             "deviations of room",
                             size_of(*worst), outside, s.nodes.size(), e4m3_smallest),
                 "a scale for each tensor where these nodes are stored in fp8",
                 {"size", size_of(*worst), std::log(beyond(*worst))}});
}

void check_rounding(const Signal& s, const Stack& stack, Findings& out) {
  double least = 1;
  std::size_t where = 0, lost = 0;
  for (std::size_t l = 0; l < stack.depth(); ++l) {
    const double ratio = std::sqrt(added_share(s, stack, l));
    if (!(ratio > 0 && ratio < bf16_half_ulp)) continue;
    ++lost;
    if (ratio < least) least = ratio, where = l;
  }
  if (lost == 0) return;
  out.push_back({"bf16-rounding",
                 Severity::note,
                 stack.block(where),
                 fmt::format("the block adds {:.2g} of the stream's size, and so do {} of {} blocks: below 2^-9 = {:.2g} a bfloat16 sum "
                             "rounds it away",
                             least, lost, stack.depth(), bf16_half_ulp),
                 "keep the residual stream in float32",
                 {"least that a block adds, of the stream's size", least, std::log(bf16_half_ulp / least)}});
}

}  // namespace stepzero
