#include <cmath>
#include <limits>

#include "stepzero/pass/measure.hpp"

namespace stepzero {

void Ensemble::add(const Signal& signal) {
  if (count_ == 0) first_ = signal;
  ++count_;
  std::size_t i = 0;
  for_each_value(signal, [&](const Value& value, Average average, const auto&, const char*) {
    if (running_.size() <= i) running_.emplace_back();
    Running& r = running_[i++];
    if (!value.measured) return;
    r.add(average == Average::mean ? *value.measured : *value.measured * *value.measured);
  });
}

Signal Ensemble::result() const {
  Signal signal = first_;
  signal.seeds = count_;
  std::size_t i = 0;
  for_each_value(signal, [&](Value& value, Average average, const auto&, const char*) {
    const Running& r = running_[i++];
    if (!value.measured) return;
    const double root = std::sqrt(r.mean);
    value.measured = average == Average::mean ? r.mean : root;
    // d sqrt(m) = dm / (2 sqrt(m))
    if (count_ > 1) value.standard_error = average == Average::mean ? r.error() : (root > 0 ? r.error() / (2 * root) : 0);
  });
  return signal;
}

double Ensemble::error() const {
  if (count_ < 8) return std::numeric_limits<double>::infinity();
  double largest = 0;
  const Signal now = result();
  const auto look = [&](const Value& v) {
    if (v.measured && *v.measured > 0) largest = std::max(largest, v.standard_error.value_or(0) / *v.measured);
  };
  look(now.gradient_norm);
  for (const NodeSignal& n : now.nodes) {
    look(n.forward.second_moment);
    look(n.backward.second_moment);
  }
  return largest;
}

std::optional<NotFinite> find_not_finite(const Signal& signal) {
  std::optional<NotFinite> first;
  const auto look = [&](const Value& value, const std::string& where, const char* what) {
    const bool broken = (value.measured && !std::isfinite(*value.measured)) || (value.predicted && !std::isfinite(*value.predicted));
    if (!first && broken) first = {where, what};
  };
  for (const NodeSignal& n : signal.nodes) look(n.forward.second_moment, n.name, "the signal");
  for (const AttentionSignal& a : signal.attention) look(a.entropy, a.name, "the attention");
  look(signal.loss, "the loss", "the result");
  for (auto n = signal.nodes.rbegin(); n != signal.nodes.rend(); ++n) look(n->backward.norm, n->name, "the gradient");
  for_each_value(signal, [&](const Value& value, Average, const auto& where, const char* what) {
    if (what != StepSignal::searched) look(value, std::string(where), what);  // a loss there may be any number
  });
  return first;
}

}  // namespace stepzero
