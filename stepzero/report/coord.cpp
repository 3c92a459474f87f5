#include "stepzero/report/coord.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/graph/role_names.hpp"
#include "stepzero/report/terminal.hpp"
#include "stepzero/report/train.hpp"

namespace stepzero {

namespace {

using Ink = Look::Ink;
using nlohmann::ordered_json;

const char* axis_name(const Coord& c) { return c.facts.width ? "width" : "depth"; }

std::string coord_headline(const CoordSubject& s) {
  const auto failing = std::ranges::count_if(s.coord.rows, [](const CoordRow& r) { return !r.pass; });
  if (failing == 0)
    return fmt::format("all {} slopes are what {} demands", s.coord.rows.size(),
                       s.parametrization == "none" ? "a rate that holds at every size" : s.parametrization);
  return fmt::format("{} of {} slopes are not what a rate that holds at every {} demands", failing, s.coord.rows.size(),
                     axis_name(s.coord));
}

std::string coord_setting(const CoordSubject& s) {
  return fmt::format(
      "{} {} to {}, parametrization {}, scheme {}, {} at {}, {} step{}, {} {} x {} tokens", axis_name(s.coord), s.coord.values.front(),
      s.coord.values.back(), s.parametrization, s.scheme, s.optimizer.name, *s.optimizer.rate, s.steps, s.steps == 1 ? "" : "s",
      s.predicted ? std::string("predicted on") : fmt::format("{} draw{} of", s.seeds, s.seeds == 1 ? "" : "s"), s.sequences, s.length);
}

std::string demanded(const CoordRow& r) {
  if (r.zero) return "all 0";
  if (r.low == r.high) return fmt::format("{:.4g}", r.low);
  return fmt::format("{:.4g} .. {:.4g}", r.low, r.high);
}

std::string measured_slope(const CoordRow& r, const Look& look) {
  if (r.zero) return r.pass ? "all 0" : "not 0";
  return r.error > 0 ? fmt::format("{:+.3f} {}{:.3f}", r.slope, look.plus_minus(), r.error) : fmt::format("{:+.3f}", r.slope);
}

std::string quantity_words(CoordQuantity q) {
  switch (q) {
    case CoordQuantity::start:
      return "before the first update: the size of";
    case CoordQuantity::effect:
      return "what the update of a tensor does to the outputs of its nodes";
    case CoordQuantity::change:
      return "what all updates together change";
    case CoordQuantity::setting:
      return "settings: rate * decay, Adam's eps over the gradient";
  }
  return "";
}

constexpr auto quantities = std::to_array({CoordQuantity::start, CoordQuantity::effect, CoordQuantity::change, CoordQuantity::setting});

constexpr const char* coord_caveat =
    "A check of the first updates, on these tokens: how far updates align depends on how many and how alike they are. It says that a rate "
    "holds at the start; later on weight decay decides. A size before the first update that falls may be right (logits, scores); flat "
    "curves there prove nothing.";

}  // namespace

std::string coord_text(const CoordSubject& s, const Look& look, bool full) {
  const Coord& c = s.coord;
  std::string out = wrap(look.name(s.base.name) + ": " + coord_setting(s), look.width, 0) + "\n";
  out += look.paint(c.pass() ? Ink::good : Ink::bad, c.pass() ? "pass" : "fail") + "  " + coord_headline(s) + "\n";
  for (const CoordMistake& m : c.mistakes)
    out += fmt::format("\n  {}  {}\n", look.paint(Ink::bad, m.id), m.evidence) + wrap(m.remedy, look.width, 4);
  constexpr std::size_t least = 24, numbers = 62;
  std::size_t name = 0;
  for (const CoordRow& r : c.rows) name = std::max(name, columns(look.name(r.what)));
  name = std::min(name, std::max(least, look.width - std::min(look.width, numbers)));
  const auto shown = [&](const CoordRow& r) { return !r.pass || full || (r.step <= 1 && r.quantity != CoordQuantity::setting); };
  for (const CoordQuantity q : quantities) {
    const bool any = std::ranges::any_of(c.rows, [&](const CoordRow& r) { return r.quantity == q && shown(r); });
    if (!any) continue;
    out += "\n" + look.paint(Ink::dim, quantity_words(q)) + "\n";
    out += look.paint(Ink::dim,
                      fmt::format("  {} {:>4} {:>9} {:>9}  {:<15} {:<10}\n", left("", name), "step", fmt::format("at {}", c.values.front()),
                                  fmt::format("at {}", c.values.back()), "slope", "demanded"));
    for (const CoordRow& r : c.rows) {
      if (r.quantity != q || !shown(r)) continue;
      out += fmt::format("  {} {:>4} {:>9.3g} {:>9.3g}  {} {} {}\n", left(fit(look, look.name(r.what), name), name), r.step,
                         r.values.front(), r.values.back(), left(measured_slope(r, look), 15), left(demanded(r), 10),
                         look.paint(r.pass ? Ink::good : Ink::bad, r.pass ? "pass" : "fail"));
    }
  }
  return out + "\n" + wrap(coord_caveat, look.width, 0);
}

std::string coord_json(const CoordSubject& s) {
  const Coord& c = s.coord;
  const auto finite = [](double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(nullptr); };
  ordered_json out = {{"schema", "stepzero.coord/1"},
                      {"model", s.base.name},
                      {"axis", axis_name(c)},
                      {"values", c.values},
                      {"parametrization", s.parametrization},
                      {"scheme", s.scheme},
                      {"optimizer", json(s.optimizer)},
                      {"rate", *s.optimizer.rate},
                      {"input", {{"batch", s.sequences}, {"seq_len", s.length}}},
                      {"steps", s.steps},
                      {"seeds", s.predicted ? 0 : s.seeds},
                      {"verdict", c.pass() ? "pass" : "fail"},
                      {"mistakes", ordered_json::array()},
                      {"rows", ordered_json::array()}};
  for (const CoordMistake& m : c.mistakes) out["mistakes"].push_back({{"id", m.id}, {"evidence", m.evidence}, {"remedy", m.remedy}});
  for (const CoordRow& r : c.rows) {
    ordered_json values = ordered_json::array();
    for (const double v : r.values) values.push_back({{s.predicted ? "predicted" : "measured", finite(v)}});
    ordered_json row = {{"what", r.what}, {"quantity", to_string(r.quantity)}, {"step", r.step}, {"values", std::move(values)}};
    if (r.role) row["role"] = to_string(*r.role);
    row["slope"] = r.zero ? ordered_json(nullptr) : finite(r.slope);
    row["stderr"] = r.zero ? ordered_json(nullptr) : finite(r.error);
    row["expected"] = r.zero ? ordered_json(nullptr) : ordered_json({r.low, r.high});
    row["verdict"] = r.pass ? "pass" : "fail";
    out["rows"].push_back(std::move(row));
  }
  return out.dump(2) + "\n";
}

namespace {

// A line of dots over the axis, both logarithmic, in a frame of one decade and a half.
std::string sparkline(const CoordRow& r, const std::vector<double>& axis) {
  constexpr double w = 120, h = 36, decades = 1.5, pad = 4;
  if (std::ranges::any_of(r.values, [](double v) { return !(v > 0) || !std::isfinite(v); })) return "";
  double middle = 0;
  for (const double v : r.values) middle += std::log10(v) / static_cast<double>(r.values.size());
  const double span = std::log(axis.back() / axis.front());
  std::string points;
  for (std::size_t i = 0; i < axis.size(); ++i) {
    const double x = pad + (w - 2 * pad) * std::log(axis[i] / axis.front()) / span;
    const double y = h / 2 - (h - 2 * pad) * std::clamp((std::log10(r.values[i]) - middle) / decades, -0.5, 0.5);
    points += fmt::format("{:.1f},{:.1f} ", x, y);
  }
  return fmt::format(
      "<svg width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"slope {2:+.2f}\"><polyline points=\"{3}\" "
      "fill=\"none\" "
      "stroke=\"currentColor\" stroke-width=\"2\"/></svg>",
      w, h, r.slope, points);
}

constexpr const char* coord_style = R"(
:root{color-scheme:light dark;--good:#18794e;--bad:#c4321c;--line:#8884;--dim:#888}
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
.verdict{font-size:1.2rem;font-weight:600}.pass{color:var(--good)}.fail{color:var(--bad)}
table{border-collapse:collapse;width:100%}td,th{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left}
.n{text-align:right;font-variant-numeric:tabular-nums}.dim{color:var(--dim)}code{overflow-wrap:anywhere}
.scroll{overflow-x:auto}
)";

}  // namespace

std::string coord_html(const CoordSubject& s, const std::string& command, const std::string& version) {
  const Coord& c = s.coord;
  const auto safe_text = [](const std::string& t) { return escaped(show(t)); };
  const char* verdict = c.pass() ? "pass" : "fail";
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{0}: "
      "coordinate "
      "check</title><style>{1}</style></head><body>\n<h1>{0}: coordinate check</h1>\n<p class=\"verdict {2}\">{2}: {3}</p>\n<p>{4}</p>\n",
      safe_text(s.base.name), coord_style, verdict, escaped(coord_headline(s)), escaped(coord_setting(s)));
  for (const CoordMistake& m : c.mistakes)
    out += fmt::format("<h2 class=\"fail\">{}</h2><p>{}</p><p>{}</p>\n", escaped(m.id), escaped(m.evidence), escaped(m.remedy));
  for (const CoordQuantity q : quantities) {
    if (std::ranges::none_of(c.rows, [&](const CoordRow& r) { return r.quantity == q; })) continue;
    out += fmt::format("<h2>{}</h2>\n<div class=\"scroll\"><table><thead><tr><th>what</th><th class=\"n\">step</th>",
                       escaped(quantity_words(q)));
    for (const double v : c.values) out += fmt::format("<th class=\"n\">{} {}</th>", axis_name(c), v);
    out += "<th></th><th class=\"n\">slope</th><th class=\"n\">demanded</th><th></th></tr></thead><tbody>\n";
    for (const CoordRow& r : c.rows) {
      if (r.quantity != q) continue;
      out += fmt::format("<tr><th scope=\"row\"><code>{}</code></th><td class=\"n\">{}</td>", safe_text(r.what), r.step);
      for (const double v : r.values) out += fmt::format("<td class=\"n\">{:.3g}</td>", v);
      out += fmt::format("<td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"{}\">{}</td></tr>\n", sparkline(r, c.values),
                         escaped(measured_slope(r, {.unicode = true})), escaped(demanded(r)), r.pass ? "pass" : "fail",
                         r.pass ? "pass" : "fail");
    }
    out += "</tbody></table></div>\n";
  }
  return out + fmt::format("<p class=\"dim\">{}</p>\n<p class=\"dim\"><code>{}</code>, stepzero {}</p>\n</body></html>\n",
                           escaped(coord_caveat), escaped(command), escaped(version));
}

}  // namespace stepzero
