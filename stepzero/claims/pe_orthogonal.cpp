#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "stepzero/claims/list.hpp"
#include "stepzero/ops/position.hpp"

namespace stepzero::claims {

namespace {

// <PE_t, PE_s>, from the op's own encoding.
double inner(const SinusoidalPosition& op, Index t, Index s) {
  double sum = 0;
  for (Index c = 0; c < op.width; ++c) sum += op.encoding(t, c) * op.encoding(s, c);
  return sum;
}

// sum_i cos(w_i (t - s))
double cosines(const SinusoidalPosition& op, Index distance, double power) {
  double sum = 0;
  for (Index i = 0; i < op.width / 2; ++i) {
    sum += std::cos(static_cast<double>(distance) * std::pow(op.base, -power * static_cast<double>(i) / static_cast<double>(op.width)));
  }
  return sum;
}

Evidence pe_orthogonal_evidence(const Settings& s) {
  Evidence e;
  const SinusoidalPosition op{.width = s.size("width"), .base = s("base")};
  const double n = static_cast<double>(op.width), rounding = 64 * std::numeric_limits<double>::epsilon();
  e.plot = {"cosine of the encodings of two positions", "distance", "cosine", true, false};
  Curve measured{"measured", {}, {}, false}, predicted{"(2/d) sum_i cos(w_i (t - s))", {}, {}};
  for (const Index distance : {1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987}) {
    const double cosine = inner(op, 20, 20 + distance) / std::sqrt(inner(op, 20, 20) * inner(op, 20 + distance, 20 + distance));
    const double formula = cosines(op, distance, s("power")) / (n / 2);
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

}  // namespace

Claim pe_orthogonal() {
  return {.id = "pe-orthogonal",
          .source = kInitialization,
          .statement = "Sinusoidal encodings have position-wise orthogonality.",
          .tested = "The cosine between the encodings of two positions is 0 (less than 0.05 in size) at distances 1, 21 and 987.",
          .recorded = Verdict::fails,
          .condition = "",
          .correction =
              "<PE_t, PE_s> = sum_i cos(w_i (t - s)), w_i = 10000^(-2i/d): the cosine falls slowly with the distance, from 0.97 between "
              "neighbours.",
          .why =
              "The slow channels, half of which turn by less than a radian in a hundred positions, are alike for all positions in reach "
              "and keep the inner product positive. It depends "
              "on the distance only, which is the property that makes the encodings useful; orthogonality would say that position 7 is as "
              "far from 8 as from 700.",
          .settings = {size("width", 512, 8192, "d_model"),
                       {"base", 10000, "of the frequencies", 1, 1e6},
                       {"power", 2, "w_i = base^(-power i / d)", 0, 10}},
          .run = pe_orthogonal_evidence};
}

}  // namespace stepzero::claims
