#include "stepzero/io/added_tokens.hpp"

#include <algorithm>

#include "stepzero/io/unicode.hpp"

namespace stepzero {

namespace {

const CodePointSet& spaces() {
  static const CodePointSet set = CodePointSet::white_space();
  return set;
}

const CodePointSet& words() {
  static const CodePointSet set = CodePointSet::word();
  return set;
}

bool begins_with(std::string_view text, const CodePointSet& set) { return !text.empty() && set.contains(decode(text, 0).value); }

std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80) --at;
  return at;
}

bool ends_with(std::string_view text, const CodePointSet& set) {
  return !text.empty() && set.contains(decode(text, last_character(text)).value);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& t) { return t.content.empty(); });
  std::ranges::sort(tokens_, {}, &AddedToken::content);
  for (const AddedToken& t : tokens_) begins_[static_cast<unsigned char>(t.content[0])] = true;
}

// The tokens that agree with the text so far lie side by side; byte by byte they become fewer.
const AddedToken* AddedTokens::longest_at(std::string_view text, std::size_t at) const {
  const AddedToken* longest = nullptr;
  auto begin = tokens_.begin(), end = tokens_.end();
  for (std::size_t length = 0; begin != end && at + length < text.size(); ++length) {
    const auto here = [&](const AddedToken& t) {
      return t.content.size() > length ? static_cast<int>(static_cast<unsigned char>(t.content[length])) : -1;
    };
    const auto agreeing = std::ranges::equal_range(begin, end, static_cast<int>(static_cast<unsigned char>(text[at + length])), {}, here);
    begin = agreeing.begin(), end = agreeing.end();
    if (begin != end && begin->content.size() == length + 1) longest = &*begin;
  }
  return longest;
}

Expected<void> AddedTokens::split(std::string_view text, const Between& between, const Found& found) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = begins_[static_cast<unsigned char>(text[at])] ? longest_at(text, at) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at += token->content.size();
    if (token->single_word && (ends_with(text.substr(0, begin), words()) || begins_with(text.substr(end), words()))) continue;
    while (token->strip_left && begin > done && ends_with(text.substr(done, begin - done), spaces()))
      begin = last_character(text.substr(0, begin));
    while (token->strip_right && begins_with(text.substr(end), spaces())) end += decode(text, end).length;
    if (begin > done) {
      if (auto fine = between(text.substr(done, begin - done), done == 0); !fine) return fine;
    }
    found(token->id);
    done = at = end;
  }
  return done < text.size() ? between(text.substr(done), done == 0) : Expected<void>();
}

}  // namespace stepzero
