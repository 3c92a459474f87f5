#pragma once
// A solution as it is shown: text, JSON (stepzero.solve/1), the scheme's file, a snippet for PyTorch, a table of rates.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stepzero/optim/rates.hpp"
#include "stepzero/report/terminal_style.hpp"
#include "stepzero/solve/solve.hpp"

namespace stepzero {

// A group of tensors that moved together.
struct SolvedScale {
  std::string role, stack;
  std::optional<int> layer;  // none: all layers alike
  double before = 0, after = 0;
};

struct SolvedMultiplier {
  std::string field;
  double before = 1, after = 1;
};

struct SolveSubject {
  Architecture architecture;
  Index parameters = 0;
  std::string scheme, objective;
  std::vector<std::string> formulas, unknowns;
  solve::Solution solution;
  std::vector<SolvedScale> scales;
  std::vector<SolvedMultiplier> multipliers;
  SchemeFile file;
  std::shared_ptr<const Graph> graph;
  std::vector<std::pair<std::string, double>> rates;  // of tensors; empty: they stay
  std::vector<solve::Target> measured;                // after, by real passes; empty: not measured
  int seeds = 0;

  [[nodiscard]] const std::vector<Part>& parts_of(const std::string& tensor) const;
};

std::string solve_text(const SolveSubject& subject, const Look& look, bool full);
std::string solve_json(const SolveSubject& subject);
std::string scheme_text(const SchemeFile& file);        // stepzero.scheme/1
std::string solve_scheme(const SolveSubject& subject);  // stepzero.scheme/1
std::string solve_torch(const SolveSubject& subject, const std::string& command);
std::string solve_rates(const SolveSubject& subject);  // stepzero.rates/1

// Of the targets that are there by both: how far the measured is from what was predicted, the largest (|ln|), and which.
struct Confirmed {
  double worst = 0;
  std::string what;
};
Confirmed confirmed(const SolveSubject& subject);

}  // namespace stepzero
