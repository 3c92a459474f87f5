#include <algorithm>

#include <fmt/format.h>

#include "stepzero/report/checks.hpp"

namespace stepzero {

// dA = c B' dW and dB = c dW A': where one of them is 0 only the other moves, and where both are neither ever does.
void check_adapters(const Signal& s, Findings& out) {
  const ParameterSignal* first = nullptr;
  double down = 0, up = 0;
  std::size_t adapters = 0;
  for (const ParameterSignal& p : s.parameters) {
    if (p.role == Role::lora_up) up = std::max(up, best(p.gradient_norm));
    if (p.role != Role::lora_down) continue;
    down = std::max(down, best(p.gradient_norm));
    if (first == nullptr) first = &p;
    ++adapters;
  }
  if (first == nullptr) return;
  if (out.want(down == 0 && up > 0)) {
    out.push_back({"adapter-starts-at-zero",
                   Severity::note,
                   first->name,
                   fmt::format("gradients of A are 0 until B moves, in all of {} adapters: B is 0, and dA = c B' dW; the model is the "
                               "frozen one, and in the first step B alone moves",
                               adapters),
                   "meant so",
                   {"largest gradient of an A", down, down == 0 ? 0.0 : -1.0}});
  }
  if (out.want(down == 0 && up == 0)) {
    out.push_back({"adapter-dead",
                   Severity::error,
                   first->name,
                   fmt::format("gradients of A and B are both 0, in all of {} adapters: either waits for the other to move", adapters),
                   "draw A: leave a_std=0 away, and alpha above 0",
                   {"largest gradient of an adapter", std::max(down, up), down + up == 0 ? 0.0 : -1.0}});
  }
}

}  // namespace stepzero
