#pragma once
// A tokenizer as Hugging Face's tokenizer.json tells it, of the model BPE: added tokens, rewriting, cutting into words, merges. What
// frames a sequence (post_processor: tokens of begin and end), truncation and padding are no part of a text and are left aside.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/view.hpp"
#include "stepzero/io/added_tokens.hpp"
#include "stepzero/io/bpe.hpp"
#include "stepzero/io/text_steps.hpp"

namespace stepzero {

class Tokenizer {
 public:
  static constexpr std::uint64_t most_bytes = std::uint64_t{128} << 20;

  static Expected<Tokenizer> parse(std::string_view json, const std::string& file_name);

  [[nodiscard]] Index vocab() const { return vocab_; }  // the largest id + 1
  [[nodiscard]] Expected<std::vector<TokenId>> encode(std::string_view text) const;

 private:
  friend class TokenizerReader;
  Tokenizer(Bpe model, Index vocab) : model_(std::move(model)), vocab_(vocab) {}
  [[nodiscard]] Expected<std::string> rewritten(std::string_view text, Budget& budget) const;

  AddedTokens added_, added_to_rewritten_;
  std::vector<Rewrite> rewrites_;
  std::vector<Cut> cuts_;
  Bpe model_;
  Index vocab_;
};

}  // namespace stepzero
