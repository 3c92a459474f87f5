#include "stepzero/signal/finding.hpp"

#include "stepzero/core/sort_few.hpp"

namespace stepzero {

void worst_first(std::vector<Finding>& findings) {
  sort_few(findings, [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
}

}  // namespace stepzero
