#pragma once
// A validation of data from strangers: `broken` says whether the data fails it. The tests build the readers once more
// with switches, take each validation out in turn (STEPZERO_WITHOUT names it), and expect some test to notice.
#include <string_view>

#ifdef STEPZERO_REMOVABLE_VALIDATIONS
#include <cstdlib>
#endif

namespace stepzero {

#ifdef STEPZERO_REMOVABLE_VALIDATIONS
inline bool rejects(std::string_view validation, bool broken) {
  static const char* const removed = std::getenv("STEPZERO_WITHOUT");
  return broken && (removed == nullptr || validation != removed);
}
#else
constexpr bool rejects(std::string_view, bool broken) { return broken; }
#endif

}  // namespace stepzero
