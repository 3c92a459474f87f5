#pragma once
// What is wrong with a signal, why that is wrong, and what to do: the answer to "is this right?".
#include <span>
#include <vector>

#include "stepzero/signal/signal.hpp"

namespace stepzero {

// The worst first. Judges measured numbers where there are any, predicted ones elsewhere.
std::vector<Finding> diagnose(const Signal& signal);

// The number behind every check, whether it is beyond its limit or not; severities say nothing here.
std::vector<Finding> readings(const Signal& signal);

// Every finding that diagnose can come to, with what it means: for documentation.
struct Diagnosis {
  const char* id;
  const char* meaning;
  const char* limit;  // from where on
};
std::span<const Diagnosis> diagnoses();

bool any_at_least(std::span<const Finding> findings, Severity severity);

// "2 warnings, 1 note"; "nothing stands out"
std::string verdict(std::span<const Finding> findings);

}  // namespace stepzero
