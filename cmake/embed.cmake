# Writes OUT, a C++ file that holds the text of IN and defines the function NAME, which HEADER declares, to give it:
#   cmake -DIN=web/page.html -DOUT=page.cpp -DHEADER=stepzero/report/html.hpp -DNAME=page_template -P cmake/embed.cmake
# As numbers, since a string literal has a longest length that differs between compilers.
file(READ "${IN}" bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE "${OUT}" "// Made by cmake/embed.cmake.
#include \"${HEADER}\"

namespace {
constexpr unsigned char text[] = {${bytes}};
}

std::string_view stepzero::${NAME}() { return {reinterpret_cast<const char*>(text), sizeof text}; }
")
