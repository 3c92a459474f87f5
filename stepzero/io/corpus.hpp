#pragma once
// Text as token ids: what a model is trained on. Files, and all readable text in directories, one after the other.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/core/view.hpp"

namespace stepzero {

struct Corpus {
  std::string name;  // for people: "3 files, bytes"
  Index vocab = 0;   // ids are below
  std::vector<std::int32_t> ids;
};

// What a model is trained on where nothing is told: the derivations of this program's documentation.
std::string_view default_text();

// The text itself. A directory gives its files in the order of their paths: those that are UTF-8 text and not hidden.
Expected<std::string> read_corpus_text(const std::vector<std::string>& paths);

// `level`: byte (256 ids), char (a text's own characters in the order of their code points), bpe:FILE (a tokenizer.json).
Expected<Corpus> tokenize(std::string_view text, const std::string& level);

}  // namespace stepzero
