#pragma once
// The heads of the op files, put into the program by cmake/heads.cmake.
#include <string>
#include <vector>

namespace stepzero::cli {

struct OpHead {
  std::string page;                // the file's name: "norm"
  std::string text;                // its head
  std::vector<std::string> kinds;  // that the file declares; none where they are a parameter of it (Elementwise)
};

const std::vector<OpHead>& op_heads();

}  // namespace stepzero::cli
