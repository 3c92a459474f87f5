#pragma once
// What a person should know: said by the diagnosis of a signal and by audit, shown by every view and in the JSON.
#include <string>
#include <vector>

namespace stepzero {

enum class Severity { note, warning, error };

struct Finding {
  std::string id;  // a name that stays: "signal-explodes"
  Severity severity = Severity::warning;
  std::string where;     // node, tensor or "model"
  std::string evidence;  // the number, the threshold and why that threshold
  std::string remedy;
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
