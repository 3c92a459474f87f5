#include <algorithm>
#include <cmath>
#include <limits>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"

namespace stepzero::claims {

namespace {

Evidence pe_formula_evidence(const Settings& s) {
  Evidence e;
  const Index d = s.size("width"), tokens = s.size("positions");
  Lab lab(tokens);
  const int zero = lab.source(d, Distribution::constant(0));
  const int y = lab.add(SinusoidalPosition{.width = d}, {zero});
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
  const double rounding = 2 * static_cast<double>(std::numeric_limits<float>::epsilon());
  e.exact(Kind::statement, "first channel at position 1: sin 1", std::sin(1.0), r[1].mean, rounding, 1e-6);
  e.exact(Kind::statement, "largest difference from the formula, all positions and channels", 0, r[0].mean, rounding, 0);
  return e;
}

}  // namespace

Claim pe_formula() {
  return {
      .id = "pe-formula",
      .source = kInitialization,
      .statement = "PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)).",
      .tested = "What the op adds to a stream of zeros, in float, against the formula in double: all channels of 512, positions up to 512.",
      .recorded = Verdict::holds,
      .condition = "",
      .correction = "",
      .why = "It is a definition (Vaswani et al. 2017) and the program's op follows it, sines and cosines alternating.",
      .settings = {size("width", 512, 8192, "d_model"),
                   size("positions", 512, 8192, "positions"),
                   {"base", 10000, "of the frequencies", 1, 1e6}},
      .run = pe_formula_evidence};
}

}  // namespace stepzero::claims
