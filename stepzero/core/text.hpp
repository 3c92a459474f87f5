#pragma once
// Text from files and flags, made safe to look at. A tensor name can hold terminal commands, right-to-left marks that
// reorder a line, or a forged log line; none of it may reach a terminal, a log or a message as it stands.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace stepzero {

// Printable text as it is; every other code point as \u{..}, every byte that is not UTF-8 as \xNN. What would take more
// than 256 bytes is cut and its length said. For one name at a time: a whole message would be cut.
std::string show(std::string_view untrusted);

// For a page: characters that mean something in HTML or XML are escaped.
std::string escaped(std::string_view text);

// Whether show() has nothing to escape (it may still cut).
bool printable(std::string_view untrusted);

bool valid_utf8(std::string_view text);

// Offset of the first byte that is not UTF-8; npos when there is none.
std::size_t find_invalid_utf8(std::string_view text);

// The known word that a misspelt one most likely means: the nearest by edit distance, ignoring case. Empty when none is
// near.
std::string closest(std::string_view wrong, std::span<const std::string> known);

}  // namespace stepzero
