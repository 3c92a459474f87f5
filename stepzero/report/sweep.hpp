#pragma once
// A map as it is shown: a heat map with level lines in the terminal, JSON (stepzero.sweep/1), CSV.
#include <optional>
#include <string>
#include <vector>

#include "stepzero/models/architecture.hpp"
#include "stepzero/report/terminal_style.hpp"
#include "stepzero/solve/axis.hpp"
#include "stepzero/solve/quantities.hpp"

namespace stepzero {

struct SweepCell {
  std::vector<std::size_t> at;     // into the values of each axis
  std::vector<double> quantities;  // in the order of solve::quantities(); NaN: there is none
  std::string error = {};          // why the model cannot be made so
  struct Trained {
    std::vector<double> first, last;  // loss of every run: before, and the mean of its last tenth; infinite where it ended early
    int diverged = 0, stalled = 0;
  };
  std::optional<Trained> trained = {};
};

struct SweepSubject {
  Architecture architecture;
  Index parameters = 0;
  std::string scheme;
  std::vector<solve::Axis> axes;  // one or two
  std::vector<SweepCell> cells;   // the last axis runs fastest
};

// `shown`: a quantity's name, or "trained" (the loss after training).
std::string sweep_text(const SweepSubject& subject, const std::string& shown, const Look& look);
std::string sweep_json(const SweepSubject& subject);
std::string sweep_csv(const SweepSubject& subject);

// Where a quantity passes one of its critical values along the first axis, for every value of the second: by straight lines between
// cells, over the axis' logarithm where its steps are geometric. NaN where it does not.
std::vector<double> crossings(const SweepSubject& subject, const std::string& quantity, double critical);

}  // namespace stepzero
