# Writes OUT, a C++ file that holds the text of the files IN, one after the other, as the function FUNCTION that HEADER declares:
#   cmake -DIN=web/page.html -DOUT=page.cpp -DHEADER=stepzero/report/html.hpp -DFUNCTION=page_template -P cmake/embed.cmake
# As numbers, since a string literal has a longest length that differs between compilers.
set(bytes "")
foreach(file IN LISTS IN)
  file(READ "${file}" text HEX)
  string(APPEND bytes "${text}")
endforeach()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE "${OUT}" "// Made by cmake/embed.cmake.
#include \"${HEADER}\"

namespace {
constexpr unsigned char text[] = {${bytes}};
}

std::string_view stepzero::${FUNCTION}() { return {reinterpret_cast<const char*>(text), sizeof text}; }
")
