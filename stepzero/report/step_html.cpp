// The page of the first step: loss over the rate, streams and scores over the depth, tensors. No scripts.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/report/step.hpp"
#include "stepzero/report/terminal.hpp"

namespace stepzero {

namespace {

constexpr const char* page_style = R"(
:root{color-scheme:light dark;--good:#18794e;--bad:#c4321c;--line:#8884;--dim:#888;--one:#3b6fd4;--two:#d97a1c}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}td,th{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:left}
.n{text-align:right;font-variant-numeric:tabular-nums}.dim{color:var(--dim)}code{overflow-wrap:anywhere}
.scroll{overflow-x:auto}.bad{color:var(--bad)}.good{color:var(--good)}
.one{color:var(--one)}.two{color:var(--two)}svg{max-width:100%;height:auto}text{font-size:12px;fill:currentColor}
)";

struct Line {
  const char* name;  // also its class: predicted is one, measured two
  std::vector<std::pair<double, double>> points;
};

// A chart of lines; x by its logarithm where `by_log`.
std::string chart(const std::vector<Line>& lines, bool by_log, const std::string& x_name, std::optional<double> level) {
  constexpr double w = 640, h = 240, left = 56, right = 12, top = 12, bottom = 34;
  double x0 = INFINITY, x1 = -INFINITY, y0 = level.value_or(INFINITY), y1 = level.value_or(-INFINITY);
  const auto place = [&](double x) { return by_log ? std::log(x) : x; };
  for (const Line& l : lines) {
    for (const auto& [x, y] : l.points)
      x0 = std::min(x0, place(x)), x1 = std::max(x1, place(x)), y0 = std::min(y0, y), y1 = std::max(y1, y);
  }
  if (level) y1 = std::min(y1, *level + 1.5 * (*level - y0));  // far above where it began nothing is to be seen
  if (!(x1 > x0) || !(y1 > y0)) return "";
  const auto px = [&](double x) { return left + (w - left - right) * (place(x) - x0) / (x1 - x0); };
  const auto py = [&](double y) { return h - bottom - (h - top - bottom) * (std::min(y, y1) - y0) / (y1 - y0); };
  std::string out =
      fmt::format("<svg width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"over the {2}\">", w, h, x_name);
  out += fmt::format("<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"var(--line)\"/>", left, top, h - bottom, w - right);
  for (const double y : {y0, y1})
    out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>", left - 6, py(y) + 4, y);
  for (const double x : {x0, x1})
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{:.3g}</text>", x == x0 ? left : w - right, h - bottom + 16,
                       x == x0 ? "start" : "end", by_log ? std::exp(x) : x);
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>", (left + w - right) / 2, h - 4, x_name);
  if (level) out += fmt::format("<path d=\"M{} {:.1f}H{}\" stroke=\"var(--dim)\" stroke-dasharray=\"4 4\"/>", left, py(*level), w - right);
  for (const Line& l : lines) {
    std::string points;
    for (const auto& [x, y] : l.points) points += fmt::format("{:.1f},{:.1f} ", px(x), py(y));
    out += fmt::format("<g class=\"{}\"><polyline points=\"{}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"/></g>", l.name,
                       points);
  }
  return out + "</svg>\n";
}

template <class Rows, class X, class Y>
std::vector<Line> lines_of(const Rows& rows, const X& x_of, const Y& value_of) {
  Line predicted{"one", {}}, measured{"two", {}};
  double k = 0;
  for (const auto& row : rows) {
    const Value& v = value_of(row);
    const double x = x_of(row, k++);
    if (v.predicted && std::isfinite(*v.predicted)) predicted.points.emplace_back(x, *v.predicted);
    if (v.measured && std::isfinite(*v.measured)) measured.points.emplace_back(x, *v.measured);
  }
  std::vector<Line> out;
  for (Line& l : std::vector<Line>{predicted, measured}) {
    if (l.points.size() > 1) out.push_back(std::move(l));
  }
  return out;
}

std::string number_cells(const Value& v) {
  const auto cell = [](const std::optional<double>& x) {
    return x && std::isfinite(*x) ? fmt::format("<td class=\"n\">{:.3g}</td>", *x) : std::string("<td class=\"n\">-</td>");
  };
  return cell(v.predicted) + cell(v.measured);
}

}  // namespace

std::string step_html(const StepSubject& s, const std::string& command, const std::string& version) {
  const auto safe_text = [](const std::string& t) { return escaped(show(t)); };
  const StepSignal& step = s.step();
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{0}: "
      "the first "
      "step</title><style>{1}</style></head><body>\n<h1>{0}: the first step of {2} at {3}</h1>\n",
      safe_text(s.signal.architecture.name), page_style, safe_text(s.signal.optimizer.name), s.signal.optimizer.rate);
  out += fmt::format("<p>scheme {}, {} x {} tokens. <span class=\"one\">predicted</span>, <span class=\"two\">measured</span></p>\n",
                     safe_text(s.signal.scheme), s.signal.batch, s.signal.seq_len);
  if (s.signal.findings.empty()) out += "<p class=\"good\">nothing stands out</p>\n";
  for (const Finding& f : s.signal.findings)
    out += fmt::format("<h2 class=\"bad\">{} at {}</h2><p>{}</p><p>{}</p>\n", escaped(f.id), safe_text(f.where), escaped(f.evidence),
                       escaped(f.remedy));
  if (!step.rates.empty()) {
    const std::optional<double> level = step.before.measured ? step.before.measured : step.before.predicted;
    out += "<h2>the loss of the same batch over the rate</h2>\n" +
           chart(lines_of(
                     step.rates, [](const auto& r, double) { return r.rate; }, [](const auto& r) -> const Value& { return r.loss; }),
                 true, "rate", level) +
           "<p class=\"dim\">dashed: before the step</p>\n";
  }
  std::vector<StepSignal::Wire> streams;
  std::ranges::copy_if(step.wires, std::back_inserter(streams), [](const StepSignal::Wire& w) { return place_of(w.name).is_stream(); });
  const auto in_order = [](const auto&, double k) { return k; };
  out += "<h2>change of the stream over its size</h2>\n" +
         chart(lines_of(streams, in_order, [](const auto& w) -> const Value& { return w.relative; }), false, "layer", {});
  out += "<h2>change of the scores</h2>\n" +
         chart(lines_of(step.attention, in_order, [](const auto& a) -> const Value& { return a.change; }), false, "layer", {});
  out +=
      "<h2>tensors</h2>\n<div class=\"scroll\"><table><thead><tr><th></th><th class=\"n\" colspan=\"2\">|dW| / |W|</th><th class=\"n\" "
      "colspan=\"2\">change of "
      "the output</th><th class=\"n\" colspan=\"2\">taken from the loss, first order</th></tr><tr><th>tensor</th>";
  for (int k = 0; k < 3; ++k) out += "<th class=\"n one\">predicted</th><th class=\"n two\">measured</th>";
  out += "</tr></thead><tbody>\n";
  for (const StepSignal::Parameter& p : step.parameters)
    out += fmt::format("<tr><th scope=\"row\"><code>{}</code></th>{}{}{}</tr>\n", safe_text(p.name), number_cells(p.relative),
                       number_cells(p.direct_change), number_cells(p.decrease));
  return out + fmt::format(
                   "</tbody></table></div>\n<p class=\"dim\">What is said is of the first step only.</p>\n<p "
                   "class=\"dim\"><code>{}</code>, stepzero "
                   "{}</p>\n</body></html>\n",
                   escaped(command), escaped(version));
}

}  // namespace stepzero
