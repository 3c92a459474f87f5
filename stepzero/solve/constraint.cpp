#include "stepzero/solve/constraint.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/solve/objective.hpp"

namespace stepzero::solve {

namespace {

constexpr double heavy = 10;  // against targets of weight 1

std::optional<double> positive(std::string_view text) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(x) || !(x > 0)) return {};
  return x;
}

class Bounds {
 public:
  Bounds(const Constraint& c, const Readout& reading) : c_(c), reading_(reading) {}

  std::vector<Target> loss() {
    const Signal& s = reading_.signal();
    const double classes = static_cast<double>(channels_of(reading_.graph().nodes[reading_.graph().nodes.size() - 2].op));
    at_most("|loss - ln V|", std::max(std::abs(reading_.of(s.loss) - std::log(classes)), 1e-9));
    return std::move(out_);
  }
  std::vector<Target> scores() {
    for (const AttentionSignal& a : reading_.signal().attention) {
      at_most(fmt::format("score variance of {}", a.name), reading_.of(a.score_variance));
      if (c_.low > 0) at_least(fmt::format("score variance of {}", a.name), reading_.of(a.score_variance));
    }
    return std::move(out_);
  }
  std::vector<Target> queries() {
    const Signal& s = reading_.signal();
    for (std::size_t q = 0; q < s.nodes.size(); ++q) {
      const std::string& name = s.nodes[q].name;
      if (!name.ends_with(".q")) continue;
      const auto v = reading_.graph().find_node(name.substr(0, name.size() - 1) + "v");
      if (v < 0) continue;
      const double of_value = reading_.gradient(static_cast<std::size_t>(v));
      if (of_value > 0) at_least(fmt::format("gradient of {} over that of v", name), reading_.gradient(q) / of_value);
    }
    return std::move(out_);
  }
  std::vector<Target> range() {
    const Signal& s = reading_.signal();
    for (std::size_t i = 0; i < s.nodes.size(); ++i) inside(s.nodes[i].name, std::sqrt(reading_.square(i)));
    for (const ParameterSignal& p : s.parameters) {
      if (p.role != Role::gain && p.role != Role::bias && p.role != Role::branch_gain) inside(p.name, reading_.of(p.std));
    }
    return std::move(out_);
  }

 private:
  void add(const std::string& what, double value, double wanted, Target::Kind kind) {
    out_.push_back({.what = what, .wanted = wanted, .value = value, .weight = heavy, .kind = kind, .binds = c_.text});
  }
  void at_most(const std::string& what, double value) { add(what, value, c_.high, Target::Kind::at_most); }
  void at_least(const std::string& what, double value) { add(what, value, c_.low, Target::Kind::at_least); }
  void inside(const std::string& what, double value) {
    if (!(value > 0)) return;
    at_most(what, value);
    at_least(what, value);
  }

  const Constraint& c_;
  const Readout& reading_;
  std::vector<Target> out_;
};

}  // namespace

std::vector<Target> Constraint::targets(const Readout& reading) const {
  Bounds bounds(*this, reading);
  if (name == "loss") return bounds.loss();
  if (name == "scores") return bounds.scores();
  if (name == "queries") return bounds.queries();
  return bounds.range();
}

Expected<Constraint> parse_constraint(const std::string& text) {
  const char* hint = "loss=0.1, scores=0.1..1, queries=0.01, range=fp16 (fp8, fp8-e5m2, fp16, bf16)";
  const auto equals = std::min(text.find('='), text.size());
  Constraint c{.text = text, .name = text.substr(0, equals)};
  const std::string_view value = std::string_view(text).substr(std::min(equals + 1, text.size()));
  const auto wrong = [&] { return fail(fmt::format("--subject-to {}: no constraint", show(text)), hint); };
  if (c.name == "range") {
    for (const NumberFormat& f : number_formats()) {
      if (f.name == value) c.low = f.smallest, c.high = f.largest / 6;
    }
    if (c.high == 0) return wrong();
    return c;
  }
  const auto dots = value.find("..");
  const auto first = positive(value.substr(0, dots));
  if (c.name == "scores") {
    const auto last = dots == std::string_view::npos ? first : positive(value.substr(dots + 2));
    if (!first || !last || (dots != std::string_view::npos && !(*last > *first))) return wrong();
    c.low = dots == std::string_view::npos ? 0 : *first;
    c.high = *last;
    return c;
  }
  if (!first || dots != std::string_view::npos || (c.name != "loss" && c.name != "queries")) return wrong();
  (c.name == "loss" ? c.high : c.low) = *first;
  return c;
}

}  // namespace stepzero::solve
