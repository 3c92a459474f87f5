#pragma once
// Finite width of functions applied number by number: Elementwise, Softcap, Clip.
//
// The kernel is a curved function of the cosine rho, so its mean over draws is not its value at the mean: it is averaged over rho +- one
// standard deviation, right to second order (Blur). Deviations of sizes go through f by the power d ln E f^2 / d ln E x^2, those of
// cosines by the slope of the kernel.
// Derived in docs/derivations/elementwise.md
#include <algorithm>
#include <cmath>
#include <concepts>
#include <tuple>

#include "stepzero/ops/finite/carry.hpp"
#include "stepzero/ops/function_kernel.hpp"

namespace stepzero {

template <class T>
concept FunctionOp = requires(const T& op, const PushDoor& down, const PullDoor& up, const Blur& blur) {
  { op.value()(1.0) } -> std::same_as<double>;
  { op.slope()(1.0) } -> std::same_as<double>;
  { op.push_blurred(down, blur) } -> std::same_as<Moment>;
  { op.pull_blurred(up, blur) } -> std::same_as<Pulled>;
};

namespace finite {

// The fluctuations behind f, its slopes taken at the mean standard deviation of x.
template <class F>
Fluctuation of_function(const DownWire& x, const F& f) {
  Fluctuation y;
  const double std = mean_std(x.K);
  const auto [square, slope] = square_and_growth(f, std);
  if (!(square > 0)) return y;
  const double fourth = expect([&](double u) { return f(u) * f(u) * f(u) * f(u); }, std);
  y.drift = slope * slope * x.f.drift;
  y.token_drift = slope * slope * x.f.token_drift;
  y.lone = slope * slope * x.f.lone;
  y.sampling = fourth / (square * square) - 1;
  // a cosine rho becomes kappa(rho): deviations are multiplied by the slope of kappa, and counted in units of the output's contrast
  const std::vector<double> c = hermite_row(f, std);
  const double rho = std::clamp(x.K.mean_cosine(), 0.0, 0.999);
  double kappa = 0, rise = 0;
  for (std::size_t k = c.size(); k-- > 0;) {
    rise = rise * rho + kappa;
    kappa = kappa * rho + c[k] * c[k];
  }
  const double apart = kappa < square ? rise * (1 - rho) / (square - kappa) : 1;
  const double pair = apart * (1 + rho) * square / (square + kappa);
  y.noise = pair * pair * x.shared_noise() + (x.f.noise - x.shared_noise());
  y.take_jitter(x.f, pair * pair);
  y.thins = slope * x.f.thins;
  y.swing = apart * apart * x.f.swing;
  return y;
}

// Second moments of f and f' of a Gaussian, how they grow with its variance, and how they are correlated.
struct FunctionSizes {
  double variance = 0, square = 0, growth = 0, steep = 0, steepening = 0, both = 0;
  double radials = 0, meet = 0;  // E (f'(x) x)^2, E f(x) f'(x) x
};
template <class F, class Slope>
FunctionSizes function_sizes(const F& f, const Slope& slope, double std) {
  FunctionSizes out{.variance = std * std};
  std::tie(out.square, out.growth) = square_and_growth(f, std);
  std::tie(out.steep, out.steepening) = square_and_growth(slope, std);
  if (!(out.square > 0 && out.steep > 0)) return out;
  const auto radial = [&](double u) { return slope(u) * u; };
  out.both = expect([&](double u) { return f(u) * f(u) * slope(u) * slope(u); }, std) / (out.square * out.steep) - 1;
  out.radials = expect([&](double u) { return radial(u) * radial(u); }, std);
  out.meet = expect([&](double u) { return f(u) * radial(u); }, std);
  return out;
}

// A norm behind f makes the gradient small in draws where f(x) is large (damp), and removes its part along f(x) (along). f'(x) is
// correlated with f(x), hence with both.
template <class F, class Slope>
void feel_size(const PullDoor& p, const F& f, const Slope& slope, UpWire& dx) {
  const Response& r = p.dy.r;
  if (r.damp == 0 && r.along == 1 && r.twin == 0) return;
  const DownWire& x = *p.x[0];
  const double std = mean_std(x.K);
  if (!(std > 0)) return;
  const auto at = [&](double sd) { return function_sizes(f, slope, sd); };
  const FunctionSizes e = p.draws.of_one() ? on_grid(f, static_cast<int>(std::lround(std::log(std) * grid_steps)), at) : at(std);
  if (!(e.square > 0 && e.steep > 0)) return;
  const double n = static_cast<double>(std::max<Index>(x.width, 1));
  dx.G = dx.G.scaled(1 - r.damp * e.growth * e.steepening * x.f.token_drift - (r.damp + 1 - r.along) * e.both / n);
  dx.r.damp = r.damp * e.growth - e.steepening;
  // <dx, x> = <dy, f'(x) x>, and dy has less along f(x)
  dx.r.along = std::max((e.radials - (1 - r.along) * e.meet * e.meet / e.square) / (e.steep * e.variance), 0.0);
  dx.r.twin = r.twin * e.meet / std::sqrt(e.square * e.radials);
}

}  // namespace finite

template <FunctionOp T>
DownWire push_finite(const T& op, const PushDoor& p) {
  DownWire y{op.push_blurred(p, Blur(*p.x[0]))};
  if (!p.draws.of_one()) y.f = finite::of_function(*p.x[0], op.value());
  return y;
}

template <FunctionOp T>
Pulled pull_finite(const T& op, const PullDoor& p) {
  Pulled up = op.pull_blurred(p, Blur(*p.x[0]));
  up.dx[0].r.stretch = p.dy.r.stretch;
  if (note_of<BeforeMaximum>(p.dy) == nullptr) finite::feel_size(p, op.value(), op.slope(), up.dx[0]);
  return up;
}

}  // namespace stepzero
