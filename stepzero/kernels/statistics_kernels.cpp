#include "stepzero/kernels/statistics_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/statistics_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef STEPZERO_STATISTICS_PLAIN
#define STEPZERO_STATISTICS_PLAIN
namespace stepzero {
namespace {

template <class S>
double run_squares(const S* x, Index n) {
  double squares[moment_lanes] = {};
  Index i = 0;
  for (; i + moment_lanes <= n; i += moment_lanes) {
    for (Index lane = 0; lane < moment_lanes; ++lane) {
      const double v = static_cast<double>(x[i + lane]);
      squares[lane] += v * v;
    }
  }
  for (; i < n; ++i) squares[i % moment_lanes] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return add_lanes(squares);
}

template <class S>
void add_units(double* total, const S* const* rows, const S* scales, Index n) {
  for (Index i = 0; i < n; ++i) {
    const S v01 = rows[0][i] * scales[0] + rows[1][i] * scales[1];
    const S v23 = rows[2][i] * scales[2] + rows[3][i] * scales[3];
    total[i] += static_cast<double>(v01 + v23);
  }
}

}  // namespace
}  // namespace stepzero
#endif

// The SIMD twins. Element i stays in lane i mod 16 on every level: a narrower register takes a strip of those lanes and
// walks the run once per strip (it is in the first cache). Built with -ffp-contract=off: the only fused operation is the
// square of a float in double, which is exact and so rounds the same whether fused or not.
HWY_BEFORE_NAMESPACE();
namespace stepzero::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR  // no register to split in halves

RunSums SumsOfRun(const float* x, Index n) { return run_sums(x, n); }
CentredSums CentredSumsOfRun(const float* x, Index n, double pivot) { return centred_sums(x, n, pivot); }
double SquaresOfRun(const float* x, Index n) { return run_squares(x, n); }
void AddUnits(double* total, const float* const* rows, const float* scales, Index n) { add_units(total, rows, scales, n); }

#else

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::CappedTag<float, moment_lanes>;
using DoubleTag = hn::Repartition<double, FloatTag>;
using HalfTag = hn::Rebind<float, DoubleTag>;

static RunSums AddTail(const float* x, Index n, double* sum, double* squares, RunSums out) {
  for (Index i = 0; i < n; ++i) {
    const double v = static_cast<double>(x[i]);
    sum[i] += v;
    squares[i] += v * v;
    out.min = v < out.min ? v : out.min;
    out.max = v > out.max ? v : out.max;
    out.zeros += v == 0;
  }
  out.sum = add_lanes(sum);
  out.squares = add_lanes(squares);
  out.min += 0.0;  // no -0
  out.max += 0.0;
  return out;
}

RunSums SumsOfRun(const float* x, Index n) {
  const FloatTag df;
  const DoubleTag dd;
  const HalfTag dh;
  const Index width = static_cast<Index>(hn::Lanes(df));
  const Index half = width / 2;
  const Index full = n - n % moment_lanes;
  HWY_ALIGN double sum[moment_lanes];
  HWY_ALIGN double squares[moment_lanes];
  auto low = hn::Set(df, x[0]);
  auto high = low;
  std::uint64_t zeros = 0;
  for (Index strip = 0; strip < moment_lanes; strip += width) {
    auto sum0 = hn::Zero(dd);
    auto sum1 = hn::Zero(dd);
    auto squares0 = hn::Zero(dd);
    auto squares1 = hn::Zero(dd);
    for (Index i = strip; i < full; i += moment_lanes) {
      const auto v = hn::LoadU(df, x + i);
      low = hn::Min(v, low);
      high = hn::Max(v, high);
      zeros += hn::CountTrue(df, hn::Eq(v, hn::Zero(df)));
      // Widening from memory leaves the shuffle port alone.
      const auto v0 = hn::PromoteTo(dd, hn::LoadU(dh, x + i));
      const auto v1 = hn::PromoteTo(dd, hn::LoadU(dh, x + i + half));
      sum0 = hn::Add(sum0, v0);
      sum1 = hn::Add(sum1, v1);
      squares0 = hn::MulAdd(v0, v0, squares0);
      squares1 = hn::MulAdd(v1, v1, squares1);
    }
    hn::StoreU(sum0, dd, sum + strip);
    hn::StoreU(sum1, dd, sum + strip + half);
    hn::StoreU(squares0, dd, squares + strip);
    hn::StoreU(squares1, dd, squares + strip + half);
  }
  RunSums out;
  out.min = static_cast<double>(hn::GetLane(hn::MinOfLanes(df, low)));
  out.max = static_cast<double>(hn::GetLane(hn::MaxOfLanes(df, high)));
  out.zeros = zeros;
  return AddTail(x + full, n - full, sum, squares, out);
}

CentredSums CentredSumsOfRun(const float* x, Index n, double pivot) {
  const DoubleTag dd;
  const HalfTag dh;
  const Index width = static_cast<Index>(hn::Lanes(dd));
  const Index full = n - n % moment_lanes;
  const auto centre = hn::Set(dd, pivot);
  HWY_ALIGN double sum[moment_lanes];
  HWY_ALIGN double squares[moment_lanes];
  for (Index strip = 0; strip < moment_lanes; strip += width) {
    auto lane_sum = hn::Zero(dd);
    auto lane_squares = hn::Zero(dd);
    for (Index i = strip; i < full; i += moment_lanes) {
      const auto d = hn::Sub(hn::PromoteTo(dd, hn::LoadU(dh, x + i)), centre);
      lane_sum = hn::Add(lane_sum, d);
      lane_squares = hn::Add(lane_squares, hn::Mul(d, d));
    }
    hn::StoreU(lane_sum, dd, sum + strip);
    hn::StoreU(lane_squares, dd, squares + strip);
  }
  for (Index i = full; i < n; ++i) {
    const double d = static_cast<double>(x[i]) - pivot;
    sum[i - full] += d;
    squares[i - full] += d * d;
  }
  return {add_lanes(sum), add_lanes(squares)};
}

double SquaresOfRun(const float* x, Index n) {
  const DoubleTag dd;
  const HalfTag dh;
  const Index width = static_cast<Index>(hn::Lanes(dd));
  const Index full = n - n % moment_lanes;
  HWY_ALIGN double squares[moment_lanes];
  for (Index strip = 0; strip < moment_lanes; strip += 2 * width) {
    auto squares0 = hn::Zero(dd);
    auto squares1 = hn::Zero(dd);
    for (Index i = strip; i < full; i += moment_lanes) {
      const auto v0 = hn::PromoteTo(dd, hn::LoadU(dh, x + i));
      const auto v1 = hn::PromoteTo(dd, hn::LoadU(dh, x + i + width));
      squares0 = hn::MulAdd(v0, v0, squares0);
      squares1 = hn::MulAdd(v1, v1, squares1);
    }
    hn::StoreU(squares0, dd, squares + strip);
    hn::StoreU(squares1, dd, squares + strip + width);
  }
  for (Index i = full; i < n; ++i) squares[i - full] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return add_lanes(squares);
}

void AddUnits(double* total, const float* const* rows, const float* scales, Index n) {
  const FloatTag df;
  const DoubleTag dd;
  const HalfTag dh;
  const Index width = static_cast<Index>(hn::Lanes(df));
  const float *x0 = rows[0], *x1 = rows[1], *x2 = rows[2], *x3 = rows[3];
  const auto s0 = hn::Set(df, scales[0]);
  const auto s1 = hn::Set(df, scales[1]);
  const auto s2 = hn::Set(df, scales[2]);
  const auto s3 = hn::Set(df, scales[3]);
  Index i = 0;
  for (; i + width <= n; i += width) {
    const auto v01 = hn::Add(hn::Mul(hn::LoadU(df, x0 + i), s0), hn::Mul(hn::LoadU(df, x1 + i), s1));
    const auto v23 = hn::Add(hn::Mul(hn::LoadU(df, x2 + i), s2), hn::Mul(hn::LoadU(df, x3 + i), s3));
    const auto v = hn::Add(v01, v23);
    double* low = total + i;
    double* high = low + width / 2;
    hn::StoreU(hn::Add(hn::LoadU(dd, low), hn::PromoteTo(dd, hn::LowerHalf(dh, v))), dd, low);
    hn::StoreU(hn::Add(hn::LoadU(dd, high), hn::PromoteTo(dd, hn::UpperHalf(dh, v))), dd, high);
  }
  for (; i < n; ++i) {
    total[i] += static_cast<double>((x0[i] * scales[0] + x1[i] * scales[1]) + (x2[i] * scales[2] + x3[i] * scales[3]));
  }
}

#endif

}  // namespace stepzero::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero {

HWY_EXPORT(SumsOfRun);
HWY_EXPORT(CentredSumsOfRun);
HWY_EXPORT(SquaresOfRun);
HWY_EXPORT(AddUnits);

template <class S>
StatisticsKernels<S> plain_kernels() {
  return {{run_sums<S>, centred_sums<S>}, run_squares<S>, add_units<S>};
}

template <>
StatisticsKernels<float> best_kernels() {
  // Otherwise the tables still point at Highway's chooser, which would then run at every call.
  hwy::ChosenTarget& chosen = hwy::GetChosenTarget();
  if (!chosen.IsInitialized()) chosen.Update(hwy::SupportedTargets());
  return {{&HWY_DYNAMIC_DISPATCH(SumsOfRun), &HWY_DYNAMIC_DISPATCH(CentredSumsOfRun)},
          &HWY_DYNAMIC_DISPATCH(SquaresOfRun),
          &HWY_DYNAMIC_DISPATCH(AddUnits)};
}

template <>
StatisticsKernels<double> best_kernels() {
  return plain_kernels<double>();
}

template StatisticsKernels<float> plain_kernels();
template StatisticsKernels<double> plain_kernels();

}  // namespace stepzero
#endif  // HWY_ONCE
