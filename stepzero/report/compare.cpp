#include "stepzero/report/compare.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <string_view>

#include <fmt/format.h>

#include "stepzero/core/student.hpp"
#include "stepzero/report/terminal.hpp"

namespace stepzero {

std::string compare_text(const Signal& s, const Look& look, bool full) {
  constexpr std::size_t narrow = 42;  // what the four numbers take
  const auto rows = compare(s);
  const auto wrong = std::ranges::count_if(rows, &Comparison::wrong);
  std::string out = header_text(s, look);
  const std::string agree = look.unicode ? "✓ theory and measurement agree" : "ok theory and measurement agree";
  const std::string lines =
      wrap(wrong == 0 ? fmt::format("{}: none of {} numbers is off by more than 5 standard errors and 10 %", agree, rows.size())
                      : fmt::format("! {} of {} numbers are off by more than 5 standard errors and 10 %", wrong, rows.size()),
           look.width, 0, 2);
  out += wrong == 0 && columns(agree) < look.width ? look.paint(Look::Ink::good, agree) + lines.substr(agree.size())
         : wrong == 0                              ? lines
                                                   : look.mark(Severity::warning) + lines.substr(1);
  out += findings_text(s.findings, look, full);
  const bool below = look.width < 70;  // numbers on a line of their own
  const std::size_t room = below ? look.width : look.width - narrow;
  out += left("largest differences", below ? 0 : room) + (below ? "\n" : "") +
         fmt::format("{:>11}{:>11}{:>9}{:>7}\n", "predicted", "measured", "error", "z");
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
