#include "stepzero/report/compare.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <limits>
#include <map>
#include <ranges>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "stepzero/core/student.hpp"
#include "stepzero/report/terminal.hpp"

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

std::string compare_text(const Signal& s, const Look& look, bool full) {
  constexpr std::size_t narrow = 42;  // what the four numbers take
  const auto rows = compare(s);
  const auto wrong = std::ranges::count_if(rows, &Comparison::wrong);
  std::string out = header_text(s, look);
  const std::string agree = look.unicode ? "✓ theory and measurement agree" : "ok theory and measurement agree";
  const std::string lines = wrap(wrong == 0 ? fmt::format("{}: none of {} numbers is off by more than 5 standard errors and 10 %", agree, rows.size())
                                            : fmt::format("! {} of {} numbers are off by more than 5 standard errors and 10 %", wrong, rows.size()),
                                 look.width, 0, 2);
  out += wrong == 0 && columns(agree) < look.width ? look.paint(Look::Ink::good, agree) + lines.substr(agree.size())
         : wrong == 0                              ? lines
                                                   : look.mark(Severity::warning) + lines.substr(1);
  out += findings_text(s.findings, look, full);
  const bool below = look.width < 70;  // numbers on a line of their own
  const std::size_t room = below ? look.width : look.width - narrow;
  out += left("largest differences", below ? 0 : room) + (below ? "\n" : "") + fmt::format("{:>11}{:>11}{:>9}{:>7}\n", "predicted", "measured", "error", "z");
  const std::size_t shown = full ? rows.size() : std::min<std::size_t>(8, rows.size());
  for (const Comparison& r : rows | std::views::take(shown)) {
    out += left(fit(look, look.name(r.where) + " " + r.what, room), below ? 0 : room) + (below ? "\n" : "") +
           fmt::format("{:>11.4g}{:>11.4g}{:>+9.4f}{:>+7.1f}{}\n", r.predicted, r.measured, r.error, r.z, r.wrong() ? "  off" : "");
  }
  std::map<std::string, std::vector<double>> errors;
  for (const Comparison& r : rows)
    errors[r.what == "gradient norm" && r.where.find(".weight") != std::string::npos ? "weight gradient norm" : r.what].push_back(
        std::abs(r.error));
  if (below) return out;
  out += "\n" + left("absolute error of", 26) + fmt::format("{:>8}{:>11}{:>11}{:>11}{:>11}\n", "n", "median", "90 %", "99 %", "worst");
  for (auto& [what, list] : errors) {
    std::ranges::sort(list);
    out += left(what, 26) + fmt::format("{:>8}{:>11.4f}{:>11.4f}{:>11.4f}{:>11.4f}\n", list.size(), percentile(list, 0.5),
                                        percentile(list, 0.9), percentile(list, 0.99), list.back());
  }
  return out;
}

}  // namespace stepzero
