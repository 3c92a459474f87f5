#include "stepzero/core/team.hpp"

namespace stepzero {

// What is sent: '+' and the part, or '-' and an error: '!' if another process is writing, else '.'; the message, a zero byte, the hint.
Expected<std::vector<std::string>> Team::share(const Expected<std::string>& own) const {
  if (!exchange) {
    if (!own) return std::unexpected(own.error());
    return std::vector<std::string>{*own};
  }
  const auto failure = [](const Error& e) { return std::string(e.busy ? "-!" : "-.") + e.message + '\0' + e.hint; };
  std::vector<std::string> parts = exchange(own ? '+' + *own : failure(own.error()));
  for (std::string& part : parts) {
    if (part.starts_with('-')) {
      const std::size_t end = part.find('\0');
      return std::unexpected(Error{.message = part.substr(2, end - 2), .hint = part.substr(end + 1), .busy = part[1] == '!'});
    }
    part.erase(0, 1);
  }
  return parts;
}

}  // namespace stepzero
