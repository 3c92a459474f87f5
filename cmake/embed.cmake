# Writes OUT, a C++ file that holds the text of IN:
#   cmake -DIN=web/page.html -DOUT=page.cpp -P cmake/embed.cmake
# As numbers, since a string literal has a longest length that differs between compilers.
file(READ "${IN}" bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE "${OUT}" "// Made by cmake/embed.cmake from the built page.
#include \"stepzero/report/html.hpp\"

namespace {
constexpr unsigned char text[] = {${bytes}};
}

std::string_view stepzero::page_template() { return {reinterpret_cast<const char*>(text), sizeof text}; }
")
