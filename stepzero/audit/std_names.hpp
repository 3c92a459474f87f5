#pragma once
// Formulas behind a standard deviation, for people: 0.004082 is 0.02/sqrt(2*12). What a tensor should be comes from its
// scheme; this only finds words for a number.
#include <string>

#include "stepzero/graph/graph.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

// The simplest that gives `std` within a relative `tolerance`; empty: none.
std::string name_std(double std, double tolerance, const Architecture& a, const Param& p);

}  // namespace stepzero
