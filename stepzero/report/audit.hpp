#pragma once
// An audit for people and for programs.
#include <string>

#include "stepzero/audit/audit.hpp"
#include "stepzero/report/terminal_style.hpp"

namespace stepzero {

// One screen: what it is, what is wrong, a row a kind of tensor. `full`: a row a tensor.
std::string audit_text(const Audit& audit, const Look& look, bool full);

// The contract stepzero.audit/1 (docs/json.md).
std::string audit_json(const Audit& audit);

// One page that needs nothing else: the verdict, the findings, a row a tensor with its histogram.
std::string audit_html(const Audit& audit);

}  // namespace stepzero
