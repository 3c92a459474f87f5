// range: every wire, weight and gradient well inside a format of numbers. With the format's smallest and largest number a and b, and a
// margin m on both sides (six deviations upwards are in it):
//
//     m a <= rms <= b / m       of every activation and every weight, and of every gradient times one loss scale s
//
// s is the geometric middle of the gradients moved to the middle of the format: what a loss scale can mend is no fault of the weights.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/solve/objective.hpp"

namespace stepzero::solve {

namespace {

constexpr std::array formats = std::to_array<NumberFormat>({{"fp8", 0x1p-9, 448},  // E4M3
                                                            {"fp8-e5m2", 0x1p-16, 57344},
                                                            {"fp16", 0x1p-24, 65504},
                                                            {"bf16", 0x1p-126, 3.3895e38}});

void keep_inside(std::vector<Target>& out, const std::string& what, double value, double low, double high) {
  if (!(value > 0)) return;  // what is exactly 0 fits every format
  out.push_back({.what = what, .wanted = high, .value = value, .kind = Target::Kind::at_most});
  out.push_back({.what = what, .wanted = low, .value = value, .kind = Target::Kind::at_least});
}

std::vector<Target> targets(const Readout& reading, const Settings& settings) {
  const NumberFormat& format = formats[static_cast<std::size_t>(settings.at("format"))];
  const double low = format.smallest * settings.at("margin"), high = format.largest / settings.at("margin");
  std::vector<Target> out;
  const Signal& s = reading.signal();
  const std::size_t nodes = s.nodes.size();
  double logs = 0, count = 0;
  for (std::size_t i = 0; i < nodes; ++i) {
    keep_inside(out, s.nodes[i].name, std::sqrt(reading.square(i)), low, high);
    const double d = std::sqrt(reading.of(s.nodes[i].backward.second_moment));
    if (d > 0) logs += std::log(d), count += 1;
  }
  const double scale = count > 0 ? std::sqrt(low * high) / std::exp(logs / count) : 1;
  for (const NodeSignal& n : s.nodes)
    keep_inside(out, fmt::format("gradient of {}", n.name), scale * std::sqrt(reading.of(n.backward.second_moment)), low, high);
  for (const ParameterSignal& p : s.parameters) {
    const bool matrix = p.role != Role::gain && p.role != Role::bias && p.role != Role::branch_gain;
    if (matrix) keep_inside(out, p.name, reading.of(p.std), low, high);
  }
  for (Target& t : out) t.weight = 1 / std::sqrt(static_cast<double>(out.size()));
  return out;
}

}  // namespace

std::span<const NumberFormat> number_formats() { return formats; }

Objective range_objective() {
  return {
      .name = "range",
      .summary = "every wire, weight and gradient well inside a format of numbers",
      .formula = "margin a <= rms <= b / margin of every activation, weight and (times one loss scale) gradient, in a format from a to b",
      .settings = {{"format", 0, "fp8 (E4M3), fp8-e5m2, fp16, bf16"}, {"margin", 10, "on both sides"}},
      .free = {"token_embedding", "position_embedding", "query", "key", "value", "attention_out", "ffn_in", "ffn_gate", "ffn_out", "head"},
      .targets = targets};
}

}  // namespace stepzero::solve
