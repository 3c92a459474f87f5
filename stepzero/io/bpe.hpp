#pragma once
// Byte-pair encoding: a word begins as its characters; of all neighbours that a merge joins, those of the lowest rank are joined first,
// the leftmost of equals, until none is left.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/core/view.hpp"

namespace stepzero {

using TokenId = std::int32_t;

struct BpeMerge {
  TokenId left = 0, right = 0, result = 0;
  std::uint32_t rank = 0;
};

struct BpeSettings {
  std::optional<TokenId> unknown = {};  // stands for characters without a token
  bool fuse_unknown = false;            // one for neighbours
  bool byte_fallback = false;           // a character without a token is its bytes, "<0xE2>"
  bool whole_words = false;             // a word that is a token is not merged (ignore_merges)
  std::string prefix = {};              // of characters that do not begin a word
  std::string suffix = {};              // of the character that ends one
};

class Bpe {
 public:
  using Tokens = std::vector<std::pair<std::string, TokenId>>;

  // Tokens are UTF-8, in the order of their bytes, each once. Of merges of the same two the last counts.
  Bpe(Tokens tokens, std::vector<BpeMerge> merges, BpeSettings settings);

  void set_unknown(TokenId id) { settings_.unknown = id; }

  [[nodiscard]] std::optional<TokenId> find(std::string_view token) const;
  [[nodiscard]] const BpeMerge* find_merge(TokenId left, TokenId right) const;
  [[nodiscard]] std::optional<TokenId> character(char32_t point) const;
  [[nodiscard]] std::optional<TokenId> byte(unsigned char value) const;
  [[nodiscard]] const BpeSettings& settings() const { return settings_; }

  // Whether the parts of a word may be told apart: what a character becomes does not depend on where in its word it stands.
  [[nodiscard]] bool splits_words() const { return !settings_.whole_words && settings_.prefix.empty() && settings_.suffix.empty(); }
  // Whether a merge may ever join what ends in one character and begins with the other.
  [[nodiscard]] bool may_join(char32_t left, char32_t right) const;

 private:
  void note_neighbours();

  Tokens tokens_;
  std::vector<BpeMerge> merges_;      // by left, then right
  std::vector<std::uint32_t> first_;  // of each left, in merges_; one more at the end
  std::unordered_map<char32_t, TokenId> characters_;
  std::vector<std::optional<TokenId>> bytes_;
  std::vector<std::pair<char32_t, char32_t>> neighbours_;  // inside the results of merges, in order
  BpeSettings settings_;
};

// Encodes word after word and remembers the ids of those it has seen.
class BpeEncoder {
 public:
  explicit BpeEncoder(const Bpe& model) : model_(model) {}

  // Appends the ids of a word, which is UTF-8.
  Expected<void> encode(std::string_view word, std::vector<TokenId>& ids);

 private:
  struct Symbol {
    TokenId id = 0;  // -1: joined to the one before
    std::int32_t previous = -1, next = -1;
  };
  struct Pair {
    std::uint32_t rank = 0;
    std::int32_t at = 0;
    TokenId left = 0, right = 0, result = 0;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };

  Expected<void> encode_piece(std::string_view word, std::vector<TokenId>& ids);
  Expected<void> spell(std::string_view word);
  bool spell_in_bytes(std::string_view character);
  void merge();
  void offer(std::int32_t at);
  void add(TokenId id);
  [[nodiscard]] bool separate(std::string_view word, std::size_t at, char32_t before) const;

  const Bpe& model_;
  std::unordered_map<std::string, std::vector<TokenId>, Hash, std::equal_to<>> known_;
  std::vector<Symbol> symbols_;
  std::vector<Pair> pairs_;  // a heap: the next one first
};

}  // namespace stepzero
