# Writes OUT, a C++ file that holds the head comment of each op file of DIR and the kinds the file declares:
#   cmake -DDIR=stepzero/ops -DOUT=op_heads.cpp -P cmake/heads.cmake
file(GLOB headers "${DIR}/*.hpp")
set(entries "")
foreach(header IN LISTS headers)
  file(READ "${header}" text)
  if(NOT text MATCHES "^#pragma once\n(// What [^\n]*\n(//[^\n]*\n)*)")  # op.hpp and its kin are no ops
    continue()
  endif()
  string(REGEX REPLACE "(^|\n)// ?" "\\1" head "${CMAKE_MATCH_1}")
  # kind = "linear", kind = centred ? "layer_norm" : "rms_norm"
  set(kinds "")
  string(REGEX MATCHALL "char\\* kind = [^;\n]*" declarations "${text}")
  foreach(declaration IN LISTS declarations)
    string(REGEX MATCHALL "\"[a-z_0-9]+\"" words "${declaration}")
    list(APPEND kinds ${words})
  endforeach()
  list(JOIN kinds ", " kinds)
  get_filename_component(page "${header}" NAME_WE)
  string(APPEND entries "      {\"${page}\", R\"HEAD(${head})HEAD\", {${kinds}}},\n")
endforeach()
file(WRITE "${OUT}" "// Made by cmake/heads.cmake from the heads of stepzero/ops.
#include \"stepzero/report/op_heads.hpp\"

const std::vector<stepzero::OpHead>& stepzero::op_heads() {
  static const std::vector<OpHead> heads = {
${entries}  };
  return heads;
}
")
