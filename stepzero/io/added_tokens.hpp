#pragma once
// Tokens that are found in a text before anything else is done to it.
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/io/bpe.hpp"

namespace stepzero {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false;                      // not inside a word
  bool strip_left = false, strip_right = false;  // takes the white space beside it
  bool normalized = false;                       // looked for in the text as rewritten, not as given
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  using Between = std::function<Expected<void>(std::string_view text, bool first)>;
  using Found = std::function<void(TokenId id)>;
  // From the left, the longest first: what stands between, and the tokens.
  Expected<void> split(std::string_view text, const Between& between, const Found& found) const;

 private:
  [[nodiscard]] const AddedToken* longest_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;  // in the order of their contents
  std::array<bool, 256> begins_ = {};
};

}  // namespace stepzero
