#include "stepzero/core/error.hpp"

#include <stdexcept>

#include <fmt/format.h>

#include "stepzero/core/exceptions.hpp"

namespace stepzero {

void report_bug(const char* condition, const char* file, int line) {
  raise(std::logic_error(fmt::format("{}:{}: a bug in stepzero: `{}` does not hold", file, line, condition)));
}

}  // namespace stepzero
