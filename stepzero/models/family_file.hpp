#pragma once
// The architecture files of the families (stepzero/families): what `describe` prints.
#include <span>
#include <string>
#include <string_view>

#include "stepzero/core/error.hpp"
#include "stepzero/models/own_file.hpp"

namespace stepzero {

struct FamilyFile {
  std::string_view model_type;
  std::string_view text;
};
std::span<const FamilyFile> family_files();

// The file of a family that reads a config.json by itself; null: there is none.
const FamilyFile* find_family_file(std::string_view model_type);

// The text of the family with the sizes of this model in its arch(...); `a` is resolved and of a family.
Expected<std::string> fill_family_file(const Architecture& a);

// A text with other sizes in its arch(...).
std::string with_sizes(std::string_view text, const std::string& name, const SizeValues& sizes);

}  // namespace stepzero
