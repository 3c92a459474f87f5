# Writes OUT, a C++ file that holds the architecture file of each family in DIR:
#   cmake -DDIR=stepzero/families -DOUT=families.cpp -P cmake/families.cmake
file(GLOB files "${DIR}/*.py")
set(entries "")
foreach(path IN LISTS files)
  file(READ "${path}" text)
  get_filename_component(name "${path}" NAME_WE)
  string(APPEND entries "      {\"${name}\", R\"FAMILY(${text})FAMILY\"},\n")
endforeach()
file(WRITE "${OUT}" "// Made by cmake/families.cmake from stepzero/families.
#include \"stepzero/models/family_file.hpp\"

std::span<const stepzero::FamilyFile> stepzero::family_files() {
  static constexpr FamilyFile files[] = {
${entries}  };
  return files;
}
")
