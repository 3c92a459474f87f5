#pragma once
// The heads of the op files, put into the program by cmake/heads.cmake, and the kinds of op they explain.
#include <string>
#include <vector>

#include "stepzero/ops/op.hpp"

namespace stepzero {

struct OpHead {
  std::string page;                // the file's name: "norm"
  std::string text;                // its head
  std::vector<std::string> kinds;  // that the file declares; none where they are a parameter of it (Elementwise)
};
const std::vector<OpHead>& op_heads();

struct ExplainedOp {
  std::string kind;
  Grade grade;
  const OpHead* head;
};
// Every kind of AnyOp, in the order of the list.
const std::vector<ExplainedOp>& explained_ops();

// What a grade promises.
const char* meaning(Grade grade);

}  // namespace stepzero
