#include "stepzero/report/step.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stepzero/graph/graph.hpp"
#include "stepzero/graph/role_names.hpp"
#include "stepzero/report/depth.hpp"
#include "stepzero/report/terminal.hpp"

namespace stepzero {

namespace {

using Ink = Look::Ink;
using nlohmann::ordered_json;

std::string three(const std::optional<double>& x) { return x && std::isfinite(*x) ? fmt::format("{:.3g}", *x) : "-"; }

struct Columns {
  bool predicted, measured;

  explicit Columns(const Signal& s)
      : predicted(s.steps[0].before.predicted.has_value()), measured(s.steps[0].before.measured.has_value()) {}
  [[nodiscard]] std::string of(const Value& v) const {
    std::string out;
    if (predicted) out += left(three(v.predicted), 11);
    if (measured) out += left(three(v.measured), 11);
    return out;
  }
  [[nodiscard]] std::string head(const std::string& what) const {
    std::string out;
    if (predicted) out += left(what, 11);
    if (measured) out += left(predicted ? "measured" : what, 11);
    return out;
  }
};

std::string trimmed(std::string s) { return s.substr(0, s.find_last_not_of(' ') + 1) + "\n"; }

std::string stream_rows(const StepSubject& s, const Look& look, bool full) {
  const Columns c(s.signal);
  constexpr std::size_t most = 14;
  std::vector<const StepSignal::Wire*> streams;
  for (const StepSignal::Wire& w : s.step().wires) {
    if (place_of(w.name).is_stream()) streams.push_back(&w);
  }
  std::string out = look.paint(Ink::dim, trimmed(left("stream", 18) + c.head("relative") + c.head("scores")));
  for (const std::size_t i : choose_rows(streams.size(), full ? streams.size() : most)) {
    const Place place = place_of(streams[i]->name);
    const std::string attention = (place.stack.empty() ? "" : place.stack + ".") + "blocks." + std::to_string(place.layer) + ".attn";
    const auto scores = std::ranges::find(s.step().attention, attention, &StepSignal::Scores::name);
    out += trimmed(left(look.name(streams[i]->name), 18) + c.of(streams[i]->relative) +
                   (scores == s.step().attention.end() ? "" : c.of(scores->change)));
  }
  const StepSignal::Wire& logits = s.step().wires[s.step().logits];
  return out + trimmed(left("logits", 18) + c.of(logits.relative));
}

// Of the decrease of the loss to first order, what the tensors of one role take.
struct Group {
  Role role = Role::gain;
  double predicted = 0, measured = 0;
  Value relative = {}, effect = {};  // the largest
};

void take_larger(std::optional<double>& to, const std::optional<double>& x) {
  if (x && (!to || *x > *to)) to = x;
}

std::vector<Group> groups_of(const StepSubject& s) {
  std::vector<Group> groups;
  double predicted = 0, measured = 0;
  for (std::size_t i = 0; i < s.step().parameters.size(); ++i) {
    const Role role = s.signal.parameters[i].role;
    const StepSignal::Parameter& p = s.step().parameters[i];
    auto it = std::ranges::find(groups, role, &Group::role);
    if (it == groups.end()) it = groups.insert(groups.end(), Group{.role = role});
    it->predicted += p.decrease.predicted.value_or(0), predicted += p.decrease.predicted.value_or(0);
    it->measured += p.decrease.measured.value_or(0), measured += p.decrease.measured.value_or(0);
    take_larger(it->relative.predicted, p.relative.predicted), take_larger(it->relative.measured, p.relative.measured);
    take_larger(it->effect.predicted, p.direct_change.predicted), take_larger(it->effect.measured, p.direct_change.measured);
  }
  for (Group& g : groups) {
    if (predicted != 0) g.predicted /= predicted;
    if (measured != 0) g.measured /= measured;
  }
  std::ranges::stable_sort(groups, std::greater<>(), [](const Group& g) { return std::max(g.predicted, g.measured); });
  return groups;
}

std::string group_rows(const StepSubject& s, const Look& look) {
  const Columns c(s.signal);
  std::string out = look.paint(Ink::dim, trimmed(left("tensors", 28) + c.head("decrease") + c.head("effect")));
  for (const Group& g : groups_of(s)) {
    std::string share;
    if (c.predicted) share += left(fmt::format("{:.1f} %", 100 * g.predicted), 11);
    if (c.measured) share += left(fmt::format("{:.1f} %", 100 * g.measured), 11);
    out += trimmed(left(words(g.role), 28) + share + c.of(g.effect));
  }
  return out +
         look.paint(
             Ink::dim,
             "decrease: share of what the loss loses to first order; effect: the largest change of the outputs by one\ntensor's update") +
         "\n";
}

std::string rates_line(const char* which, const GoodRates& good) {
  if (!good.best) return fmt::format("{:<14} {}: none of those tried lowers the loss\n", "good rates", which);
  const char* where = std::string_view(which) == "predicted" ? " in its first descent" : "";
  return fmt::format("{:<14} {}: {} takes most from the loss{}, {} to {} at least 90 % of that; {}\n", "good rates", which,
                     three(good.best), where, three(good.low), three(good.high),
                     good.stops      ? fmt::format("from {} on it rises", three(good.stops))
                     : where[0] != 0 ? "where it rises is not known"
                                     : "it rises at none");
}

GoodRates rates_of_curve(const StepSignal& step, bool measured) {
  StepSignal one;
  one.rates = step.rates;
  const auto chosen = [&](const Value& v) {
    Value shown;
    shown.measured = measured ? v.measured : v.predicted;
    return shown;
  };
  one.before = chosen(step.before);
  for (StepSignal::Rate& r : one.rates) r.loss = chosen(r.loss);
  return good_rates(one, &Value::measured, measured ? Descent::any : Descent::first);
}

ordered_json step_value(const Value& v) {
  ordered_json out = ordered_json::object();
  const auto put = [&](const char* key, const std::optional<double>& x) {
    if (x) out[key] = std::isfinite(*x) ? ordered_json(*x) : ordered_json(nullptr);
  };
  put("predicted", v.predicted);
  put("measured", v.measured);
  if (v.measured)
    out["stderr"] = v.standard_error && std::isfinite(*v.standard_error) ? ordered_json(*v.standard_error) : ordered_json(nullptr);
  return out;
}

Value over(Value v, const Value& whole) {
  if (v.predicted) v.predicted = *v.predicted / whole.predicted.value_or(NAN);
  if (v.measured) v.measured = *v.measured / whole.measured.value_or(NAN);
  v.standard_error.reset();
  return v;
}

ordered_json json_rates(const StepSubject& s, const GoodRates& g) {
  const auto number = [](const std::optional<double>& x) { return x ? ordered_json(*x) : ordered_json(nullptr); };
  return {{"low", number(g.low)},
          {"best", number(g.best)},
          {"high", number(g.high)},
          {"stops", number(g.stops)},
          {"limited_by", s.limited_by.empty() ? ordered_json(nullptr) : ordered_json(s.limited_by)}};
}

}  // namespace

GoodRates measured_rates(const StepSignal& step) { return rates_of_curve(step, true); }
GoodRates predicted_rates(const StepSignal& step) { return rates_of_curve(step, false); }

std::string step_text(const StepSubject& s, const Look& look, bool full) {
  const Columns c(s.signal);
  const StepSignal& step = s.step();
  std::string out = header_text(s.signal, look);
  out += fmt::format("the first step of {} at {}, {}\n\n", look.name(s.signal.optimizer.name), three(s.signal.optimizer.rate),
                     c.predicted && c.measured ? "predicted and measured"
                     : c.predicted             ? "predicted"
                                               : "measured");
  out += findings_text(s.signal.findings, look, full) + "\n";
  out += stream_rows(s, look, full) + "\n" + group_rows(s, look) + "\n";
  const auto losses = [&](const char* which, const auto& of) {
    const auto before = of(step.before), after = of(step.after), first = of(step.first_order);
    if (before)
      out += fmt::format("{:<14} {}: {} to {}, to first order {}\n", "loss", which, fmt::format("{:.4f}", *before),
                         after ? fmt::format("{:.4f}", *after) : "-", first ? fmt::format("{:.4f}", *before + *first) : "-");
  };
  losses("predicted", [](const Value& v) { return v.predicted; });
  losses("measured", [](const Value& v) { return v.measured; });
  if (!step.rates.empty() && c.predicted) out += rates_line("predicted", predicted_rates(step));
  if (!step.rates.empty() && c.measured) out += rates_line("measured", measured_rates(step));
  if (!s.limited_by.empty()) out += fmt::format("{:<14} {}\n", "limited by", s.limited_by);
  if (!s.below_eps.empty()) out += fmt::format("{:<14} {:.2g} % of the gradient's numbers\n", "below eps", 100 * s.below_eps_of_all);
  if (!full) return out;
  out += look.paint(Ink::dim, "\n" + trimmed(left("tensor", 44) + c.head("dW / W") + c.head("effect") + c.head("decrease")));
  for (const StepSignal::Parameter& p : step.parameters)
    out += trimmed(left(look.name(p.name), 44) + c.of(p.relative) + c.of(p.direct_change) + c.of(p.decrease));
  return out;
}

std::string step_json(const StepSubject& s) {
  const StepSignal& step = s.step();
  const Architecture& a = s.signal.architecture;
  ordered_json settings = ordered_json{{"name", s.signal.optimizer.name}};
  for (const auto& [key, x] : s.signal.optimizer.settings) settings[key] = x;
  ordered_json out = {
      {"schema", "stepzero.step/1"},
      {"model",
       {{"name", a.name}, {"family", a.family}, {"parameters", s.signal.parameter_count}, {"layers", a.layers}, {"width", a.width}}},
      {"scheme", s.signal.scheme},
      {"optimizer", std::move(settings)},
      {"rate", s.signal.optimizer.rate},
      {"input", {{"batch", s.signal.batch}, {"seq_len", s.signal.seq_len}, {"tokens", s.signal.tokens}}},
      {"seeds", s.signal.seeds},
      {"streams", ordered_json::array()},
      {"attention", ordered_json::array()}};
  for (const StepSignal::Wire& w : step.wires) {
    if (place_of(w.name).is_stream())
      out["streams"].push_back({{"name", w.name}, {"change", step_value(w.change)}, {"relative", step_value(w.relative)}});
  }
  for (const StepSignal::Scores& x : step.attention) out["attention"].push_back({{"name", x.name}, {"score_change", step_value(x.change)}});
  const StepSignal::Wire& logits = step.wires[step.logits];
  out["logits"] = {{"change", step_value(logits.change)}, {"relative", step_value(logits.relative)}};
  out["loss"] = {{"before", step_value(step.before)}, {"after", step_value(step.after)}, {"first_order", step_value(step.first_order)}};
  Value whole;
  whole.predicted = whole.measured = 0;
  for (const StepSignal::Parameter& p : step.parameters) {
    *whole.predicted += p.decrease.predicted.value_or(0);
    *whole.measured += p.decrease.measured.value_or(0);
  }
  out["parameters"] = ordered_json::array();
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const StepSignal::Parameter& p = step.parameters[i];
    ordered_json row = {{"name", p.name},
                        {"update_norm", step_value(p.update_norm)},
                        {"relative", step_value(p.relative)},
                        {"direct_change", step_value(p.direct_change)},
                        {"decrease", step_value(over(p.decrease, whole))}};
    if (i < s.below_eps.size() && s.below_eps[i]) row["below_eps"] = *s.below_eps[i];
    out["parameters"].push_back(std::move(row));
  }
  out["rates"] = ordered_json::array();
  for (const StepSignal::Rate& r : step.rates) out["rates"].push_back({{"rate", r.rate}, {"loss", step_value(r.loss)}});
  if (!step.rates.empty()) out["good_rates"] = json_rates(s, step.before.predicted ? predicted_rates(step) : measured_rates(step));
  if (!step.rates.empty() && step.before.predicted && step.before.measured)
    out["good_rates_measured"] = json_rates(s, measured_rates(step));
  out["findings"] = ordered_json::array();
  for (const Finding& f : s.signal.findings)
    out["findings"].push_back(
        {{"id", f.id}, {"severity", to_string(f.severity)}, {"where", f.where}, {"evidence", f.evidence}, {"remedy", f.remedy}});
  return out.dump(2) + "\n";
}

}  // namespace stepzero
