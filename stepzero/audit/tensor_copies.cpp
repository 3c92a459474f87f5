#include "stepzero/audit/tensor_copies.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "stepzero/core/parallel.hpp"

namespace stepzero {

namespace {

constexpr std::size_t kLeast = 256;  // numbers without which nothing is said
constexpr double kAtFirstSight = 0.3;
constexpr double kSimilar = 0.5;

}  // namespace

double correlation(const std::vector<float>& a, const std::vector<float>& b, std::size_t most) {
  const std::size_t n = std::min({a.size(), b.size(), most});
  double sa = 0, sb = 0, aa = 0, bb = 0, ab = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    sa += x;
    sb += y;
    aa += x * x;
    bb += y * y;
    ab += x * y;
  }
  const double count = static_cast<double>(n);
  const double va = aa - sa * sa / count, vb = bb - sb * sb / count;
  return va > 0 && vb > 0 ? (ab - sa * sb / count) / std::sqrt(va * vb) : 0;
}

Expected<bool> same_bytes(const CheckpointFiles& files, const CheckpointTensor& a, const CheckpointFiles& other_files,
                          const CheckpointTensor& b) {
  if (a.bytes != b.bytes || a.shape != b.shape || a.encoding.name != b.encoding.name) return false;
  constexpr std::uint64_t step = std::uint64_t{8} << 20;
  for (std::uint64_t at = 0; at < a.bytes; at += step) {
    const std::uint64_t n = std::min(step, a.bytes - at);
    const auto left = files.map(a, at, n);
    if (!left) return std::unexpected(left.error());
    const auto right = other_files.map(b, at, n);
    if (!right) return std::unexpected(right.error());
    const bool equal = std::memcmp(left->get().data(), right->get().data(), n) == 0;
    if (auto fine = left->intact(); !fine) return std::unexpected(fine.error());
    if (auto fine = right->intact(); !fine) return std::unexpected(fine.error());
    if (!equal) return false;
  }
  return true;
}

Expected<std::vector<Similar>> find_similar(const CheckpointFiles& files, const std::vector<TensorCensus>& list) {
  std::vector<std::size_t> matrices;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const TensorCensus& c = list[i];
    if (c.analysed && c.tensor->shape.size() >= 2 && c.sample.size() >= kLeast && !c.whole.constant() && c.whole.nans + c.whole.infs == 0)
      matrices.push_back(i);
  }
  std::vector<std::vector<Similar>> found(matrices.size());
  parallel_for(static_cast<Index>(matrices.size()), [&](Index index) {
    const auto i = static_cast<std::size_t>(index);
    for (std::size_t j = i + 1; j < matrices.size(); ++j) {
      const auto &a = list[matrices[i]].sample, &b = list[matrices[j]].sample;
      if (std::abs(correlation(a, b, kLeast)) < kAtFirstSight) continue;
      const double r = correlation(a, b, a.size());
      if (std::abs(r) >= kSimilar) found[i].push_back({matrices[i], matrices[j], r, false});
    }
  });
  std::vector<Similar> out;
  for (const auto& some : found) out.insert(out.end(), some.begin(), some.end());
  for (Similar& s : out) {
    if (s.correlation < 0.999999) continue;
    const auto same = same_bytes(files, *list[s.first].tensor, files, *list[s.second].tensor);
    if (!same) return std::unexpected(same.error());
    s.same_bits = *same;
  }
  return out;
}

}  // namespace stepzero
