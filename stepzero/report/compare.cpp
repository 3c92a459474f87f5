#include "stepzero/report/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/report/terminal.hpp"

namespace stepzero {

bool Comparison::wrong() const { return !(std::abs(z) <= 5) && !(std::abs(error) <= 0.1); }

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
    if (row.standard_error == 0 && v.spread) row.standard_error = *v.spread / std::sqrt(static_cast<double>(std::max(joined.seeds, 1)));
    row.z = row.standard_error > 0 ? difference / row.standard_error : 0;
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

std::string compare_text(const Signal& s, bool full) {
  const auto rows = compare(s);
  std::string out = fmt::format("{}  {} parameters, scheme {}, tokens {} {} x {}, {} draws from seed {}\n\n", show(s.architecture.name),
                                with_commas(s.parameter_count), show(s.scheme), show(s.tokens), s.batch, s.seq_len, s.seeds, s.seed);
  out += fmt::format("{:<40} {:<22} {:>10} {:>10} {:>8} {:>6}\n", "where", "what", "predicted", "measured", "error", "z");
  const std::size_t shown = full ? rows.size() : std::min<std::size_t>(12, rows.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const Comparison& r = rows[i];
    out += fmt::format("{:<40} {:<22} {:>10.4g} {:>10.4g} {:>+8.4f} {:>+6.1f}{}\n", show(r.where), r.what, r.predicted, r.measured, r.error,
                       r.z, r.wrong() ? "  off" : "");
  }
  std::map<std::string, std::vector<double>> errors;
  for (const Comparison& r : rows)
    errors[r.what == "gradient norm" && r.where.find(".weight") != std::string::npos ? "weight gradient norm" : r.what].push_back(
        std::abs(r.error));
  out += fmt::format("\n{:<24} {:>6} {:>9} {:>9} {:>9} {:>9}\n", "absolute error of", "n", "median", "90 %", "99 %", "worst");
  for (auto& [what, list] : errors) {
    std::ranges::sort(list);
    out += fmt::format("{:<24} {:>6} {:>9.4f} {:>9.4f} {:>9.4f} {:>9.4f}\n", what, list.size(), percentile(list, 0.5),
                       percentile(list, 0.9), percentile(list, 0.99), list.back());
  }
  const auto wrong = std::ranges::count_if(rows, &Comparison::wrong);
  out += wrong == 0 ? "\nnothing is off by more than 5 standard errors and 10 %\n"
                    : fmt::format("\n{} of {} numbers are off by more than 5 standard errors and 10 %\n", wrong, rows.size());
  return out;
}

}  // namespace stepzero
