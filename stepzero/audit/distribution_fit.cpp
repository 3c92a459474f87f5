#include "stepzero/audit/distribution_fit.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "stepzero/kernels/phi.hpp"

namespace stepzero {

namespace {

using Kind = Distribution::Kind;
using Structure = Distribution::Structure;

// How far a stored number may be from the one meant, relative to it.
double rounding(const Encoding& e) {
  switch (e.kind) {
    case Encoding::Kind::bf16:
      return 0x1p-8;
    case Encoding::Kind::f16:
      return 0x1p-11;
    case Encoding::Kind::q8_0:
    case Encoding::Kind::q6_k:
      return 0.02;
    case Encoding::Kind::q4_0:
    case Encoding::Kind::q4_k:
      return 0.1;
    default:
      return 1e-6;
  }
}

double density_normal(double z) { return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi); }

double cdf(const Distribution& d, double x) {
  const double u = (x - d.mean) / d.scale;
  if (d.kind == Kind::uniform) return std::clamp((u + 1) / 2, 0.0, 1.0);
  if (d.kind == Kind::normal) return normal_cdf(u);
  const double low = normal_cdf(-d.cut);
  return std::clamp((normal_cdf(std::clamp(u, -d.cut, d.cut)) - low) / (1 - 2 * low), 0.0, 1.0);
}

// E z^4 / (E z^2)^2
double kurtosis(const Distribution& d) {
  if (d.kind == Kind::uniform) return 1.8;
  if (d.kind == Kind::normal || d.cut > 30) return 3;
  const double c = d.cut, inside = 1 - 2 * normal_cdf(-c);
  const double second = 1 - 2 * c * density_normal(c) / inside;
  const double fourth = 3 - 2 * (c * c * c + 3 * c) * density_normal(c) / inside;
  return fourth / (second * second);
}

double kolmogorov(const Distribution& d, const Summary& s) {
  const double n = static_cast<double>(s.count);
  double worst = 0;
  for (const Knot& k : s.knots) worst = std::max(worst, std::abs(cdf(d, k.edge) - static_cast<double>(k.below) / n));
  return worst * std::sqrt(n);
}

// The size that no number may reach, or that one in 1e10 such tensors would.
double bound(const Distribution& d, double n) {
  if (d.kind == Kind::uniform) return d.scale;
  const double tail = d.scale * std::sqrt(2 * std::log(n * 1e10));
  return d.kind == Kind::truncated_normal ? std::min(d.cut * d.scale, tail) : tail;
}

double p_of_z(double z) { return std::erfc(std::abs(z) / std::numbers::sqrt2); }
double p_of_lambda(double lambda) { return std::min(1.0, 2 * std::exp(-2 * lambda * lambda)); }

Fit fit_constant(const Distribution& d, const Summary& s, const Encoding& stored) {
  const double tolerance = std::abs(d.mean) * rounding(stored) + (stored.kind == Encoding::Kind::f16 ? 0x1p-25 : 1e-30);
  Fit f;
  f.fits = std::abs(s.min - d.mean) <= tolerance && std::abs(s.max - d.mean) <= tolerance;
  f.impossible = !f.fits;
  f.p = f.fits ? 1 : 0;
  return f;
}

// Numbers that depend on each other are told by what they make together.
Fit fit_structured(const Distribution& d, const PieceCensus& p) {
  const Summary& s = p.summary;
  const double n = static_cast<double>(s.count);
  Fit f;
  const double off = s.std / d.std() - 1;
  if (p.scattered && d.structure != Structure::mimetic) {  // each block has the structure, all together have the std
    f.fits = std::abs(off) < 0.05;
  } else if (d.structure == Structure::orthogonal) {
    const double size = std::hypot(s.std, s.mean);  // what is fixed is the mean square, of few numbers too
    f.fits = (!p.spectrum || p.spectrum->orthogonal) && std::abs(size / d.std() - 1) < 0.01 &&
             std::abs(s.mean) * std::sqrt(n) < kTooManyErrors * d.std();
  } else if (d.structure == Structure::diagonal) {
    const double few = static_cast<double>(std::min(p.rows, p.cols));
    f.z = (p.diagonal - d.diagonal) * std::sqrt(few) / s.std;
    f.fits = std::abs(f.z) < kTooManyErrors && std::abs(off) < 0.02 + kTooManyErrors / std::sqrt(n);
  } else if (d.structure == Structure::ramp || d.structure == Structure::waves) {  // the same in every draw
    f.fits = std::abs(off) < 0.02 && std::abs(s.mean - d.mean) <= 0.02 * d.std();
  } else if (d.structure == Structure::time_steps) {
    f.z = (s.mean - d.mean) * std::sqrt(n) / d.std();
    f.fits = std::abs(f.z) < kTooManyErrors && std::abs(off) < 2 * kTooManyErrors / std::sqrt(n);
  } else {
    f.fits = std::abs(off) < 0.08 && std::abs(s.mean) * std::sqrt(n) < kTooManyErrors * s.std;
  }
  f.impossible = !f.fits;
  f.p = f.fits ? 1 : 0;
  return f;
}

}  // namespace

Fit fit(const Distribution& d, const PieceCensus& piece, const Encoding& stored) {
  const Summary& s = piece.summary;
  if (s.count == 0) return {.fits = true};
  if (d.kind == Kind::constant || d.std() == 0) return fit_constant(d, s, stored);
  if (d.structure != Structure::none && d.structure != Structure::orthogonal && stored.quantised()) return fit_structured(d, piece);
  if (d.structure != Structure::none) return fit_structured(d, piece);
  const double n = static_cast<double>(s.count), std = d.std();
  Fit f;
  if (stored.quantised()) {
    f.z = (s.std / std - 1) / (rounding(stored) / 2 + 1 / std::sqrt(2 * n)) * 2;
    f.fits = std::abs(f.z) < kTooManyErrors;
    f.p = p_of_z(f.z);
    return f;
  }
  const double of_mean = (s.mean - d.mean) / (std / std::sqrt(n));
  const double of_std = (s.std - std) / (std * std::sqrt((kurtosis(d) - 1) / (4 * n)) + std * rounding(stored) * 1e-3);
  f.of_mean = std::abs(of_mean) > std::abs(of_std);
  f.z = f.of_mean ? std::abs(of_mean) : of_std;
  f.p = p_of_z(f.z);
  f.impossible = std::max(s.max - d.mean, d.mean - s.min) > bound(d, n) * (1 + rounding(stored));
  if (std::abs(f.z) >= kTooManyErrors || f.impossible) {
    f.p = f.impossible ? 0 : f.p;
    return f;
  }
  f.lambda = kolmogorov(d, s);
  f.p = std::min(f.p, p_of_lambda(f.lambda));
  f.fits = f.lambda < kTooFar;
  return f;
}

namespace {

// Parent standard deviations at which numbers of this std would be cut when the largest is this many std away.
double cut_for(double reach) {
  double low = 0.02, high = 12;
  for (int i = 0; i < 60; ++i) {
    const double c = (low + high) / 2;
    (c / Distribution::truncated(1, c).std() < reach ? low : high) = c;
  }
  return (low + high) / 2;
}

}  // namespace

FoundLaw find_law(const PieceCensus& piece, const Encoding& stored) {
  const Summary& s = piece.summary;
  if (s.count == 0 || s.nans + s.infs > 0) return {};
  if (s.constant()) return {FoundLaw::Kind::constant, s.min, 0, 1};
  if (stored.quantised() || s.count < 32) return {};
  const double n = static_cast<double>(s.count);
  if (piece.spectrum && piece.spectrum->orthogonal) return {FoundLaw::Kind::orthogonal, s.std, 0, 1};
  const double few = static_cast<double>(std::min(piece.rows, piece.cols));
  const bool diagonal = few >= 8 && std::abs(piece.diagonal - s.mean) * std::sqrt(few) > 12 * s.std && piece.rows * 2 > piece.cols;
  if (diagonal) return {FoundLaw::Kind::identity_like, piece.diagonal, 0, 1};
  const double mean = std::abs(s.mean) * std::sqrt(n) < kTooManyErrors * s.std ? 0 : s.mean;
  const double reach = std::max(s.max - mean, mean - s.min) / s.std;
  const auto normal = Distribution::normal(s.std, mean);
  const double far = kolmogorov(normal, s);
  // P(none of n reaches further) of a normal
  const bool cut_short = n * 2 * normal_cdf(-reach) > 20;
  if (far < kTooFar && !cut_short && reach * s.std <= bound(normal, n)) return {FoundLaw::Kind::normal, s.std, 0, p_of_lambda(far)};
  if (!cut_short) return {};
  const double c = cut_for(reach);
  const bool flat = c < 0.35;
  const auto d = flat ? Distribution::uniform(reach * s.std, mean) : Distribution::truncated(reach * s.std / c, c, mean);
  const double lambda = kolmogorov(d, s);
  if (lambda >= kTooFar) return {};
  return {flat ? FoundLaw::Kind::uniform : FoundLaw::Kind::truncated, d.scale, flat ? 0 : c, p_of_lambda(lambda)};
}

std::string to_string(const FoundLaw& law) {
  switch (law.kind) {
    case FoundLaw::Kind::constant:
      return fmt::format("constant {:.6g}", law.scale);
    case FoundLaw::Kind::normal:
      return fmt::format("normal, std {:.4g}", law.scale);
    case FoundLaw::Kind::uniform:
      return fmt::format("uniform within +-{:.4g}", law.scale);
    case FoundLaw::Kind::truncated:
      return fmt::format("normal of std {:.4g} cut at {:.2g} std", law.scale, law.cut);
    case FoundLaw::Kind::orthogonal:
      return fmt::format("orthogonal, std {:.4g}", law.scale);
    case FoundLaw::Kind::identity_like:
      return fmt::format("{:.3g} times the identity, and noise", law.scale);
    case FoundLaw::Kind::unknown:
      break;
  }
  return "none of the simple laws";
}

}  // namespace stepzero
