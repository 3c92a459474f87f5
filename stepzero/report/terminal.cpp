#include "stepzero/report/terminal.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

// Four significant digits, never wider than nine characters.
std::string number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  const double size = std::abs(x);
  if (size != 0 && (size < 1e-3 || size >= 1e5)) return fmt::format("{:.2e}", x);
  return fmt::format("{:.4g}", x);
}

std::string number(const Value& v) { return v.measured ? number(*v.measured) : v.predicted ? number(*v.predicted) : "-"; }

std::string with_error(const Value& v) {
  const auto error = v.measured ? v.standard_error : v.spread;
  return error ? fmt::format("{} +- {:.1e}", number(v), *error) : number(v);
}

std::string header(const Signal& s) {
  const Architecture& a = s.architecture;
  std::string out = fmt::format("{}  {} parameters, {} layers, width {}, {} heads\n", show(a.name), with_commas(s.parameter_count),
                                a.layers, a.width, a.heads);
  const std::string how = s.seeds == 0 ? "predicted (+- is how far one draw is off)"
                                       : fmt::format("{} from seed {}", s.seeds == 1 ? "1 draw" : fmt::format("{} draws", s.seeds), s.seed);
  if (!a.changes.empty()) out += fmt::format("scheme {} sets {}\n", show(s.scheme), fmt::join(a.changes, ", "));
  out += fmt::format("scheme {}, tokens {} {} x {}, {}\n\n", show(s.scheme), show(s.tokens), s.batch, s.seq_len,
                     how + (s.weightless ? ", weightless" : ""));
  return out;
}

// A row a layer: what enters it, what its branches add, how its attention looks, and the gradient that arrives.
std::string layer_table(const Signal& s) {
  std::map<std::string, const NodeSignal*> nodes;
  for (const NodeSignal& n : s.nodes) nodes[n.name] = &n;
  std::map<std::string, const AttentionSignal*> attention;
  for (const AttentionSignal& a : s.attention) attention[a.name] = &a;
  const auto second_moment = [&](const std::string& name) {
    const auto it = nodes.find(name);
    return it == nodes.end() ? std::string("-") : number(it->second->forward.second_moment);
  };
  std::string out = fmt::format("{:>5}  {:>9} {:>7} {:>9} {:>9}  {:>9} {:>7}  {:>9}\n", "", "stream", "token", "attn out", "ffn out",
                                "score", "attn", "gradient");
  out += fmt::format("{:>5}  {:>9} {:>7} {:>9} {:>9}  {:>9} {:>7}  {:>9}\n", "layer", "E[x^2]", "cosine", "E[x^2]", "E[x^2]", "variance",
                     "entropy", "norm");
  for (Index l = 0; l <= s.architecture.layers; ++l) {
    const std::string block = fmt::format("blocks.{}.", l);
    const NodeSignal* stream = nodes.at(fmt::format("stream.{}", l));
    const auto a = attention.find(block + "attn");
    out += fmt::format("{:>5}  {:>9} {:>7} {:>9} {:>9}  {:>9} {:>7}  {:>9}\n", l < s.architecture.layers ? fmt::format("{}", l) : "end",
                       number(stream->forward.second_moment), number(stream->forward.token_cosine), second_moment(block + "attn.out"),
                       second_moment(block + "ffn.out"), a == attention.end() ? "-" : number(a->second->score_variance),
                       a == attention.end() ? "-" : number(a->second->entropy), number(stream->backward.norm));
  }
  return out;
}

std::string totals(const Signal& s) {
  const double uniform = std::log(static_cast<double>(s.architecture.vocab));
  std::string out =
      fmt::format("\nloss           {}   (a uniform guess: ln {} = {:.4g})\n", with_error(s.loss), s.architecture.vocab, uniform);
  out += fmt::format("gradient norm  {}\n", with_error(s.gradient_norm));
  out += fmt::format("growth a layer signal e^{}, angle between tokens e^{}, gradient towards the input e^{}\n", number(s.growth.forward),
                     number(s.growth.angle), number(s.growth.gradient));
  for (const JacobianSignal& j : s.jacobians)
    out += fmt::format("jacobian       {} to {}: {}\n", show(j.from), show(j.to), with_error(j.square));
  auto largest = s.parameters;
  const auto size = [](const ParameterSignal& p) {
    const double norm = p.gradient_norm.measured.value_or(p.gradient_norm.predicted.value_or(0));
    return std::isnan(norm) ? std::numeric_limits<double>::infinity() : norm;  // an order needs numbers
  };
  std::ranges::sort(largest, [&](const ParameterSignal& a, const ParameterSignal& b) {
    return std::pair(-size(a), a.name) < std::pair(-size(b), b.name);
  });
  out += "largest        ";
  for (std::size_t i = 0; i < std::min<std::size_t>(3, largest.size()); ++i) {
    out += fmt::format("{}{} {}", i == 0 ? "" : "\n               ", number(largest[i].gradient_norm), show(largest[i].name));
  }
  return out + "\n";
}

std::string node_table(const Signal& s) {
  std::string out = fmt::format("\n{:<28} {:<18} {:>22} {:>10} {:>10} {:>8}  {:>22} {:>8}\n", "node", "kind", "E[x^2]", "variance", "mean",
                                "cosine", "gradient norm", "cosine");
  for (const NodeSignal& n : s.nodes) {
    out += fmt::format("{:<28} {:<18} {:>22} {:>10} {:>10} {:>8}  {:>22} {:>8}\n", show(n.name), n.kind,
                       with_error(n.forward.second_moment), number(n.forward.variance), number(n.forward.mean),
                       number(n.forward.token_cosine), with_error(n.backward.norm), number(n.backward.token_cosine));
  }
  return out;
}

std::string parameter_table(const Signal& s) {
  std::string out = fmt::format("\n{:<48} {:>14} {:>10} {:>22}\n", "parameter", "shape", "std", "gradient norm");
  for (const ParameterSignal& p : s.parameters) {
    const std::string shape = p.shape.size() == 2 ? fmt::format("{} x {}", p.shape[0], p.shape[1]) : fmt::format("{}", p.shape[0]);
    out += fmt::format("{:<48} {:>14} {:>10} {:>22}\n", show(p.name), shape, number(p.std), with_error(p.gradient_norm));
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

std::string to_text(const Signal& s, bool full) {
  std::string out = header(s) + layer_table(s);
  if (full) out += node_table(s) + parameter_table(s);
  return out + totals(s);
}

}  // namespace stepzero
