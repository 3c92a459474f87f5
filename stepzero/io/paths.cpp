#include "stepzero/io/paths.hpp"

#include <array>
#include <climits>

#include <sys/stat.h>
#include <unistd.h>

namespace stepzero {

bool exists(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0;
}

bool is_directory(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string join_path(std::string_view folder, std::string_view name) {
  std::string out(folder);
  if (!out.empty() && out.back() != '/') out += '/';
  return out.append(name);
}

std::string_view folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {};
  const std::size_t last = path.find_last_not_of('/', slash);
  return last == std::string_view::npos ? path.substr(0, 1) : path.substr(0, last + 1);
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string absolute_path(std::string_view path) {
  std::array<char, PATH_MAX> here;
  if (path.starts_with('/') || ::getcwd(here.data(), here.size()) == nullptr) return std::string(path);
  return join_path(here.data(), path);
}

}  // namespace stepzero
