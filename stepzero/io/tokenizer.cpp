#include "stepzero/io/tokenizer.hpp"

#include <fmt/format.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

// A piece goes through the cuts from `next` on; what comes out of the last is a word.
class Words {
 public:
  Words(const std::vector<Cut>& cuts, Budget& budget, BpeEncoder& encoder, std::vector<TokenId>& ids)
      : cuts_(cuts), budget_(budget), encoder_(encoder), ids_(ids) {}

  Expected<void> cut(std::size_t next, Piece piece) {
    if (piece.text.empty()) return {};
    if (next == cuts_.size()) return encoder_.encode(piece.text, ids_);
    return cuts_[next](piece, budget_, [this, next](Piece part) { return cut(next + 1, part); });
  }

 private:
  const std::vector<Cut>& cuts_;
  Budget& budget_;
  BpeEncoder& encoder_;
  std::vector<TokenId>& ids_;
};

}  // namespace

Expected<std::string> Tokenizer::rewritten(std::string_view text, Budget& budget) const {
  Expected<std::string> out(text);
  for (const Rewrite& rewrite : rewrites_) {
    out = rewrite(*out, budget);
    if (!out) break;
  }
  return out;
}

Expected<std::vector<TokenId>> Tokenizer::encode(std::string_view text) const {
  if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos)
    return fail(fmt::format("byte {} of the text is not UTF-8", bad), "--level byte takes any bytes");
  std::vector<TokenId> ids;
  Budget budget(text.size());
  BpeEncoder encoder(model_);
  Words words(cuts_, budget, encoder, ids);
  const auto found = [&](TokenId id) { ids.push_back(id); };
  const auto between = [&](std::string_view given, bool first) -> Expected<void> {
    const auto plain = rewritten(given, budget);
    if (!plain) return std::unexpected(plain.error());
    return added_to_rewritten_.split(
        *plain, [&](std::string_view part, bool begins) { return words.cut(0, {part, first && begins}); }, found);
  };
  if (auto done = added_.split(text, between, found); !done) return std::unexpected(done.error());
  return ids;
}

}  // namespace stepzero
