#include "stepzero/claims/report.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/report/json_parts.hpp"

namespace stepzero::claims {

namespace {

std::string number(double x) {
  if (!std::isfinite(x)) return "-";
  const double size = std::abs(x);
  if (size != 0 && (size < 1e-3 || size >= 1e6)) return fmt::format("{:.3e}", x);
  return fmt::format("{:.5g}", x);
}

std::string error_of(const Row& r) { return std::isfinite(r.error) ? fmt::format("{:.1e}", r.error) : "-"; }

// What a row allows: "0.95 to 1.05", "at most 2".
std::string allowed(const Row& r) {
  if (!std::isfinite(r.low)) return "at most " + number(r.high);
  if (!std::isfinite(r.high)) return "at least " + number(r.low);
  return number(r.low) + " to " + number(r.high);
}

// Words to lines of at most `width` characters.
std::string wrapped(std::string_view text, std::size_t width, const std::string& indent) {
  std::string out = indent;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (column > 0 && column + 1 + end > width) {
      out += "\n" + indent;
      column = 0;
    }
    if (column > 0) out += ' ', ++column;
    out += text.substr(0, end);
    column += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + "\n";
}

std::string without_trailing_spaces(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') out.erase(out.find_last_not_of(' ') + 1);
    out += c;
  }
  return out;
}

std::string rows_text(const Evidence& e) {
  std::size_t width = 4;
  for (const Row& r : e.rows) width = std::max(width, r.what.size());
  std::string out =
      fmt::format("{:<12} {:<{}} {:>11} {:>11} {:>8}  {:<22} {}\n", "", "what", width, "predicted", "measured", "+-", "allowed", "");
  for (const Row& r : e.rows) {
    out += fmt::format("{:<12} {:<{}} {:>11} {:>11} {:>8}  {:<22} {}\n", to_string(r.kind), r.what, width, number(r.predicted),
                       number(r.measured), error_of(r), allowed(r), to_string(r.outcome()));
  }
  return out;
}

Json json(const Row& r) {
  return {{"kind", to_string(r.kind)},
          {"what", r.what},
          {"predicted", json_number(r.predicted)},
          {"low", json_number(r.low)},
          {"high", json_number(r.high)},
          {"measured", json_number(r.measured)},
          {"stderr", json_number(r.error)},
          {"draws", r.draws},
          {"outcome", to_string(r.outcome())}};
}

}  // namespace

std::string table(const std::vector<Result>& results) {
  std::string out = fmt::format("{:<20} {:<10} {:>11} {:>11} {:>8}  {}\n", "claim", "verdict", "predicted", "measured", "+-", "of what");
  for (const Result& r : results) {
    const Row& h = r.evidence.headline();
    out += fmt::format("{:<20} {:<10} {:>11} {:>11} {:>8}  {}{}\n", r.claim->id, to_string(r.evidence.verdict()), number(h.predicted),
                       number(h.measured), error_of(h), h.what,
                       r.as_recorded() ? "" : fmt::format("  [recorded: {}]", to_string(r.claim->recorded)));
  }
  const auto count = [&](Verdict v) { return std::ranges::count_if(results, [&](const Result& r) { return r.evidence.verdict() == v; }); };
  out += fmt::format("\n{} claims: {} hold, {} hold under a condition, {} fail", results.size(), count(Verdict::holds),
                     count(Verdict::holds_if), count(Verdict::fails));
  if (count(Verdict::undecided) > 0) out += fmt::format(", {} undecided", count(Verdict::undecided));
  return out + "\nstepzero claims NAME shows one with its reasons.\n";
}

std::string page(const Result& result) {
  const Claim& c = *result.claim;
  const Verdict verdict = result.evidence.verdict();
  std::string out = fmt::format("{}: {}\n\n", c.id, to_string(verdict));
  out += wrapped(c.statement, 110, "  ") + fmt::format("  ({})\n\n", c.source);
  out += "Tested\n" + wrapped(c.tested, 110, "  ");
  if (verdict == Verdict::holds_if) out += "Holds if\n" + wrapped(c.condition, 110, "  ");
  if (!c.correction.empty())
    out += fmt::format("{}\n", c.recorded == Verdict::fails ? "Instead" : "More exactly") + wrapped(c.correction, 110, "  ");
  out += "Why\n" + wrapped(c.why, 110, "  ") + "\n" + rows_text(result.evidence);
  out += fmt::format("(+- standard error; the interval that decides misses the truth {} of the time)\n", kMissed);
  if (!result.as_recorded()) out += fmt::format("\nThe recorded verdict is another: {}.\n", to_string(c.recorded));
  if (!result.evidence.plot.curves.empty()) out += "\n" + plot_text(result.evidence.plot);
  out += "\nsettings";
  for (const Setting& s : c.settings) out += fmt::format("\n  {:<16} {:<8} {}", s.name, s.value, s.meaning);
  return without_trailing_spaces(out + "\n");
}

std::string to_json(const std::vector<Result>& results) {
  Json out = {{"schema", "stepzero.claims/1"}, {"claims", Json::array()}};
  for (const Result& r : results) {
    const Row& h = r.evidence.headline();
    Json rows = Json::array();
    for (const Row& row : r.evidence.rows) rows.push_back(json(row));
    out["claims"].push_back({{"id", r.claim->id},
                             {"source", r.claim->source},
                             {"statement", r.claim->statement},
                             {"tested", r.claim->tested},
                             {"verdict", to_string(r.evidence.verdict())},
                             {"recorded", to_string(r.claim->recorded)},
                             {"condition", r.claim->condition},
                             {"correction", r.claim->correction},
                             {"why", r.claim->why},
                             {"what", h.what},
                             {"predicted", json_number(h.predicted)},
                             {"measured", json_number(h.measured)},
                             {"stderr", json_number(h.error)},
                             {"rows", rows}});
  }
  return dump(out);
}

std::string figure_name(const Claim& claim) { return fmt::format("figures/claims-{}.svg", claim.id); }

std::string markdown_section(const Result& result) {
  const Claim& c = *result.claim;
  std::string out = fmt::format("## {}: {}\n\n> {}\n>\n> ({})\n\n", c.id, to_string(result.evidence.verdict()), c.statement, c.source);
  out += fmt::format("**Tested.** {}\n\n", c.tested);
  if (!c.condition.empty()) out += fmt::format("**Holds if** {}.\n\n", c.condition);
  if (!c.correction.empty()) out += fmt::format("**{}** {}\n\n", c.recorded == Verdict::fails ? "Instead." : "More exactly.", c.correction);
  out += fmt::format("{}\n\n| | | predicted | measured | standard error | allowed | |\n|---|---|---|---|---|---|---|\n", c.why);
  for (const Row& r : result.evidence.rows) {
    std::string what = r.what;
    for (std::size_t at = what.find('|'); at != std::string::npos; at = what.find('|', at + 2)) what.insert(at, "\\");
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", to_string(r.kind), what, number(r.predicted), number(r.measured),
                       error_of(r), allowed(r), to_string(r.outcome()));
  }
  if (!result.evidence.plot.curves.empty()) out += fmt::format("\n![{}]({})\n", result.evidence.plot.title, figure_name(c));
  return out + "\n";
}

}  // namespace stepzero::claims
