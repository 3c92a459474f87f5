#include "stepzero/io/bpe.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/unicode.hpp"

namespace stepzero {

namespace {

constexpr std::size_t longest_known = 64, most_known = std::size_t{1} << 20, short_piece = 64;

std::pair<TokenId, TokenId> sides(const BpeMerge& m) { return {m.left, m.right}; }

}  // namespace

Bpe::Bpe(Tokens tokens, std::vector<BpeMerge> merges, BpeSettings settings)
    : tokens_(std::move(tokens)), merges_(std::move(merges)), settings_(std::move(settings)) {
  std::ranges::sort(merges_, [](const BpeMerge& a, const BpeMerge& b) {
    return std::tuple(a.left, a.right, b.rank) < std::tuple(b.left, b.right, a.rank);
  });
  const auto repeated = std::ranges::unique(merges_, {}, sides);
  merges_.erase(repeated.begin(), repeated.end());
  first_.assign(merges_.empty() ? 1 : static_cast<std::size_t>(merges_.back().left) + 2, 0);
  for (const BpeMerge& m : merges_) ++first_[static_cast<std::size_t>(m.left) + 1];
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  for (const auto& [token, id] : tokens_) {
    if (!token.empty() && decode(token, 0).length == token.size()) characters_[decode(token, 0).value] = id;
  }
  for (int b = 0; b < 256; ++b) bytes_.push_back(find(fmt::format("<0x{:02X}>", b)));
  if (splits_words()) note_neighbours();
}

void Bpe::note_neighbours() {
  std::vector<bool> made;
  for (const BpeMerge& m : merges_) {
    const auto id = static_cast<std::size_t>(m.result);
    if (id >= made.size()) made.resize(id + 1, false);
    made[id] = true;
  }
  for (const auto& [token, id] : tokens_) {
    if (static_cast<std::size_t>(id) >= made.size() || !made[static_cast<std::size_t>(id)]) continue;
    CodePoint left = decode(token, 0);
    for (std::size_t at = left.length; at < token.size(); at += left.length) {
      const CodePoint right = decode(token, at);
      neighbours_.emplace_back(left.value, right.value);
      left = right;
    }
  }
  std::ranges::sort(neighbours_);
  const auto repeated = std::ranges::unique(neighbours_);
  neighbours_.erase(repeated.begin(), repeated.end());
}

std::optional<TokenId> Bpe::find(std::string_view token) const {
  const auto it = std::ranges::lower_bound(tokens_, token, {}, [](const auto& entry) { return std::string_view(entry.first); });
  return it != tokens_.end() && it->first == token ? std::optional(it->second) : std::nullopt;
}

const BpeMerge* Bpe::find_merge(TokenId left, TokenId right) const {
  const auto of = static_cast<std::size_t>(left);
  if (of + 1 >= first_.size()) return nullptr;
  const auto begin = merges_.begin() + first_[of], end = merges_.begin() + first_[of + 1];
  const auto it = std::ranges::lower_bound(begin, end, right, {}, &BpeMerge::right);
  return it != end && it->right == right ? &*it : nullptr;
}

std::optional<TokenId> Bpe::character(char32_t point) const {
  const auto found = characters_.find(point);
  return found == characters_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<TokenId> Bpe::byte(unsigned char value) const { return bytes_[value]; }

bool Bpe::may_join(char32_t left, char32_t right) const { return std::ranges::binary_search(neighbours_, std::pair(left, right)); }

// Two characters with tokens of their own that stand beside each other in no result of a merge are never joined: what is left of them
// and what is right of them are words of their own.
bool BpeEncoder::separate(std::string_view word, std::size_t at, char32_t before) const {
  const char32_t after = decode(word, at).value;
  return model_.character(before) && model_.character(after) && !model_.may_join(before, after);
}

Expected<void> BpeEncoder::encode(std::string_view word, std::vector<TokenId>& ids) {
  if (word.size() <= short_piece || !model_.splits_words()) return encode_piece(word, ids);
  std::size_t begin = 0;
  CodePoint c = decode(word, 0);
  for (std::size_t at = c.length; at < word.size(); at += c.length) {
    if (separate(word, at, c.value)) {
      if (auto done = encode_piece(word.substr(begin, at - begin), ids); !done) return done;
      begin = at;
    }
    c = decode(word, at);
  }
  return encode_piece(word.substr(begin), ids);
}

Expected<void> BpeEncoder::encode_piece(std::string_view word, std::vector<TokenId>& ids) {
  if (const auto found = known_.find(word); found != known_.end()) {
    ids.insert(ids.end(), found->second.begin(), found->second.end());
    return {};
  }
  const std::size_t before = ids.size();
  const auto whole = model_.settings().whole_words ? model_.find(word) : std::nullopt;
  if (whole) {
    ids.push_back(*whole);
  } else {
    if (auto done = spell(word); !done) return done;
    merge();
    for (const Symbol& symbol : symbols_) {
      if (symbol.id >= 0) ids.push_back(symbol.id);
    }
  }
  if (word.size() <= longest_known && known_.size() < most_known)
    known_.emplace(word, std::vector<TokenId>(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end()));
  return {};
}

void BpeEncoder::add(TokenId id) {
  const auto at = static_cast<std::int32_t>(symbols_.size());
  if (at > 0) symbols_.back().next = at;
  symbols_.push_back({id, at - 1, -1});
}

bool BpeEncoder::spell_in_bytes(std::string_view character) {
  for (const char c : character) {
    if (!model_.byte(static_cast<unsigned char>(c))) return false;
  }
  for (const char c : character) add(*model_.byte(static_cast<unsigned char>(c)));
  return true;
}

// The word as characters that have tokens.
Expected<void> BpeEncoder::spell(std::string_view word) {
  const BpeSettings& s = model_.settings();
  const bool dressed = !s.prefix.empty() || !s.suffix.empty();
  symbols_.clear();
  bool unknown_before = false;
  for (std::size_t at = 0; at < word.size();) {
    const CodePoint c = decode(word, at);
    const std::string_view character = word.substr(at, c.length);
    const bool is_first = at == 0;
    at += c.length;
    const auto id = dressed ? model_.find(fmt::format("{}{}{}", is_first ? "" : s.prefix, character, at == word.size() ? s.suffix : ""))
                            : model_.character(c.value);
    const bool was_unknown = std::exchange(unknown_before, false);
    if (id) {
      add(*id);
    } else if (!s.byte_fallback || !spell_in_bytes(character)) {
      if (!s.unknown) {
        return fail(fmt::format("the vocabulary has no token for \"{}\" of the text, and no unk_token", show(character)),
                    "a vocabulary that begins with all 256 bytes spells any text");
      }
      unknown_before = true;
      if (!was_unknown || !s.fuse_unknown) add(*s.unknown);
    }
  }
  return {};
}

void BpeEncoder::offer(std::int32_t at) {
  if (at < 0 || symbols_[static_cast<std::size_t>(at)].next < 0) return;
  const Symbol& left = symbols_[static_cast<std::size_t>(at)];
  const TokenId right = symbols_[static_cast<std::size_t>(left.next)].id;
  const BpeMerge* found = model_.find_merge(left.id, right);
  if (found == nullptr) return;
  pairs_.push_back({found->rank, at, left.id, right, found->result});
  std::ranges::push_heap(pairs_, std::greater(), [](const Pair& p) { return std::pair(p.rank, p.at); });
}

void BpeEncoder::merge() {
  pairs_.clear();
  for (std::int32_t at = 0; std::cmp_less(at, symbols_.size()); ++at) offer(at);
  while (!pairs_.empty()) {
    std::ranges::pop_heap(pairs_, std::greater(), [](const Pair& p) { return std::pair(p.rank, p.at); });
    const Pair pair = pairs_.back();
    pairs_.pop_back();
    Symbol& left = symbols_[static_cast<std::size_t>(pair.at)];
    if (left.id != pair.left || left.next < 0) continue;
    Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    if (right.id != pair.right) continue;  // one of the two was joined to another meanwhile
    left.id = pair.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = pair.at;
    offer(left.previous);
    offer(pair.at);
  }
}

}  // namespace stepzero
