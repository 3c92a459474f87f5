#pragma once
#include <cstdint>
#include <optional>

namespace stepzero {

struct Value {
  std::optional<double> predicted;
  std::optional<double> spread;  // of predicted: standard deviation that single draws of the weights would show
  std::optional<double> measured;
  std::optional<double> standard_error;  // of measured; absent with a single seed
};

// How seeds are averaged: a mean, or (for norms) the root of the mean square.
enum class Average : bool { mean, root_mean_square };

}  // namespace stepzero
