// The page of `audit --html`: no script at all, the look of report's page, every text from outside escaped.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/report/audit.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/html.hpp"
#include "stepzero/report/terminal.hpp"
#include "stepzero/report/terminal_style.hpp"

namespace stepzero {

namespace {

constexpr std::size_t kMostRows = 10000;  // of tensors, and of the baseline
constexpr std::size_t kBars = 24;         // of a histogram

// A name from outside; sentences that may hold one.
std::string safe(std::string_view untrusted) { return escaped(show(untrusted)); }
std::string prose(std::string_view untrusted) { return escaped(Look{.unicode = true}.text(untrusted)); }

std::string element(std::string_view tag, std::string_view attributes, std::string_view content) {
  return fmt::format("<{0}{1}{2}>{3}</{0}>", tag, attributes.empty() ? "" : " ", attributes, content);
}

std::string cell(double x) { return element("td", "class=\"n\"", number(x)); }

// The style of report's page, as it was built.
std::string_view page_style() {
  const std::string_view text = page_template(), open = "<style>";
  const std::size_t begin = text.find(open) + open.size(), end = text.find("</style>", begin);
  return text.substr(begin, end - begin);
}

// Where F has reached each edge of equal bins from min to max, between the knots by straight lines.
std::array<double, kBars> masses(const Summary& s) {
  std::array<double, kBars> out = {};
  double x0 = s.min, f0 = 0;
  const double width = (s.max - s.min) / kBars, n = static_cast<double>(s.count);
  const auto spread = [&](double x1, double f1) {
    for (std::size_t b = 0; b < kBars && x1 > x0; ++b) {
      const double from = std::max(x0, s.min + static_cast<double>(b) * width),
                   to = std::min(x1, s.min + static_cast<double>(b + 1) * width);
      if (to > from) out[b] += (f1 - f0) * (to - from) / (x1 - x0);
    }
    x0 = std::max(x0, x1);
    f0 = f1;
  };
  for (const Knot& k : s.knots) spread(std::clamp(k.edge, s.min, s.max), static_cast<double>(k.below) / n);
  spread(s.max, 1);
  return out;
}

std::string histogram(const Summary& s) {
  if (s.knots.empty() || !(s.max > s.min) || !std::isfinite(s.max - s.min)) return "";
  const auto bars = masses(s);
  const double most = *std::ranges::max_element(bars);
  std::string path = "M0 20";
  for (std::size_t b = 0; b < kBars; ++b) path += fmt::format("V{:.1f}H{}", 20 - 19 * bars[b] / most, 3 * (b + 1));
  return fmt::format(
      "<svg class=\"histogram\" viewBox=\"0 0 72 20\" width=\"72\" height=\"20\" role=\"img\" aria-label=\"from {} to {}\"><path "
      "d=\"{}V20Z\"/></svg>",
      number(s.min), number(s.max), path);
}

std::string special(const Summary& s) {
  std::vector<std::string> parts;
  for (const auto& [n, what] :
       {std::pair(s.nans, "NaN"), std::pair(s.infs, "Inf"), std::pair(s.zeros, "zeros"), std::pair(s.subnormals, "subnormal")}) {
    if (n > 0) parts.push_back(fmt::format("{} {}", n, what));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string law_of(const TensorVerdict& v) {
  std::vector<std::string> laws;
  for (const FoundLaw& law : v.laws) {
    const std::string text = law.kind == FoundLaw::Kind::unknown ? "-" : to_string(law);
    if (std::ranges::find(laws, text) == laws.end()) laws.push_back(text);
  }
  std::string out = escaped(fmt::format("{}", fmt::join(laws, "; ")));
  if (!v.formula.empty()) out += element("span", "class=\"sub\"", " = " + escaped(v.formula));
  return out;
}

std::string row(const TensorVerdict& v, bool moments_only) {
  const TensorCensus& c = v.census;
  const char* const mark = v.departs ? "<span class=\"dot warning\"></span>" : "";
  std::string out = element("th", "scope=\"row\"", mark + safe(c.tensor->name));
  out += element("td", "", escaped(fmt::format("{}", fmt::join(c.tensor->shape, " x "))));
  out += element("td", "", escaped(c.tensor->encoding.name));
  if (!c.analysed) return element("tr", "", out + element("td", moments_only ? "colspan=\"7\"" : "colspan=\"11\"", "not analysed"));
  const Summary& s = c.whole;
  out += cell(s.mean) + cell(s.std);
  if (!moments_only)
    out += element("td", "", histogram(s)) + element("td", "", law_of(v)) + element("td", "", v.departs ? escaped(v.expected) : "");
  out += cell(s.kurtosis) + cell(s.skew) + cell(s.min) + cell(s.max) + element("td", "", special(s));
  const auto& spectrum = c.pieces.size() == 1 ? c.pieces[0].spectrum : std::nullopt;
  if (!moments_only)
    out += element("td", "class=\"n\"", spectrum ? fmt::format("{} / {}", number(spectrum->top), number(spectrum->effective_rank)) : "");
  return element("tr", "", out);
}

// Heads of numbers begin with '#'.
std::string table(const std::vector<std::string>& heads, const std::string& rows) {
  std::string head;
  for (const std::string& h : heads)
    head += h.starts_with('#') ? element("th", "scope=\"col\" class=\"n\"", h.substr(1)) : element("th", "scope=\"col\"", h);
  return element("div", "class=\"scroll\"",
                 element("table", "", element("thead", "", element("tr", "", head)) + element("tbody", "", rows)));
}

std::string section(std::string_view id, std::string_view title, const std::string& content) {
  return fmt::format("<section id=\"{}\"><h2>{}</h2>\n{}</section>\n", id, title, content);
}

std::string tensors(const Audit& a) {
  std::vector<std::string> heads = {"tensor", "shape", "type", "#mean", "#std"};
  if (!a.moments_only) heads.insert(heads.end(), {"from min to max", "law", "expected"});
  heads.insert(heads.end(), {"#kurtosis", "#skew", "#min", "#max", "special"});
  if (!a.moments_only) heads.emplace_back("#largest s / effective rank");
  std::string rows;
  for (std::size_t i = 0; i < std::min(kMostRows, a.tensors.size()); ++i) rows += row(a.tensors[i], a.moments_only) + "\n";
  std::string out = table(heads, rows);
  if (a.tensors.size() > kMostRows)
    out += element("p", "class=\"meta\"", fmt::format("and {} more (--json)", a.tensors.size() - kMostRows));
  return section("tensors", "Tensors", out);
}

std::string item(const Finding& f) {
  const std::string severity = to_string(f.severity);
  return element("li", fmt::format("class=\"finding {}\"", severity),
                 element("div", "class=\"finding-head\"", element("span", "class=\"badge\"", severity) + element("h3", "", escaped(f.id))) +
                     element("p", "class=\"evidence\"", prose(f.evidence)) + element("p", "class=\"remedy\"", prose(f.remedy)) +
                     element("p", "class=\"meta\"", element("code", "", safe(f.where))));
}

// What it is, and the verdict.
std::string verdict_of(const Audit& a) {
  const auto any = [&](Severity s) { return std::ranges::any_of(a.findings, [&](const Finding& f) { return f.severity == s; }); };
  const char* const state = any(Severity::error) ? "error" : any(Severity::warning) ? "warning" : "good";
  std::string headline = a.findings.empty() ? (a.moments_only ? "moments only" : "nothing found") : verdict(a.findings);
  std::string about;
  if (!a.moments_only) {
    about = element("p", "", escaped(fmt::format("weights: {}", to_string(a.training))));
    about += element("p", "", a.scheme.empty() ? "none of the known schemes explains the file" : "scheme: " + escaped(a.scheme));
    if (a.asked && a.intended != a.scheme) about += element("p", "", "held against " + escaped(a.intended) + ", as asked");
    for (std::size_t i = 0; i < std::min<std::size_t>(6, a.others.size()); ++i)
      about += element("p", "", fmt::format("or {}: {}", escaped(a.others[i].name), prose(a.others[i].reason)));
  }
  std::string list;
  for (const Finding& f : a.findings) list += item(f) + "\n";
  return fmt::format(
      "<section id=\"findings\" class=\"verdict-section\"><div class=\"verdict {}\"><h2>{}</h2><div "
      "class=\"verdict-text\">{}</div></div>\n{}</section>\n",
      state, headline, about, list.empty() ? "" : element("ol", "class=\"findings\"", list));
}

std::string consequences(const Audit& a) {
  if (!a.found_signal || !a.intended_signal) return "";
  const Signal &f = *a.found_signal, &i = *a.intended_signal;
  std::string rows;
  const auto line = [&](const char* what, const Value& x, const Value& y) {
    const auto value = [](const Value& v) { return element("td", "class=\"n\"", v.predicted ? number(*v.predicted) : "-"); };
    rows += element("tr", "", element("th", "scope=\"row\"", what) + value(x) + value(y));
  };
  line("loss", f.loss, i.loss);
  line("gradient norm", f.gradient_norm, i.gradient_norm);
  line("growth of ln E[x&sup2;]", f.growth.forward, i.growth.forward);
  line("growth of ln gradient", f.growth.gradient, i.growth.gradient);
  return section("consequences", "What follows",
                 element("p", "class=\"lead\"", fmt::format("predicted, {} tokens", f.seq_len)) +
                     table({"", "#this file", "#" + safe(i.scheme)}, rows));
}

std::string baseline(const Audit& a) {
  if (a.baseline.empty()) return "";
  std::string rows;
  for (std::size_t k = 0; k < std::min(kMostRows, a.baseline.size()); ++k) {
    const BaselineRow& r = a.baseline[k];
    rows += element("tr", "",
                    element("th", "scope=\"row\"", safe(r.name)) +
                        element("td", "", r.difference.empty() ? "the same bits" : safe(r.difference)) + cell(r.std) +
                        cell(r.baseline_std) + element("td", "class=\"n\"", r.correlation != 0 ? number(r.correlation) : ""));
  }
  return section("baseline", "Against the baseline", table({"tensor", "difference", "#std", "#there", "#correlation"}, rows));
}

std::string header(const Audit& a) {
  std::uint64_t numbers = 0;
  for (const TensorVerdict& v : a.tensors) numbers += v.census.tensor->elements;
  std::string facts;
  for (const std::string& fact :
       {fmt::format("{}, {} layers, width {}{}", safe(a.architecture.name), a.architecture.layers, a.architecture.width,
                    a.known ? "" : " (guessed from names and shapes)"),
        fmt::format("{} tensors", a.tensors.size()), fmt::format("{} numbers", with_commas(static_cast<Index>(numbers))),
        fmt::format("{:.1f} MB", static_cast<double>(a.bytes) * 1e-6)})
    facts += element("span", "", fact);
  return fmt::format(
      "<header><div class=\"bar\"><span class=\"brand\">stepzero audit</span></div><h1>{}</h1><p class=\"facts\">{}</p></header>\n",
      safe(a.path), facts);
}

}  // namespace

std::string audit_html(const Audit& a) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri "
      "'none'; "
      "form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n<title>stepzero audit</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>";
  out += page_style();
  out +=
      "\n#page{max-width:1560px}.histogram{display:block}.histogram path{fill:var(--accent)}</style>\n</head>\n<body>\n<div id=\"page\">\n";
  out += header(a) + "<main>\n" + verdict_of(a) + consequences(a) + baseline(a) + tensors(a);
  out += "</main>\n</div>\n</body>\n</html>\n";
  return out;
}

}  // namespace stepzero
