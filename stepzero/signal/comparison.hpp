#pragma once
// Predicted and measured side by side.
#include <string>
#include <vector>

#include "stepzero/signal/signal.hpp"

namespace stepzero {

struct Comparison {
  std::string where;
  std::string what;
  double predicted = 0;
  double measured = 0;
  double standard_error = 0;
  double spread = 0;  // predicted standard deviation of a single draw; 0: not predicted
  double error = 0;   // relative; for cosines, entropies and the loss the difference itself, for means in units of the rms
  double z = 0;       // of the standard normal law: as unlikely as Student's t of so few draws

  // Off by more than both 5 standard errors and 10 %.
  [[nodiscard]] bool wrong() const;
};

// Puts the measured values of one walk beside the predicted ones of another over the same graph.
Signal join(const Signal& predicted, const Signal& measured);

std::vector<Comparison> compare(const Signal& joined);  // worst first

// Of an ascending list that is not empty.
double percentile(const std::vector<double>& sorted, double p);

}  // namespace stepzero
