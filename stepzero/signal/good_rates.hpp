#pragma once
#include <optional>

#include "stepzero/signal/step_signal.hpp"

namespace stepzero {

// What a search over the rate of one step says. Absent: not within the rates that were looked up.
struct GoodRates {
  std::optional<double> low, high;  // between them the step takes at least 90 % of the largest decrease
  std::optional<double> best;       // where it takes most: the vertex of the parabola through the best three, over the rate's logarithm
  std::optional<double> stops;      // where, beyond the best, the loss is first no lower than before
};
inline constexpr double good_share = 0.9;

// any: the lowest loss of all. first: where the loss is lowest before it first rises, as far as predicted losses are to be trusted.
enum class Descent : std::uint8_t { any, first };
inline constexpr double rises_by = 0.02;  // of the decrease: less is the roughness of a predicted curve

// From the losses of a step, measured or predicted.
GoodRates good_rates(const StepSignal& step, std::optional<double> Value::* which = &Value::measured, Descent descent = Descent::any);

}  // namespace stepzero
