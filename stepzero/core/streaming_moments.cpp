#include "stepzero/core/streaming_moments.hpp"

#include <algorithm>
#include <array>

#include "stepzero/core/parallel.hpp"

namespace stepzero {

namespace {

// sum x^2 / m2 up to which the raw sums are trusted.
constexpr double trusted_loss = 64;

template <class S>
Moments finite_run(const S* x, Index n, const RunSums& sums, const RunKernels<S>& kernels) {
  Moments out;
  out.count = static_cast<std::uint64_t>(n);
  out.zeros = sums.zeros;
  out.min = sums.min;
  out.max = sums.max;
  if (sums.min == sums.max) {  // a constant has no variance, not even by rounding
    out.mean = sums.min;
    return out;
  }
  const double size = static_cast<double>(n);
  out.mean = sums.sum / size;
  if (std::isinf(out.mean)) {  // doubles near the end of their range
    out.mean = 0;
    for (Index i = 0; i < n; ++i) out.mean += static_cast<double>(x[i]) / size;
    out.m2 = std::numeric_limits<double>::infinity();
    return out;
  }
  out.m2 = sums.squares - sums.sum * out.mean;
  if (out.m2 * trusted_loss >= sums.squares) return out;  // false also for the inf - inf of huge doubles

  const CentredSums centred = kernels.centred(x, n, out.mean);
  const double shift = centred.sum / size;  // the rounding of the first mean
  out.mean += shift;
  out.m2 = std::isinf(centred.squares) ? centred.squares : std::max(0.0, centred.squares - centred.sum * shift);
  return out;
}

}  // namespace

Moments merge_tree(std::span<const Moments> leaves) {
  if (leaves.size() == 1) return leaves[0];
  MomentsTree tree;
  for (const Moments& leaf : leaves) tree.push(leaf);
  return tree.finish();
}

void Moments::merge(const Moments& other) {
  nans += other.nans;
  infs += other.infs;
  zeros += other.zeros;
  if (other.count == 0) return;
  if (count == 0) {
    count = other.count;
    mean = other.mean;
    m2 = other.m2;
    min = other.min;
    max = other.max;
    return;
  }
  const double a = static_cast<double>(count);
  const double b = static_cast<double>(other.count);
  const double delta = other.mean - mean;
  const double share = b / (a + b);
  mean += delta * share;
  m2 += other.m2 + delta * delta * (a * share);
  count += other.count;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
}

void MomentsTree::push(const Moments& leaf) {
  Moments branch = leaf;
  for (std::uint64_t i = leaves_; (i & 1) != 0; i >>= 1) {
    open_.back().merge(branch);
    branch = open_.back();
    open_.pop_back();
  }
  open_.push_back(branch);
  ++leaves_;
}

Moments MomentsTree::finish() const {
  Moments out;
  for (auto left = open_.rbegin(); left != open_.rend(); ++left) {
    Moments branch = *left;
    branch.merge(out);
    out = branch;
  }
  return out;
}

template <class S>
RunSums run_sums(const S* x, Index n) {
  double sum[moment_lanes] = {};
  double squares[moment_lanes] = {};
  S low[moment_lanes];
  S high[moment_lanes];
  std::uint32_t zeros[moment_lanes] = {};
  std::fill_n(low, moment_lanes, x[0]);
  std::fill_n(high, moment_lanes, x[0]);
  const auto add = [&](Index lane, S value) {
    const double v = static_cast<double>(value);
    sum[lane] += v;
    squares[lane] += v * v;
    low[lane] = value < low[lane] ? value : low[lane];
    high[lane] = value > high[lane] ? value : high[lane];
    zeros[lane] += value == 0 ? 1 : 0;
  };
  Index i = 0;
  for (; i + moment_lanes <= n; i += moment_lanes) {
    for (Index lane = 0; lane < moment_lanes; ++lane) add(lane, x[i + lane]);
  }
  for (; i < n; ++i) add(i % moment_lanes, x[i]);
  RunSums out{.sum = add_lanes(sum), .squares = add_lanes(squares)};
  // -0 and 0 are one extreme: which of the two was met first must not show.
  out.min = static_cast<double>(*std::min_element(low, low + moment_lanes)) + 0.0;
  out.max = static_cast<double>(*std::max_element(high, high + moment_lanes)) + 0.0;
  for (const std::uint32_t z : zeros) out.zeros += z;
  return out;
}

template <class S>
CentredSums centred_sums(const S* x, Index n, double pivot) {
  double sum[moment_lanes] = {};
  double squares[moment_lanes] = {};
  const auto add = [&](Index lane, S value) {
    const double d = static_cast<double>(value) - pivot;
    sum[lane] += d;
    squares[lane] += d * d;
  };
  Index i = 0;
  for (; i + moment_lanes <= n; i += moment_lanes) {
    for (Index lane = 0; lane < moment_lanes; ++lane) add(lane, x[i + lane]);
  }
  for (; i < n; ++i) add(i % moment_lanes, x[i]);
  return {add_lanes(sum), add_lanes(squares)};
}

template <class S>
Moments run_moments(const S* x, Index n, const RunSums& sums, const RunKernels<S>& kernels) {
  // One NaN or Inf makes the sum NaN or Inf, so that a clean run pays nothing for the question.
  if (std::isfinite(sums.sum)) return finite_run(x, n, sums, kernels);
  std::array<S, moment_run> kept;
  Index size = 0;
  Moments lost;
  for (Index i = 0; i < n; ++i) {
    if (std::isnan(x[i])) {
      ++lost.nans;
    } else if (std::isinf(x[i])) {
      ++lost.infs;
    } else {
      kept[static_cast<std::size_t>(size++)] = x[i];
    }
  }
  if (size == 0) return lost;
  Moments out = finite_run(kept.data(), size, kernels.sums(kept.data(), size), kernels);
  out.merge(lost);
  return out;
}

template <class S>
Moments moments(View<const S> x) {
  if (x.rows <= 0 || x.cols <= 0) return {};
  const RunKernels<S> kernels;
  const Index runs = (x.cols + moment_run - 1) / moment_run;
  std::vector<Moments> parts(static_cast<std::size_t>(x.rows * runs));
  const Index grain = std::max<Index>(1, 65536 / std::min(x.cols, moment_run));
  parallel_ranges(x.rows * runs, grain, [&](Index begin, Index end) {
    for (Index p = begin; p < end; ++p) {
      const Index column = p % runs * moment_run;
      const S* run = x.row(p / runs) + column;
      const Index n = std::min(moment_run, x.cols - column);
      parts[static_cast<std::size_t>(p)] = run_moments(run, n, run_sums(run, n), kernels);
    }
  });
  MomentsTree all;
  for (auto run = parts.begin(); run != parts.end(); run += runs) all.push(merge_tree({run, run + runs}));
  return all.finish();
}

#define STEPZERO_INSTANTIATE(S)                                                        \
  template RunSums run_sums(const S*, Index);                                          \
  template CentredSums centred_sums(const S*, Index, double);                          \
  template Moments run_moments(const S*, Index, const RunSums&, const RunKernels<S>&); \
  template Moments moments(View<const S>);
STEPZERO_INSTANTIATE(float)
STEPZERO_INSTANTIATE(double)
#undef STEPZERO_INSTANTIATE

}  // namespace stepzero
