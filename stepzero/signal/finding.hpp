#pragma once
// What a person should know: said by the diagnosis of a signal and by audit, shown by every view and in the JSON.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace stepzero {

enum class Severity { note, warning, error };

// What a finding was judged by.
struct Reading {
  const char* what = "";  // in words; empty: no single number
  double value = std::numeric_limits<double>::quiet_NaN();
  double beyond = 0;  // the logarithm of how far it is beyond its limit: the larger, the worse
};

// What can be changed of a command line.
struct Change {
  std::string scheme;            // empty: as it is
  std::vector<std::string> set;  // "key=value"

  [[nodiscard]] std::string flags() const;  // "--scheme deepnet --set norm_placement=post"
  bool operator==(const Change&) const = default;
};

// A change that the program has made: the finding went, and nothing as bad came.
struct Remedy {
  Change change;
  std::string command;              // the whole of it, to paste
  double before = 0, after = 0;     // of the reading; not numbers where there is none
  std::vector<std::string> brings;  // findings less severe than the one that went
};

struct Finding {
  std::string id;  // a name that stays: "signal-explodes"
  Severity severity = Severity::warning;
  std::string where;     // node, tensor or "model"
  std::string evidence;  // the number, the threshold and why that threshold
  std::string remedy;    // what to do, in words
  Reading reading = {};
  std::vector<Remedy> remedies = {};    // find_remedies() fills them in
  std::vector<std::string> tried = {};  // flags that were tried in vain
};

constexpr const char* to_string(Severity s) {
  switch (s) {
    case Severity::note:
      return "note";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "";
}

// By severity, else in the order they came.
void worst_first(std::vector<Finding>& findings);

}  // namespace stepzero
