#include "stepzero/signal/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <string_view>
#include <tuple>

#include "stepzero/core/student.hpp"

namespace stepzero {

namespace {

// The normal deviate that is as unlikely as Student's t: two draws say little about their own scatter.
double normal_deviate(double t, double freedom) {
  const double p = student_tail(std::abs(t), freedom);
  double low = 0, high = std::abs(t);
  if (!(p > 0) || !std::isfinite(high)) return t;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) > p ? low : high) = middle;
  }
  return std::copysign(high, t);
}

}  // namespace

bool Comparison::wrong() const { return !(std::abs(z) <= 5) && !(std::abs(what == "loss" ? error / measured : error) <= 0.1); }

Signal join(const Signal& predicted, const Signal& measured) {
  std::vector<const Value*> values;
  for_each_value(measured, [&](const Value& v, Average, const auto&, const char*) { values.push_back(&v); });
  Signal both = predicted;
  both.seeds = measured.seeds;
  both.seed = measured.seed;
  std::size_t i = 0;
  for_each_value(both, [&](Value& v, Average, const auto&, const char*) {
    v.measured = values[i]->measured;
    v.standard_error = values[i]->standard_error;
    ++i;
  });
  return both;
}

std::vector<Comparison> compare(const Signal& joined) {
  std::map<std::string, double, std::less<>> rms;
  for (const NodeSignal& n : joined.nodes) rms[n.name] = std::sqrt(n.forward.second_moment.measured.value_or(0));
  std::vector<Comparison> rows;
  for_each_value(joined, [&](const Value& v, Average, const auto& where, std::string_view what) {
    if (!v.predicted || !v.measured) return;
    Comparison row{
        std::string(where), std::string(what), *v.predicted, *v.measured, v.standard_error.value_or(0), v.spread.value_or(0), 0, 0};
    const double difference = row.predicted - row.measured;
    if (what == "mean")
      row.error = difference / std::max(rms[row.where], 1e-300);
    else if (what.ends_with("cosine") || what == "entropy" || what == "loss" || row.where == "growth")
      row.error = difference;
    else
      row.error = row.measured == 0 && difference == 0 ? 0 : difference / std::abs(row.measured);
    // a single measured draw is judged by the spread that draws have
    const bool own = row.standard_error > 0;
    if (!own && v.spread) row.standard_error = *v.spread / std::sqrt(static_cast<double>(std::max(joined.seeds, 1)));
    row.z = row.standard_error > 0 ? difference / row.standard_error : 0;
    if (own && joined.seeds > 1) row.z = normal_deviate(row.z, joined.seeds - 1);
    // a gradient that is 0 in theory is rounding noise in practice: nothing to compare
    if (row.predicted == 0 && std::abs(row.measured) < 1e-6) return;
    rows.push_back(row);
  });
  const auto size = [](const Comparison& r) { return std::isnan(r.error) ? std::numeric_limits<double>::infinity() : std::abs(r.error); };
  std::ranges::sort(rows, [&](const Comparison& a, const Comparison& b) {
    return std::tuple(b.wrong(), size(b), a.where, a.what) < std::tuple(a.wrong(), size(a), b.where, b.what);
  });
  return rows;
}

double percentile(const std::vector<double>& sorted, double p) {
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(p * static_cast<double>(sorted.size())))];
}

}  // namespace stepzero
