#include "stepzero/claims/report.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/report/json_parts.hpp"
#include "stepzero/report/terminal_style.hpp"

namespace stepzero::claims {

namespace {

std::string number(double x) {
  if (!std::isfinite(x)) return "-";
  const double size = std::abs(x);
  if (size != 0 && (size < 1e-3 || size >= 1e6)) return fmt::format("{:.3e}", x);
  return fmt::format("{:.5g}", x);
}

// At most eight characters.
std::string short_number(double x) {
  const std::string text = number(x);
  return text.size() <= 8 ? text : fmt::format("{:.1e}", x);
}

std::string error_of(const Row& r) { return std::isfinite(r.error) ? fmt::format("{:.1e}", r.error) : "-"; }

// What a row allows: "0.95 to 1.05", "at most 2".
std::string allowed(const Row& r) {
  if (!std::isfinite(r.low)) return "at most " + number(r.high);
  if (!std::isfinite(r.high)) return "at least " + number(r.low);
  return number(r.low) + " to " + number(r.high);
}

std::string without_trailing_spaces(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') out.erase(out.find_last_not_of(' ') + 1);
    out += c;
  }
  return out;
}

// The row that stands for a claim: the statement's own numbers. Of one that fails a row that differs; the correction's agree.
const Row& telling_row(const Evidence& e) {
  const bool fails = e.verdict() == Verdict::fails;
  const auto row =
      std::ranges::find_if(e.rows, [&](const Row& r) { return r.kind == Kind::statement && (!fails || r.outcome() == Outcome::differs); });
  return row == e.rows.end() ? e.headline() : *row;
}

// A heading and a paragraph under it.
std::string part(std::string_view head, std::string_view text, std::size_t width) {
  return fmt::format("{}\n{}", head, wrap(text, width, 2));
}

// What is measured on a line of its own, its numbers below.
std::string rows_text(const Evidence& e, std::size_t width) {
  constexpr std::size_t indent = 13;
  std::string out;
  for (const Row& r : e.rows) {
    std::string what = wrap(r.what, width, indent);
    what.replace(0, to_string(r.kind).size(), to_string(r.kind));
    out += what;
    out += fmt::format("{:<{}}{:>11} {:>11} {:>8}  {:<22} {}\n", "", indent, number(r.predicted), number(r.measured), error_of(r),
                       allowed(r), to_string(r.outcome()));
  }
  return fmt::format("{:<{}}{:>11} {:>11} {:>8}  {}\n", "", indent, "predicted", "measured", "+-", "allowed") + out;
}

// Cut at the end.
std::string cut(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, std::max<std::size_t>(width, 3) - 3) + "...";
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

std::string table(const std::vector<Result>& results, std::size_t width) {
  const auto line = [&](std::string_view id, std::string_view verdict, const std::string& predicted, const std::string& measured,
                        const std::string& error, const std::string& what, const std::string& recorded) {
    const std::string numbers = fmt::format("{:<19} {:<9} {:>8} {:>8} {:>8}  ", id, verdict, predicted, measured, error);
    const std::size_t room = width - std::min(width, numbers.size() + recorded.size());
    return numbers + cut(what, std::max<std::size_t>(room, 10)) + recorded + "\n";
  };
  std::string out = line("claim", "verdict", "predicted", "measured", "+-", "of what", "");
  for (const Result& r : results) {
    const Row& h = telling_row(r.evidence);
    out += line(r.claim->id, to_string(r.evidence.verdict()), short_number(h.predicted), short_number(h.measured), error_of(h), h.what,
                r.as_recorded() ? "" : fmt::format("  [recorded: {}]", to_string(r.claim->recorded)));
  }
  const auto count = [&](Verdict v) { return std::ranges::count_if(results, [&](const Result& r) { return r.evidence.verdict() == v; }); };
  out += fmt::format("\n{} claims: {} hold, {} hold under a condition, {} fail", results.size(), count(Verdict::holds),
                     count(Verdict::holds_if), count(Verdict::fails));
  if (count(Verdict::undecided) > 0) out += fmt::format(", {} undecided", count(Verdict::undecided));
  return out + "\nstepzero claims NAME shows one with its reasons.\n";
}

std::string page(const Result& result, std::size_t terminal) {
  const Claim& c = *result.claim;
  const std::size_t width = std::min<std::size_t>(terminal, 110);
  const Verdict verdict = result.evidence.verdict();
  std::string out = fmt::format("{}: {}\n\n{}{}\n", c.id, to_string(verdict), wrap(c.statement, width, 2),
                                wrap(fmt::format("({})", source_text(c.source)), width, 2, 1));
  out += part("Tested", c.tested, width);
  if (verdict == Verdict::holds_if) out += part("Holds if", c.condition, width);
  if (!c.correction.empty()) out += part(c.recorded == Verdict::fails ? "Instead" : "More exactly", c.correction, width);
  out += part("Why", c.why, width) + "\n" + rows_text(result.evidence, width);
  out += wrap(fmt::format("(+- standard error; the deciding interval misses the truth {} of the time)", kMissed), width, 0);
  if (!result.as_recorded()) out += fmt::format("\nThe recorded verdict is another: {}.\n", to_string(c.recorded));
  for (const Plot& plot : result.evidence.plots()) out += "\n" + plot_text(plot);
  out += "\nsettings";
  for (const Setting& s : c.settings) out += fmt::format("\n  {:<16} {:<8} {}", s.name, s.value, s.meaning);
  return without_trailing_spaces(out + "\n");
}

std::string to_json(const std::vector<Result>& results) {
  Json out = {{"schema", "stepzero.claims/1"}, {"claims", Json::array()}};
  for (const Result& r : results) {
    const Row& h = telling_row(r.evidence);
    Json rows = Json::array();
    for (const Row& row : r.evidence.rows) rows.push_back(json(row));
    out["claims"].push_back({{"id", r.claim->id},
                             {"source", r.claim->source},
                             {"document", source_text(r.claim->source)},
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

std::string figure_name(const Claim& claim, std::size_t plot) {
  return fmt::format("figures/claims-{}{}.svg", claim.id, plot == 0 ? "" : fmt::format("-{}", plot + 1));
}

std::string markdown_section(const Result& result) {
  const Claim& c = *result.claim;
  std::string out =
      fmt::format("## {}: {}\n\n> {}\n>\n> ({})\n\n", c.id, to_string(result.evidence.verdict()), c.statement, source_text(c.source));
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
  const std::vector<Plot> plots = result.evidence.plots();
  for (std::size_t i = 0; i < plots.size(); ++i) out += fmt::format("\n![{}]({})\n", plots[i].title, figure_name(c, i));
  return out + "\n";
}

}  // namespace stepzero::claims
