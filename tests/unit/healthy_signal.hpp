#pragma once
// A signal with nothing to say about, to spoil: GPT-2 by theory.
#include <stdexcept>
#include <string>
#include <string_view>

#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/theory/predict.hpp"

namespace stepzero::testing {

inline Signal predicted_signal(const std::string& model, const std::vector<std::string>& set, const char* scheme_name, Index length = 32) {
  const Scheme* scheme = find_scheme(scheme_name).value();
  Architecture a = load_model(model).value();
  for (const std::string& assignment : set) set_field(a, assignment).value();
  resolve(a).value();
  adapt(a, *scheme).value();
  const Graph graph = build_graph(a);
  const Batch batch = make_batch({.source = "zipf", .length = length, .sequences = 1, .vocab = a.vocab, .positions = a.positions}).value();
  Signal signal = predict(graph, a, batch, *scheme, {.order = Order::fluctuations});
  signal.tokens = "zipf";
  signal.findings = diagnose(signal);
  return signal;
}

inline const Signal& healthy_signal() {
  static const Signal signal = predicted_signal("gpt2", {}, "hf");
  return signal;
}

inline NodeSignal& node(Signal& s, std::string_view name) {
  for (NodeSignal& n : s.nodes) {
    if (n.name == name) return n;
  }
  throw std::runtime_error("no node " + std::string(name));
}

inline Finding finding(const Signal& s, std::string_view id) {
  for (const Finding& f : s.findings) {
    if (f.id == id) return f;
  }
  throw std::runtime_error("no finding " + std::string(id));
}

}  // namespace stepzero::testing
