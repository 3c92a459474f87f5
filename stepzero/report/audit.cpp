#include "stepzero/report/audit.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/report/terminal.hpp"

namespace stepzero {

namespace {

std::string number(double x) {
  const double size = std::abs(x);
  return size != 0 && (size < 1e-3 || size >= 1e5) ? fmt::format("{:.2e}", x) : fmt::format("{:.4g}", x);
}

std::string header(const Audit& a) {
  std::uint64_t numbers = 0;
  for (const TensorVerdict& v : a.tensors) numbers += v.census.tensor->elements;
  std::string out = fmt::format("{}  {} tensors, {} numbers, {:.1f} MB\n", show(a.path), a.tensors.size(),
                                with_commas(static_cast<Index>(numbers)), static_cast<double>(a.bytes) * 1e-6);
  out += fmt::format("model    {}, {} layers, width {}{}\n", show(a.architecture.name), a.architecture.layers, a.architecture.width,
                     a.known ? "" : " (guessed from names and shapes)");
  if (a.moments_only) return out;
  out += fmt::format("weights  {}\n", to_string(a.training));
  if (a.scheme.empty()) {
    out += "scheme   none of the known ones explains the file\n";
  } else {
    const bool clean = std::ranges::none_of(a.tensors, [](const TensorVerdict& v) { return v.departs; }) || a.scheme != a.intended;
    out += fmt::format("scheme   {}{}\n", a.scheme, clean ? "" : ", but for what is found below");
  }
  if (a.asked && a.intended != a.scheme) out += fmt::format("held against {}, as asked\n", a.intended);
  constexpr std::size_t most = 6;
  for (std::size_t i = 0; i < std::min(most, a.others.size()); ++i)
    out += fmt::format("or       {}: {}\n", a.others[i].name, a.others[i].reason);
  if (a.others.size() > most) out += fmt::format("or       {} more (--json)\n", a.others.size() - most);
  return out;
}

std::string row(const std::string& name, std::size_t count, const TensorVerdict& v, double low, double high) {
  const TensorCensus& c = v.census;
  if (!c.analysed) return fmt::format("{:<46} {:>4}  {:<5} not analysed\n", name, count, c.tensor->encoding.name);
  const std::string std = high - low <= 0.02 * high ? number(c.whole.std) : fmt::format("{} - {}", number(low), number(high));
  const std::string law = v.laws.empty() || v.laws[0].kind == FoundLaw::Kind::unknown ? "-" : to_string(v.laws[0]);
  std::string what = law.substr(0, law.find(','));
  if (!v.formula.empty() && count == 1) what += fmt::format(" {}", v.formula);
  return fmt::format("{:<46} {:>4}  {:<5} {:>10} {:>19} {:>8} {:>10}  {}{}\n", name, count, c.tensor->encoding.name, number(c.whole.mean),
                     std, number(c.whole.kurtosis), number(c.whole.largest()), what, v.departs ? fmt::format("  ! {}", v.expected) : "");
}

// Tensors whose names differ in their numbers only share a row.
std::string table(const Audit& a, bool full) {
  struct Kind {
    const TensorVerdict* first = nullptr;
    std::size_t count = 0;
    double low = 0, high = 0;
  };
  std::vector<std::string> order;
  std::map<std::string, Kind> kinds;
  for (const TensorVerdict& v : a.tensors) {
    const std::string name = full ? v.census.tensor->name : pattern_of(v.census.tensor->name);
    Kind& k = kinds[name];
    const double std = v.census.whole.std;
    if (k.count == 0) {
      order.push_back(name);
      k = {&v, 0, std, std};
    }
    if (v.departs && !k.first->departs) k.first = &v;
    ++k.count;
    k.low = std::min(k.low, std);
    k.high = std::max(k.high, std);
  }
  constexpr std::size_t most = 200;
  std::string out = fmt::format("\n{:<46} {:>4}  {:<5} {:>10} {:>19} {:>8} {:>10}  {}\n", "tensor", "of", "type", "mean", "std", "kurtosis",
                                "largest", "law");
  for (std::size_t i = 0; i < order.size() && (full || i < most); ++i) {
    const Kind& k = kinds[order[i]];
    out += row(show(order[i]), k.count, *k.first, k.low, k.high);
  }
  if (!full && order.size() > most) out += fmt::format("and {} more kinds of tensors (--full)\n", order.size() - most);
  return out;
}

std::string consequences(const Audit& a) {
  if (!a.found_signal || !a.intended_signal) return "";
  const auto value = [](const Value& v) { return v.predicted ? number(*v.predicted) : std::string("-"); };
  const Signal &f = *a.found_signal, &i = *a.intended_signal;
  std::string out = fmt::format("\n{:<26} {:>12} {:>12}   (predicted, {} tokens; measure --weights runs the real thing)\n", "what follows",
                                "this file", show(i.scheme).substr(0, 12), f.seq_len);
  const auto line = [&](const char* what, const Value& x, const Value& y) {
    out += fmt::format("{:<26} {:>12} {:>12}\n", what, value(x), value(y));
  };
  line("loss", f.loss, i.loss);
  line("gradient norm", f.gradient_norm, i.gradient_norm);
  line("growth of ln E[x^2]", f.growth.forward, i.growth.forward);
  line("growth of ln gradient", f.growth.gradient, i.growth.gradient);
  return out;
}

std::string baseline(const Audit& a) {
  if (a.baseline.empty()) return "";
  std::map<std::string, std::size_t> counts;
  std::string rows;
  for (const BaselineRow& r : a.baseline) {
    if (counts[r.difference]++ >= 12 || r.difference.empty()) continue;
    rows += fmt::format("  {:<46} {}, std {} and {}{}\n", show(r.name), r.difference, number(r.std), number(r.baseline_std),
                        r.correlation != 0 ? fmt::format(", correlation {:.3f}", r.correlation) : "");
  }
  std::vector<std::string> parts;
  for (const auto& [what, n] : counts) parts.push_back(fmt::format("{} {}", n, what.empty() ? "with the same bits" : what));
  return fmt::format("\nagainst the baseline: {}\n{}", fmt::join(parts, ", "), rows);
}

}  // namespace

std::string audit_text(const Audit& a, const Look& look, bool full) {
  const std::string found = a.moments_only && a.findings.empty() ? "" : "\n" + findings_text(a.findings, look, true);
  const std::string rest = table(a, full).substr(found.empty() ? 0 : 1);  // a blank line between
  return header(a) + found + rest + baseline(a) + consequences(a);
}

}  // namespace stepzero
