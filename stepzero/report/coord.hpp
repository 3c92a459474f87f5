#pragma once
// A coordinate check as it is shown: text, JSON (stepzero.coord/1), a page.
#include <string>

#include "stepzero/models/architecture.hpp"
#include "stepzero/optim/options.hpp"
#include "stepzero/report/terminal_style.hpp"
#include "stepzero/signal/coord.hpp"

namespace stepzero {

struct CoordSubject {
  Architecture base;  // the first point
  std::string scheme, parametrization;
  OptimizerOptions optimizer;  // settled
  Index sequences = 1, length = 128;
  int steps = 1, seeds = 1;
  bool predicted = false;  // by theory rather than measured
  Coord coord;
};

std::string coord_text(const CoordSubject& subject, const Look& look, bool full);
std::string coord_json(const CoordSubject& subject);
// One page without scripts.
std::string coord_html(const CoordSubject& subject, const std::string& command, const std::string& version);

}  // namespace stepzero
