#include "stepzero/report/step_text.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/report/depth.hpp"
#include "stepzero/report/terminal.hpp"
#include "stepzero/signal/good_rates.hpp"

namespace stepzero {

namespace {

using Ink = Look::Ink;

std::string shown(const Value& v) { return v.measured ? number(*v.measured) : "-"; }
std::string shown(const std::optional<double>& x) { return x ? number(*x) : "-"; }

const StepSignal::Wire* wire(const StepSignal& s, const std::string& name) {
  const auto at = std::ranges::find(s.wires, name, &StepSignal::Wire::name);
  return at == s.wires.end() ? nullptr : &*at;
}

std::string line(const Look& look, const std::vector<std::string>& cells) {
  std::string out = right(cells[0], 5) + " ";
  for (std::size_t i = 1; i < cells.size(); ++i) out += " " + left(cells[i], 11);
  out = out.substr(0, std::min(out.find_last_not_of(' ') + 1, std::max<std::size_t>(look.width, 20)));
  return out + "\n";
}

// What the step did to the stream in front of each block, and to the scores and branches inside it.
std::string layer_rows(const StepSignal& s, const Stack& stack, const Look& look, bool full) {
  constexpr std::size_t rows = 14;
  std::string out = look.paint(Ink::dim, line(look, {"layer", look.squared(), "change", "relative", "scores", "by weights", "by input"}));
  const auto chosen = choose_rows(stack.layers.size(), full ? stack.layers.size() : rows);
  for (const std::size_t l : chosen) {
    const StepSignal::Wire* stream = wire(s, stack.stream(l));
    if (stream == nullptr) continue;
    const AttentionSignal* attention = stack.layers[l].attention;
    const auto scores =
        attention == nullptr ? s.attention.end() : std::ranges::find(s.attention, attention->name, &StepSignal::Scores::name);
    const NodeSignal* value = stack.layers[l].value;
    const StepSignal::Wire* v = value == nullptr ? nullptr : wire(s, value->name);
    out += line(look, {l < stack.depth() ? fmt::format("{}", l) : "end", shown(stream->second_moment), shown(stream->change),
                       shown(stream->relative), scores == s.attention.end() ? "-" : shown(scores->change), v ? shown(v->direct) : "-",
                       v ? shown(v->carried) : "-"});
  }
  if (chosen.size() < stack.layers.size())
    out += look.paint(Ink::dim, fmt::format("       {} of {} layers; --full shows all", chosen.size() - 1, stack.depth())) + "\n";
  out += wrap(
      "scores: change of the attention scores; by weights, by input: what new values make of the old input, and old values of the "
      "new one",
      look.width, 0);
  return out;
}

std::string losses(const Signal& signal, const StepSignal& s, const Look& look) {
  std::string out = fmt::format("{} {} to {}, to first order {}\n", left("loss", 14), shown(s.before), shown(s.after),
                                s.before.measured && s.first_order.measured ? number(*s.before.measured + *s.first_order.measured) : "-");
  const StepSignal::Wire& logits = s.wires[s.logits];
  out += fmt::format("{} change {}, relative {}\n", left("logits", 14), shown(logits.change), shown(logits.relative));
  const auto& first = signal.steps.front();
  if (first.rates.empty()) return out;
  const GoodRates good = good_rates(first);
  const std::string rates =
      !good.best ? "none of those tried lowers the loss"
                 : fmt::format("{} takes most from the loss, {} to {} at least 90 % of that; {}", shown(good.best), shown(good.low),
                               shown(good.high), good.stops ? fmt::format("from {} on it rises", number(*good.stops)) : "it rises at none");
  return out + wrap(left("good rates", 14) + " " + rates, look.width, 0, 15);
}

std::string largest(const StepSignal& s, const Look& look) {
  std::vector<StepSignal::Parameter> list = s.parameters;
  const auto size = [](const StepSignal::Parameter& p) { return p.decrease.measured.value_or(0); };
  std::ranges::stable_sort(list, [&](const auto& a, const auto& b) { return size(a) > size(b); });
  const double total = s.first_order.measured.value_or(0);
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, list.size()); ++i) {
    out += fmt::format("{} {} {:>3.0f} %  {}\n", left(i == 0 ? "decrease" : "", 14), left(shown(list[i].decrease), 9),
                       total != 0 ? -100 * size(list[i]) / total : 0,
                       fit(look, look.name(list[i].name), std::max<std::size_t>(look.width, 40) - 32));
  }
  return out;
}

std::string wire_rows(const StepSignal& s, const Look& look) {
  std::string out = fmt::format("\n{:<32} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}\n", "node", look.squared(), "change", "relative",
                                "by weights", "by input", "cosine");
  for (const auto& w : s.wires) {
    out += fmt::format("{} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}\n", left(look.name(w.name), 32), shown(w.second_moment),
                       shown(w.change), shown(w.relative), shown(w.direct), shown(w.carried), shown(w.token_cosine));
  }
  return out;
}

std::string parameter_rows(const StepSignal& s, const Look& look) {
  std::string out =
      fmt::format("\n{:<48} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "parameter", "update", "relative", "spectral", "on output", "decrease");
  for (const auto& p : s.parameters) {
    out += fmt::format("{} {:>10} {:>10} {:>10} {:>10} {:>10}\n", left(look.name(p.name), 48), shown(p.update_norm), shown(p.relative),
                       shown(p.spectral_norm), shown(p.direct_change), shown(p.decrease));
  }
  return out;
}

}  // namespace

std::string steps_text(const Signal& signal, const Look& look, bool full) {
  std::string out;
  for (std::size_t k = 0; k < signal.steps.size(); ++k) {
    const StepSignal& s = signal.steps[k];
    const bool last = k + 1 == signal.steps.size();
    if (!last && !full) continue;
    out += "\n" +
           look.paint(Ink::bold,
                      fmt::format("after step {} of {} at {}", k + 1, look.name(signal.optimizer.name), number(signal.optimizer.rate))) +
           "\n\n";
    for (const Stack& stack : stacks(signal)) {
      if (!stack.prefix.empty()) out += stack.prefix.substr(0, stack.prefix.size() - 1) + "\n";
      out += layer_rows(s, stack, look, full) + "\n";
    }
    if (full) out += wire_rows(s, look) + parameter_rows(s, look) + "\n";
    out += losses(signal, s, look) + largest(s, look);
  }
  return out;
}

}  // namespace stepzero
