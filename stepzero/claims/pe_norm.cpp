#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "stepzero/claims/list.hpp"
#include "stepzero/ops/position.hpp"

namespace stepzero::claims {

namespace {

// From the op's own encoding.
double norm_of(const SinusoidalPosition& op, Index t) {
  double squares = 0;
  for (Index c = 0; c < op.width; ++c) squares += op.encoding(t, c) * op.encoding(t, c);
  return std::sqrt(squares);
}

Evidence pe_norm_evidence(const Settings& s) {
  Evidence e;
  e.plot = {"norm of the sinusoidal encoding", "d_model", "norm", true, true};
  Curve measured{"measured", {}, {}, false}, said{"sqrt(d_model)", {}, {}}, right{"sqrt(d_model / 2)", {}, {}};
  for (const Index d : {64, 512, 4096}) {
    const SinusoidalPosition op{.width = d};
    const double n = static_cast<double>(d);
    double low = std::numeric_limits<double>::infinity(), high = 0;
    for (Index t = 0; t < s.size("positions"); t += 37) {
      const double norm = norm_of(op, t);
      low = std::min(low, norm);
      high = std::max(high, norm);
    }
    const double rounding = 4 * std::numeric_limits<double>::epsilon() * n;
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

}  // namespace

Claim pe_norm() {
  return {.id = "pe-norm",
          .source = kInitialization,
          .statement = "Sinusoidal encodings have bounded magnitude: |PE|_2 = sqrt(d_model).",
          .tested = "The norm of the encoding at positions up to 2000, for d_model = 64, 512, 4096.",
          .recorded = Verdict::fails,
          .condition = "",
          .correction = "|PE|_2 = sqrt(d_model / 2), exactly, at every position, for even d_model.",
          .why =
              "The channels come in pairs (sin, cos) of one angle, and sin^2 + cos^2 = 1: d/2 pairs give a squared norm of d/2. "
              "sqrt(d_model) is a bound that is never "
              "reached, and the norm of a token embedding of unit variance: beside one, a sinusoidal encoding is smaller by sqrt(2).",
          .settings = {size("positions", 2000, 100000, "positions"), {"share", 1, "|PE|^2 = share * d_model", 0, 10}},
          .run = pe_norm_evidence};
}

}  // namespace stepzero::claims
