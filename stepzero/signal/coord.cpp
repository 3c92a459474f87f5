#include "stepzero/signal/coord.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/core/running.hpp"

namespace stepzero {

namespace {

// Least squares of ln y over ln x.
double log_slope(std::span<const double> x, std::span<const double> y) {
  double mx = 0, my = 0, xx = 0, xy = 0;
  const auto n = static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) mx += std::log(x[i]) / n, my += std::log(y[i]) / n;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = std::log(x[i]) - mx;
    xx += d * d, xy += d * (std::log(y[i]) - my);
  }
  return xy / xx;
}

void fit(CoordRow& row, std::span<const double> values) {
  row.values.clear();
  const std::size_t draws = row.draws.empty() ? 0 : row.draws[0].size();
  bool all_zero = true, any_zero = false;
  for (const auto& point : row.draws) {
    Running mean;
    for (const double x : point) mean.add(x), any_zero |= x == 0, all_zero &= x == 0;
    row.values.push_back(mean.mean);
  }
  if (row.zero || any_zero) {
    row.slope = row.error = 0;
    row.pass = all_zero;
    return;
  }
  Running slope;
  std::vector<double> y(values.size());
  for (std::size_t d = 0; d < draws; ++d) {
    for (std::size_t k = 0; k < y.size(); ++k) y[k] = row.draws[k][d];
    slope.add(log_slope(values, y));
  }
  row.slope = slope.mean;
  row.error = slope.error();
}

bool is_all_zero(const CoordRow& row) {
  return row.zero || std::ranges::any_of(row.values, [](double v) { return v == 0; });
}

// A few draws know little of their own scatter: where it is small, that of all rows of a kind counts too, as if from so many draws more.
void steady(Coord& coord, CoordQuantity quantity) {
  constexpr double borrowed = 4;
  Running all;
  for (const CoordRow& r : coord.rows) {
    if (r.quantity == quantity && !is_all_zero(r) && std::isfinite(r.error)) all.add(r.error * r.error);
  }
  for (CoordRow& r : coord.rows) {
    if (r.quantity != quantity || is_all_zero(r)) continue;
    const double own = static_cast<double>(r.draws[0].size()) - 1;
    r.error = std::max(r.error, std::sqrt((own * r.error * r.error + borrowed * all.mean) / (own + borrowed)));
  }
}

void decide(CoordRow& row) {
  if (is_all_zero(row)) return;  // decided by fit
  constexpr double sure = 4;
  const double outside = std::max({0.0, row.low - row.slope, row.slope - row.high});
  row.pass = std::isfinite(row.slope) && outside <= coord_tolerance + sure * row.error;
  row.pass |= row.harmless > 0 && std::ranges::all_of(row.values, [&](double v) { return v < row.harmless; });
}

}  // namespace

const char* to_string(CoordQuantity q) {
  switch (q) {
    case CoordQuantity::start:
      return "start";
    case CoordQuantity::effect:
      return "effect";
    case CoordQuantity::change:
      return "change";
    case CoordQuantity::setting:
      return "setting";
  }
  return "";
}

bool Coord::pass() const {
  return std::ranges::all_of(rows, [](const CoordRow& r) { return r.pass; });
}

void judge(Coord& coord) {
  for (CoordRow& row : coord.rows) fit(row, coord.values);
  for (const CoordQuantity q : {CoordQuantity::start, CoordQuantity::effect, CoordQuantity::change, CoordQuantity::setting})
    steady(coord, q);
  for (CoordRow& row : coord.rows) decide(row);
  coord.mistakes = coord.pass() ? std::vector<CoordMistake>() : name_mistakes(coord);
}

}  // namespace stepzero
