#include "stepzero/report/terminal.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/report/depth.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/remedies.hpp"
#include "stepzero/report/step_text.hpp"

namespace stepzero {

namespace {

using Ink = Look::Ink;

std::string value_text(const Value& v) { return v.measured || v.predicted ? number(best(v)) : "-"; }

std::string with_error(const Value& v, const Look& look) {
  const auto error = v.measured ? v.standard_error : v.spread;
  return error ? fmt::format("{} {} {:.2g}", value_text(v), look.plus_minus(), *error) : value_text(v);
}

// A column of the layer table: a number and a bar for every layer. The bar of sizes goes by their logarithm.
struct Column {
  std::string title, brief;    // brief: where there is no room for bars
  std::vector<double> values;  // NaN: none
  bool logarithmic = false;
  double full = 1;  // a whole bar, where not logarithmic
};

double share_of(const Column& c, double value) {
  if (!c.logarithmic) return value / c.full;
  double low = INFINITY, high = -INFINITY;
  for (const double v : c.values) {
    if (v > 0 && std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
  }
  if (!(high > 0) || !(value > 0)) return 0;
  // the smallest still shows, and a factor below 10 does not look like more
  const double span = std::max(std::log(high / low), std::log(10.0));
  return 0.06 + 0.94 * (1 - std::log(high / value) / span);
}

std::vector<Column> layer_columns(const Signal& s, const Stack& stack, const Look& look) {
  Column signal{std::string("signal ") + look.squared(), look.squared(), {}, true}, gradient{"gradient norm", "gradient", {}, true},
      cosine{"token cosine", "cosine", {}}, entropy{"attn entropy", "entropy", {}}, added{"branches / stream", "added", {}, true},
      scores{"score variance", "scores", {}, true};
  entropy.full = uniform_entropy(s, stack, 0);
  for (std::size_t l = 0; l < stack.layers.size(); ++l) {
    const Layer& layer = stack.layers[l];
    const bool inside = layer.attention != nullptr;
    signal.values.push_back(best(layer.stream->forward.second_moment));
    gradient.values.push_back(best(layer.stream->backward.norm));
    cosine.values.push_back(best(layer.stream->forward.token_cosine));
    entropy.values.push_back(inside ? best(layer.attention->entropy) : NAN);
    entropy.full = std::max(entropy.full, uniform_entropy(s, stack, l));
    added.values.push_back(l < stack.depth() ? added_share(s, stack, l) : NAN);
    scores.values.push_back(inside ? best(layer.attention->score_variance) : NAN);
  }
  return {signal, gradient, cosine, entropy, added, scores};
}

// As many columns as fit, at least four; what is left over makes the bars longer.
std::string layer_table(const Signal& s, const Stack& stack, const Look& look, bool full) {
  constexpr std::size_t label = 6, digits = 9, shortest = 8, longest = 16, rows = 14;
  auto list = layer_columns(s, stack, look);
  const bool bars = look.width >= label + 4 * (digits + shortest + 1);
  const std::size_t room = std::max<std::size_t>(look.width, label + digits + 1) - label;
  list.resize(bars ? std::clamp<std::size_t>(room / (digits + shortest + 1), 4, list.size())
                   : std::clamp<std::size_t>(room / (digits + 1), 1, 4));
  const std::size_t cell = room / list.size(), bar = bars ? std::min(longest, cell - digits - 1) : 0;
  std::string out = right("layer", label - 1) + " ";
  for (const Column& c : list) out += " " + left(bars ? c.title : c.brief, digits + bar);
  out = look.paint(Ink::dim, out.substr(0, out.find_last_not_of(' ') + 1)) + "\n";
  const auto chosen = choose_rows(stack.layers.size(), full ? stack.layers.size() : rows);
  for (const std::size_t l : chosen) {
    std::string line = right(l < stack.depth() ? fmt::format("{}", l) : "end", label - 1) + " ";
    for (const Column& c : list) {
      const double v = c.values[l];
      const std::string drawn = std::isnan(v) || bar == 0 ? "" : look.bar(share_of(c, v), bar - 1);
      line += " " + left(std::isnan(v) ? "-" : number(v), digits) + look.paint(Ink::accent, drawn) + std::string(bar - columns(drawn), ' ');
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  if (chosen.size() < stack.layers.size())
    out += look.paint(Ink::dim, fmt::format("       {} of {} layers; --full shows all", chosen.size() - 1, stack.depth())) + "\n";
  return out;
}

std::string largest_gradients(const Signal& s, const Look& look) {
  auto largest = s.parameters;
  std::erase_if(largest, [](const auto& p) { return p.frozen; });
  const auto size = [](const ParameterSignal& p) {
    const double norm = best(p.gradient_norm);
    return std::isnan(norm) ? std::numeric_limits<double>::infinity() : norm;  // an order needs numbers
  };
  std::ranges::sort(largest, [&](const ParameterSignal& a, const ParameterSignal& b) {
    return std::pair(-size(a), a.name) < std::pair(-size(b), b.name);
  });
  std::string out;
  const double total = best(s.gradient_norm) * best(s.gradient_norm);
  for (std::size_t i = 0; i < std::min<std::size_t>(3, largest.size()); ++i) {
    const ParameterSignal& p = largest[i];
    out += fmt::format("{} {} {:>3.0f} %  {}\n", left(i == 0 ? "largest" : "", 14), left(value_text(p.gradient_norm), 9),
                       total != 0 ? 100 * best(p.gradient_norm) * best(p.gradient_norm) / total : 0,
                       fit(look, look.name(p.name), std::max<std::size_t>(look.width, 40) - 32));
  }
  return out;
}

std::string totals(const Signal& s, const Look& look) {
  const double uniform = std::log(static_cast<double>(s.architecture.vocab));
  const std::string guess = fmt::format("a uniform guess: ln {} = {:.4g}", s.architecture.vocab, uniform);
  const std::size_t beside = 18 + columns(with_error(s.loss, look)) + guess.size();
  std::string out = fmt::format("{} {}{}{}\n", left("loss", 14), look.paint(Ink::bold, with_error(s.loss, look)),
                                beside <= look.width ? "   " : "\n  ", look.paint(Ink::dim, guess));
  out += fmt::format("{} {}\n", left("gradient norm", 14), look.paint(Ink::bold, with_error(s.gradient_norm, look)));
  out += largest_gradients(s, look);
  const auto power = [](const Value& v) { return v.measured || v.predicted ? fmt::format("e^{:+.3g}", best(v)) : "-"; };
  const std::string growth = fmt::format("growth a layer signal {}, token angle {}, gradient {}", power(s.growth.forward),
                                         power(s.growth.angle), power(s.growth.gradient));
  out += growth.size() <= look.width ? growth + "\n" : wrap(growth, look.width, 0, 2);
  for (const JacobianSignal& j : s.jacobians)
    out += fmt::format("{} {} to {}: {}\n", left("jacobian", 14), look.name(j.from), look.name(j.to), with_error(j.square, look));
  return out;
}

std::string node_table(const Signal& s, const Look& look) {
  std::string out = fmt::format("\n{:<28} {:<18} {:>22} {:>10} {:>10} {:>8}  {:>22} {:>8}\n", "node", "kind", look.squared(), "variance",
                                "mean", "cosine", "gradient norm", "cosine");
  for (const NodeSignal& n : s.nodes) {
    out +=
        fmt::format("{} {:<18} {} {:>10} {:>10} {:>8}  {} {:>8}\n", left(look.name(n.name), 28), look.name(n.kind),
                    right(with_error(n.forward.second_moment, look), 22), value_text(n.forward.variance), value_text(n.forward.mean),
                    value_text(n.forward.token_cosine), right(with_error(n.backward.norm, look), 22), value_text(n.backward.token_cosine));
  }
  return out;
}

std::string parameter_table(const Signal& s, const Look& look) {
  std::string out = fmt::format("\n{:<48} {:>14} {:>10} {:>22}\n", "parameter", "shape", "std", "gradient norm");
  for (const ParameterSignal& p : s.parameters) {
    const std::string shape = fmt::format("{}", fmt::join(p.shape, " x "));
    out += fmt::format("{} {:>14} {:>10} {}\n", left(look.name(p.name), 48), shape, value_text(p.std),
                       right(with_error(p.gradient_norm, look), 22));
  }
  return out;
}

}  // namespace

std::string with_commas(Index n) {
  std::string digits = fmt::format("{}", n);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::vector<std::size_t> choose_rows(std::size_t n, std::size_t rows) {
  std::vector<std::size_t> chosen;
  const std::size_t step = n <= rows ? 1 : (n + rows - 3) / (rows - 1);
  for (std::size_t i = 0; i + 1 < n; i += step) chosen.push_back(i);
  if (n > 0) chosen.push_back(n - 1);
  return chosen;
}

std::string adapters_text(const Signal& s) {
  const auto adapters = std::ranges::count(s.parameters, Role::lora_down, &ParameterSignal::role);
  const auto one = std::ranges::find(s.parameters, Role::lora_down, &ParameterSignal::role);
  const std::string what =
      one == s.parameters.end() ? "" : fmt::format("adapters of rank {} beside {} matrices: ", one->shape[0], adapters);
  return fmt::format("{}{} parameters train, the rest is frozen", what, with_commas(s.trainable_count));
}

std::string header_text(const Signal& s, const Look& look) {
  const Architecture& a = s.architecture;
  std::string out = fmt::format("  {} parameters, {} layers, width {}{}", with_commas(s.parameter_count), a.layers, a.width,
                                a.stages.empty() ? fmt::format(", {} heads", a.heads) : "");
  const bool fits = columns(look.name(a.name)) + out.size() <= look.width;
  out = look.paint(Ink::bold, look.name(a.name)) + (fits ? out + "\n" : "\n" + wrap(out, look.width, 2));
  const std::string drawn = fmt::format("{} from seed {}", s.seeds == 1 ? "1 draw" : fmt::format("{} draws", s.seeds), s.seed);
  const std::string how = s.seeds == 0 ? fmt::format("predicted ({} one draw's spread)", look.plus_minus()) : drawn;
  if (!a.changes.empty()) out += wrap(fmt::format("scheme {} sets {}", look.name(s.scheme), fmt::join(a.changes, ", ")), look.width, 0);
  return out +
         wrap(fmt::format("scheme {}{}, {} {} {} x {}, {}", look.name(s.scheme), s.dtype.empty() ? "" : " in " + s.dtype,
                          a.image > 0 ? "images" : "tokens", look.name(s.tokens), s.batch, s.seq_len,
                          how + (s.weightless ? ", weightless" : "")),
              look.width, 0) +
         (s.trainable_count != s.parameter_count ? wrap(adapters_text(s), look.width, 0) : "") +
         (s.extension
              ? wrap(fmt::format("carried on from {} tokens: the same step from {} to {} missed by {:.2g} % (median), {:.2g} % (99 %)",
                                 s.extension->from, s.extension->from / 2, s.extension->from, 100 * s.extension->median,
                                 100 * s.extension->nearly_all),
                     look.width, 0)
              : "") +
         (s.sequences_from > 0 ? wrap(fmt::format("{} of the {} sequences stand for all", s.sequences_from, s.batch), look.width, 0) : "") +
         (s.kernel_draws > 0
              ? wrap(fmt::format("single draws differ much: gradients lean on {} draws of the kernels", s.kernel_draws), look.width, 0)
              : "") +
         "\n";
}

namespace {

// What was tried and worked, as commands to paste; else what is to be said.
std::string remedy_text(const Finding& f, const Look& look) {
  const std::size_t hanging = 2 + (look.unicode ? 0 : 1);
  if (f.remedies.empty())
    return f.remedy.empty() ? "" : wrap(fmt::format("{} {}", look.arrow(), look.text(f.remedy)), look.width, 4, hanging);
  std::string out;
  for (const Remedy& r : f.remedies) {
    out += wrap(fmt::format("{} {}", look.arrow(), look.text(effect(f, r))), look.width, 4, hanging);
    out += continued(look.text(r.command), look.width, 4 + hanging);
  }
  return out;
}

}  // namespace

std::string findings_text(std::span<const Finding> findings, const Look& look, bool full) {
  const bool fine = !any_at_least(findings, Severity::warning);
  const std::string mark = fine ? look.paint(Ink::good, look.unicode ? "✓" : "ok") : look.mark(findings.front().severity);
  const Ink ink = fine ? Ink::good : any_at_least(findings, Severity::error) ? Ink::bad : Ink::warn;
  std::string out = fmt::format("{} {}\n", mark, look.paint(ink, verdict(findings)));
  for (const Finding& f : findings) {
    const std::string title = look.paint(f.severity == Severity::note ? Ink::dim : Ink::bold, look.name(f.id));
    if (f.severity == Severity::note && !full) {
      const auto known = std::ranges::find(diagnoses(), f.id, &Diagnosis::id);
      const std::string meaning = known == diagnoses().end() ? f.evidence : known->meaning;
      std::string lines = wrap(look.text(f.id + ": " + meaning), look.width, 4);
      out += "  " + look.mark(f.severity) + look.paint(Ink::dim, lines.substr(3));
      continue;
    }
    out += fmt::format("  {} {} at {}\n", look.mark(f.severity), title,
                       fit(look, look.name(f.where), std::max(look.width, f.id.size() + 20) - f.id.size() - 10));
    out += wrap(look.text(f.evidence), look.width, 4);
    out += remedy_text(f, look);
  }
  return out + "\n";
}

std::string to_text(const Signal& s, const Look& look, bool full) {
  std::string out = header_text(s, look) + findings_text(s.findings, look, full);
  for (const Stack& stack : stacks(s)) {
    if (!stack.prefix.empty()) out += stack.prefix.substr(0, stack.prefix.size() - 1) + "\n";
    out += layer_table(s, stack, look, full) + "\n";
  }
  if (full) out += node_table(s, look) + parameter_table(s, look) + "\n";
  return out + totals(s, look) + steps_text(s, look, full);
}

}  // namespace stepzero
