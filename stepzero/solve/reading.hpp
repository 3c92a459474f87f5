#pragma once
// A signal as objectives and constraints read it: along its streams, by its sums, by what first updates do. Predicted or measured: the
// same functions read both.
#include <optional>
#include <string>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero::solve {

// A number that should be somewhere.
struct Target {
  enum class Kind : std::uint8_t { equal, at_most, at_least };
  std::string what = {};
  double wanted = 1, value = 1;  // above 0
  double weight = 1;             // of the logarithm of value / wanted
  Kind kind = Kind::equal;
  int level = -1;          // targets of one level, from 0 on, want their own geometric mean: what it is is free
  std::string binds = {};  // the constraint it belongs to; empty: it belongs to the objective

  // ln(value / wanted) where it counts.
  [[nodiscard]] double off() const;
  [[nodiscard]] double miss() const { return weight * off(); }
};

// Fills in what targets with a level want.
void settle_levels(std::vector<Target>& targets);

// Where a branch is added to a stream.
struct Sum {
  std::string name, stack;
  Index layer = 0;
  bool attention = false;
  double share = 0;  // tau^2 = (branch scale)^2 E[f^2] / ((skip scale)^2 E[x^2])
};

struct Stream {
  std::string stack;
  std::vector<std::size_t> nodes;  // stream.0 to stream.L
};

class Readout {
 public:
  // `which`: of every Value. `effects`: what the first update of each node's parameters does to its output (root mean square).
  Readout(const Graph& graph, const Signal& signal, std::optional<double> Value::* which, std::vector<std::optional<double>> effects = {})
      : graph_(graph), signal_(signal), which_(which), effects_(std::move(effects)) {}

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const Signal& signal() const { return signal_; }
  [[nodiscard]] double of(const Value& v) const;  // NaN where there is none
  [[nodiscard]] double square(std::size_t node) const { return of(signal_.nodes[node].forward.second_moment); }
  [[nodiscard]] double gradient(std::size_t node) const { return of(signal_.nodes[node].backward.norm); }
  [[nodiscard]] std::optional<double> effect(std::size_t node) const { return node < effects_.size() ? effects_[node] : std::nullopt; }
  [[nodiscard]] std::vector<Stream> streams() const;
  [[nodiscard]] std::vector<Sum> sums() const;  // in running order; a branch that adds exactly nothing has a share of 0

 private:
  const Graph& graph_;
  const Signal& signal_;
  std::optional<double> Value::* which_;
  std::vector<std::optional<double>> effects_;
};

}  // namespace stepzero::solve
