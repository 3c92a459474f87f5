#pragma once
// What a file is, by how it begins: the kinds that people take for a checkpoint.
#include <string>
#include <string_view>

namespace stepzero {

struct FileKind {
  std::string_view magic;  // in lower case
  const char* what;
  const char* hint;
};

constexpr std::size_t kMagicBytes = 64;

// `head` is the first kMagicBytes, or fewer. Null: nothing known; it may be what was hoped for.
const FileKind* recognise(std::string_view head);

}  // namespace stepzero
