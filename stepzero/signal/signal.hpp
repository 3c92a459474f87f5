#pragma once
// What predict, measure and compare yield: one structure, shown by report/terminal and report/json.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stepzero/graph/param.hpp"
#include "stepzero/models/architecture.hpp"
#include "stepzero/signal/finding.hpp"

namespace stepzero {

struct Value {
  std::optional<double> predicted;
  std::optional<double> spread;  // of predicted: standard deviation that single draws of the weights would show
  std::optional<double> measured;
  std::optional<double> standard_error;  // of measured; absent with a single seed
};

// How seeds are averaged: a mean, or (for norms) the root of the mean square.
enum class Average : bool { mean, root_mean_square };

struct NodeSignal {
  std::string name;
  std::string kind;
  std::string grade;
  struct {
    Value second_moment, variance, mean, token_cosine;
  } forward;
  struct {
    Value norm, second_moment, token_cosine;
  } backward;
};

struct AttentionSignal {
  std::string name;
  Value score_variance, entropy, sum_squares;
};

struct ParameterSignal {
  std::string name;
  std::vector<Index> shape;
  Value std, gradient_norm;
  Role role = Role::gain;
  int layer = -1;       // block it belongs to, -1 outside the blocks
  bool frozen = false;  // not trained: it has no gradient_norm
};

// Slopes over the depth, per layer: of ln E[x^2] of the stream, of ln of the angle between its tokens (negative: they align),
// and of ln of its gradient's norm, towards the input (positive: it grows on its way up).
struct Growth {
  Value forward, angle, gradient;
};

// E |d to / d from|^2 for a number of `to`, summed over `from`: 1 where a change passes as it is.
struct JacobianSignal {
  std::string from, to;
  Value square;
};

// A prediction made at shorter lengths and carried on to the whole one.
struct Extension {
  Index from = 0;         // the longest of them
  double median = 0;      // of what the same step from the lengths below missed at `from`: relative, of cosines, entropies and
  double nearly_all = 0;  // the loss absolute; 99 % of the numbers
};

struct Signal {
  Architecture architecture;
  Index parameter_count = 0;
  Index trainable_count = 0;  // of parameters that are not frozen
  std::string scheme;
  std::string dtype;  // what the weights drawn were rounded to; empty: float32
  Index batch = 0;
  Index seq_len = 0;
  std::string tokens;
  std::uint64_t seed = 0;
  int seeds = 0;
  bool weightless = false;  // sampled without making the weights
  std::optional<Extension> extension;
  Index sequences_from = 0;   // so many sequences stand for all of the batch; 0: all of them
  Index kernel_draws = 0;     // that predicted gradients lean on; 0: rules alone
  Value loss, gradient_norm;  // of all parameters that are not frozen
  Growth growth;
  std::vector<NodeSignal> nodes;
  std::vector<AttentionSignal> attention;
  std::vector<ParameterSignal> parameters;
  std::vector<JacobianSignal> jacobians;
  std::vector<Finding> findings;  // diagnose() fills them in
};

// The growth of the nodes' predicted or measured values.
void fill_growth(Signal& signal, std::optional<double> Value::* which);

// Visits every Value in a fixed order: f(value, average, where).
template <class S, class F>
void for_each_value(S& signal, const F& f) {
  f(signal.loss, Average::mean, "loss", "loss");
  f(signal.gradient_norm, Average::root_mean_square, "gradient", "norm");
  f(signal.growth.forward, Average::mean, "growth", "of the signal");
  f(signal.growth.angle, Average::mean, "growth", "of the angle");
  f(signal.growth.gradient, Average::mean, "growth", "of the gradient");
  for (auto& n : signal.nodes) {
    f(n.forward.second_moment, Average::mean, n.name, "second moment");
    f(n.forward.variance, Average::mean, n.name, "variance");
    f(n.forward.mean, Average::mean, n.name, "mean");
    f(n.forward.token_cosine, Average::mean, n.name, "token cosine");
    f(n.backward.norm, Average::root_mean_square, n.name, "gradient norm");
    f(n.backward.second_moment, Average::mean, n.name, "gradient second moment");
    f(n.backward.token_cosine, Average::mean, n.name, "gradient token cosine");
  }
  for (auto& a : signal.attention) {
    f(a.score_variance, Average::mean, a.name, "score variance");
    f(a.entropy, Average::mean, a.name, "entropy");
    f(a.sum_squares, Average::mean, a.name, "sum of squares");
  }
  for (auto& p : signal.parameters) {
    f(p.std, Average::mean, p.name, "std");
    f(p.gradient_norm, Average::root_mean_square, p.name, "gradient norm");
  }
}

}  // namespace stepzero
