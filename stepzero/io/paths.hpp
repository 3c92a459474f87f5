#pragma once
// Paths as texts, by POSIX alone: not every library has std::filesystem.
#include <string>
#include <string_view>

namespace stepzero {

bool exists(const std::string& path);
bool is_directory(const std::string& path);

std::string join_path(std::string_view folder, std::string_view name);
std::string_view folder_of(std::string_view path);  // without the slash; empty: the working directory
std::string_view file_name(std::string_view path);
std::string absolute_path(std::string_view path);  // as it is written, from the root

}  // namespace stepzero
