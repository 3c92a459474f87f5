#include "stepzero/io/text_steps.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "stepzero/io/unicode.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {

namespace {

// Matches and what lies between them, in order, as pieces.
class Pieces {
 public:
  Pieces(Piece whole, Behavior behavior, const Sink& sink) : whole_(whole), behavior_(behavior), sink_(sink) {}

  Expected<void> add(std::size_t begin, std::size_t end, bool match) {
    if (begin == end) return {};
    if (behavior_ == Behavior::isolated) return give(begin, end);
    if (behavior_ == Behavior::removed) return match ? Expected<void>() : give(begin, end);
    if (held_ && joins(match)) {
      end_ = end;
      match_ = match;
      return {};
    }
    auto done = flush();
    begin_ = begin, end_ = end, match_ = match, held_ = true;
    return done;
  }
  Expected<void> flush() { return std::exchange(held_, false) ? give(begin_, end_) : Expected<void>(); }

 private:
  [[nodiscard]] bool joins(bool match) const {
    switch (behavior_) {
      case Behavior::contiguous:
        return match == match_;
      case Behavior::merged_with_previous:
        return match && !match_;
      default:
        return match_ && !match;
    }
  }
  Expected<void> give(std::size_t begin, std::size_t end) {
    return sink_({whole_.text.substr(begin, end - begin), whole_.first && begin == 0});
  }

  Piece whole_;
  Behavior behavior_;
  const Sink& sink_;
  std::size_t begin_ = 0, end_ = 0;  // of the piece that may still grow
  bool match_ = false, held_ = false;
};

bool is_space(char32_t point) {
  static const CodePointSet spaces = CodePointSet::white_space();
  return spaces.contains(point);
}

std::unexpected<Error> grown() {
  return fail("a text becomes more than sixteen times as long before it is cut into words", "a tokenizer needs no more than a few times");
}

// Printable characters of Latin-1 stand for themselves, the other bytes for U+0100 and on.
std::array<std::string, 256> byte_names() {
  std::array<std::string, 256> names;
  char32_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
    append_utf8(names[b], printable ? b : next++);
  }
  return names;
}

}  // namespace

Rewrite replace(Expression pattern, std::string with) {
  return [pattern = std::move(pattern), with = std::move(with)](std::string_view text, Budget& budget) -> Expected<std::string> {
    std::string out;
    for (std::size_t at = 0;;) {
      const auto match = pattern.find(text, at, budget);
      if (!match) return std::unexpected(match.error());
      if (!*match) return out.append(text.substr(at));
      out.append(text.substr(at, (*match)->begin - at)).append(with);
      if (rejects("tokenizer.replaced", out.size() > budget.longest)) return grown();
      at = (*match)->end;
    }
  };
}

Rewrite prepend(std::string prefix) {
  return [prefix = std::move(prefix)](std::string_view text, Budget&) -> Expected<std::string> {
    return text.empty() ? std::string() : prefix + std::string(text);
  };
}

Rewrite strip(bool left, bool right) {
  return [=](std::string_view text, Budget&) -> Expected<std::string> {
    while (left && !text.empty() && is_space(decode(text, 0).value)) text.remove_prefix(decode(text, 0).length);
    while (right && !text.empty()) {
      std::size_t last = text.size() - 1;
      while ((static_cast<unsigned char>(text[last]) & 0xC0U) == 0x80) --last;
      if (!is_space(decode(text, last).value)) break;
      text = text.substr(0, last);
    }
    return std::string(text);
  };
}

Cut split(Expression pattern, Behavior behavior, bool inverted) {
  const auto shared = std::make_shared<const Expression>(std::move(pattern));
  return [=](Piece piece, Budget& budget, const Sink& sink) -> Expected<void> {
    Pieces pieces(piece, behavior, sink);
    for (std::size_t at = 0; at < piece.text.size();) {
      const auto match = shared->find(piece.text, at, budget);
      if (!match) return std::unexpected(match.error());
      const std::size_t begin = *match ? (*match)->begin : piece.text.size();
      if (auto done = pieces.add(at, begin, inverted); !done) return done;
      if (!*match) break;
      if (auto done = pieces.add(begin, (*match)->end, !inverted); !done) return done;
      at = (*match)->end;
    }
    return pieces.flush();
  };
}

Cut spell_bytes() {
  return [](Piece piece, Budget& budget, const Sink& sink) -> Expected<void> {
    if (rejects("tokenizer.spelt", piece.text.size() > budget.longest)) return grown();
    static const std::array<std::string, 256> names = byte_names();
    std::string out;
    out.reserve(2 * piece.text.size());
    for (const char c : piece.text) out += names[static_cast<unsigned char>(c)];
    return sink({out, piece.first});
  };
}

Cut prefix_space() {
  return [](Piece piece, Budget&, const Sink& sink) -> Expected<void> {
    if (piece.text.starts_with(' ')) return sink(piece);
    const std::string with = " " + std::string(piece.text);
    return sink({with, piece.first});
  };
}

Cut mark_spaces(std::string mark, MarkFront front) {
  return [mark = std::move(mark), front](Piece piece, Budget&, const Sink& sink) -> Expected<void> {
    std::string out;
    for (const char c : piece.text) c == ' ' ? out += mark : out += c;
    const bool marks = front == MarkFront::all || (front == MarkFront::first && piece.first);
    if (marks && !out.starts_with(mark)) out.insert(0, mark);
    return sink({out, piece.first});
  };
}

}  // namespace stepzero
