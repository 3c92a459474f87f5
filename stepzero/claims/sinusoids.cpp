#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"

namespace stepzero::claims {

namespace {

constexpr double epsilon = std::numeric_limits<double>::epsilon();

// <PE_t, PE_s>, from the op's own encoding.
double inner(const SinusoidalPosition& op, Index t, Index s) {
  double sum = 0;
  for (Index c = 0; c < op.width; ++c) sum += op.encoding(t, c) * op.encoding(s, c);
  return sum;
}

// sum_i cos(w_i (t - s))
double cosines(const SinusoidalPosition& op, Index distance) {
  double sum = 0;
  for (Index i = 0; i < op.width / 2; ++i) {
    sum += std::cos(static_cast<double>(distance) * std::pow(op.base, -2 * static_cast<double>(i) / static_cast<double>(op.width)));
  }
  return sum;
}

Evidence run_norm(const Settings& s) {
  Evidence e;
  e.plot = {"norm of the sinusoidal encoding", "d_model", "norm", true, true};
  Curve measured{"measured", {}, {}, false}, said{"sqrt(d_model)", {}, {}}, right{"sqrt(d_model / 2)", {}, {}};
  for (const Index d : {64, 512, 4096}) {
    const SinusoidalPosition op{.width = d};
    const double n = static_cast<double>(d);
    double low = std::numeric_limits<double>::infinity(), high = 0;
    for (Index t = 0; t < s.size("positions"); t += 37) {
      const double norm = std::sqrt(inner(op, t, t));
      low = std::min(low, norm);
      high = std::max(high, norm);
    }
    const double rounding = 4 * epsilon * n;
    e.exact(Kind::statement, fmt::format("norm, d_model = {}", d), std::sqrt(n * s("share")), low, rounding, 0.05);
    e.exact(Kind::correction, fmt::format("smallest norm over positions, d_model = {}", d), std::sqrt(n / 2), low, rounding);
    e.exact(Kind::correction, fmt::format("largest norm over positions, d_model = {}", d), std::sqrt(n / 2), high, rounding);
    for (Curve* c : {&measured, &said, &right}) c->x.push_back(n);
    measured.y.push_back(high);
    said.y.push_back(std::sqrt(n));
    right.y.push_back(std::sqrt(n / 2));
  }
  e.plot.curves = {said, right, measured};
  return e;
}

Evidence run_orthogonal(const Settings& s) {
  Evidence e;
  const SinusoidalPosition op{.width = s.size("width"), .base = s("base")};
  const double n = static_cast<double>(op.width), rounding = 64 * epsilon;
  e.plot = {"cosine of the encodings of two positions", "distance", "cosine", true, false};
  Curve measured{"measured", {}, {}, false}, predicted{"(2/d) sum_i cos(w_i (t - s))", {}, {}};
  for (const Index distance : {1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987}) {
    const double cosine = inner(op, 20, 20 + distance) / std::sqrt(inner(op, 20, 20) * inner(op, 20 + distance, 20 + distance));
    const double formula = cosines(op, distance) / (n / 2);
    for (Curve* c : {&measured, &predicted}) c->x.push_back(static_cast<double>(distance));
    measured.y.push_back(cosine);
    predicted.y.push_back(formula);
    if (distance != 1 && distance != 21 && distance != 987) continue;
    e.exact(Kind::statement, fmt::format("cosine at distance {}, 0 if orthogonal", distance), 0, cosine, rounding, 0);
    e.rows.back().low = -0.05;
    e.rows.back().high = 0.05;
    e.exact(Kind::correction, fmt::format("cosine at distance {}", distance), formula, cosine, rounding);
  }
  e.plot.curves = {predicted, measured};
  return e;
}

Evidence run_formula(const Settings& s) {
  Evidence e;
  const Index d = s.size("width"), tokens = s.size("positions");
  Lab lab(tokens);
  const int zero = lab.source(d, Distribution::constant(0));
  const int y = lab.add(SinusoidalPosition{.width = d}, {zero});
  double worst = 0;
  (void)lab.run(s, 2, [&](const Shot& shot) { return std::vector{shot.square(y)}; });
  const auto r = lab.run(s, 2, [&](const Shot& shot) {
    double off = 0;
    for (Index pos = 0; pos < tokens; ++pos) {
      for (Index i = 0; i < d / 2; ++i) {
        // the document's formula, written out again
        const double angle = static_cast<double>(pos) / std::pow(s("base"), 2 * static_cast<double>(i) / static_cast<double>(d));
        off = std::max(off, std::abs(static_cast<double>(shot.output(y)(pos, 2 * i)) - std::sin(angle)));
        off = std::max(off, std::abs(static_cast<double>(shot.output(y)(pos, 2 * i + 1)) - std::cos(angle)));
      }
    }
    return std::vector{off, static_cast<double>(shot.output(y)(1, 0))};
  });
  worst = r[0].mean;
  const double rounding = 2 * static_cast<double>(std::numeric_limits<float>::epsilon());
  e.exact(Kind::statement, "first channel at position 1: sin 1", std::sin(1.0), r[1].mean, rounding, 1e-6);
  e.exact(Kind::statement, "largest difference from the formula, all positions and channels", 0, worst, rounding, 0);
  return e;
}

}  // namespace

Claim pe_norm() {
  return {.id = "pe-norm",
          .source = kInitialization,
          .statement = "Sinusoidal encodings have bounded magnitude: |PE|_2 = sqrt(d_model).",
          .tested = "The norm of the encoding at positions up to 2000, for d_model = 64, 512, 4096.",
          .recorded = Verdict::fails,
          .condition = "",
          .correction = "|PE|_2 = sqrt(d_model / 2), exactly, at every position, for even d_model.",
          .why = "The channels come in pairs (sin, cos) of one angle, and sin^2 + cos^2 = 1: d/2 pairs give a squared norm of d/2. sqrt(d_model) is a bound that is never "
                 "reached, and the norm of a token embedding of unit variance: beside one, a sinusoidal encoding is smaller by sqrt(2).",
          .settings = {size("positions", 2000, 100000, "positions"), {"share", 1, "|PE|^2 = share * d_model", 0, 10}},
          .run = run_norm};
}

Claim pe_orthogonal() {
  return {.id = "pe-orthogonal",
          .source = kInitialization,
          .statement = "Sinusoidal encodings have position-wise orthogonality.",
          .tested = "The cosine between the encodings of two positions is 0 (less than 0.05 in size) at distances 1, 21 and 987.",
          .recorded = Verdict::fails,
          .condition = "",
          .correction = "<PE_t, PE_s> = sum_i cos(w_i (t - s)), w_i = 10000^(-2i/d): the cosine falls slowly with the distance, from 0.97 between neighbours.",
          .why = "The slow channels, half of which turn by less than a radian in a hundred positions, are alike for all positions in reach and keep the inner product positive. It depends "
                 "on the distance only, which is the property that makes the encodings useful; orthogonality would say that position 7 is as far from 8 as from 700.",
          .settings = {size("width", 512, 8192, "d_model"), {"base", 10000, "of the frequencies", 1, 1e6}},
          .run = run_orthogonal};
}

Claim pe_formula() {
  return {.id = "pe-formula",
          .source = kInitialization,
          .statement = "PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)).",
          .tested = "What the op adds to a stream of zeros, in float, against the formula in double: all channels of 512, positions up to 512.",
          .recorded = Verdict::holds,
          .condition = "",
          .correction = "",
          .why = "It is a definition (Vaswani et al. 2017) and the program's op follows it, sines and cosines alternating.",
          .settings = {size("width", 512, 8192, "d_model"), size("positions", 512, 8192, "positions"), {"base", 10000, "of the frequencies", 1, 1e6}},
          .run = run_formula};
}

}  // namespace stepzero::claims
