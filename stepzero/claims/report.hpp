#pragma once
// What the claims came to: a table, a page, JSON, Markdown with figures.
#include <string>
#include <vector>

#include "stepzero/claims/claim.hpp"

namespace stepzero::claims {

struct Result {
  const Claim* claim = nullptr;
  Evidence evidence;
  [[nodiscard]] bool as_recorded() const { return evidence.verdict() == claim->recorded; }
};

// In lines of at most `width` columns.
std::string table(const std::vector<Result>& results, std::size_t width);
std::string page(const Result& result, std::size_t width = 80);
std::string to_json(const std::vector<Result>& results);
std::string markdown(const std::vector<Result>& results);  // the whole document
std::string markdown_section(const Result& result);        // a claim's part of it
// claims.md and its figures
Expected<void> write_markdown(const std::vector<Result>& results, const std::string& directory);
std::string figure_name(const Claim& claim, std::size_t plot);  // "figures/claims-pe-norm.svg", "figures/claims-pe-norm-2.svg"

}  // namespace stepzero::claims
