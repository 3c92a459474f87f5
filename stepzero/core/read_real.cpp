#include "stepzero/core/read_real.hpp"

#include <cmath>
#include <cstdlib>
#include <string>

namespace stepzero {

#ifdef __cpp_lib_to_chars

std::from_chars_result read_real(const char* first, const char* last, double& value) { return std::from_chars(first, last, value); }

#else

// strtod, which also reads blanks and a plus before the number, hexadecimal numbers and words.
std::from_chars_result read_real(const char* first, const char* last, double& value) {
  const std::string text(first, last);
  const std::size_t length = text.find_first_not_of("0123456789.eE+-");
  const std::string number = text.substr(0, length);
  if (number.empty() || number[0] == '+') return {first, std::errc::invalid_argument};
  char* end = nullptr;
  const double read = std::strtod(number.c_str(), &end);
  if (end == number.c_str()) return {first, std::errc::invalid_argument};
  const char* const next = first + (end - number.c_str());
  const bool zero = number.find_first_of("123456789") >= number.find_first_of("eE");  // no digit but 0 before the exponent
  if (std::isinf(read) || (read == 0 && !zero)) return {next, std::errc::result_out_of_range};
  value = read;
  return {next, std::errc()};
}

#endif

}  // namespace stepzero
