#include "stepzero/lang/lexer.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "stepzero/core/read_real.hpp"
#include "stepzero/core/text.hpp"

namespace stepzero::lang {

namespace {

using Kind = Token::Kind;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// longest first
constexpr auto signs =
    std::to_array<std::string_view>({"//=", "**=", "**", "//", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "%=", "+", "-",
                                     "*",   "/",   "%",  "(",  ")",  "[",  "]",  ",",  ":",  "=",  "<",  ">",  ".",  "{", "}"});

class Lexer {
 public:
  Lexer(const Source& source, int file) : source_(source), text_(source.text), file_(file) {}

  Expected<std::vector<Token>> run() {
    if (const std::size_t bad = find_invalid_utf8(text_); bad != std::string_view::npos) {
      return fail(fmt::format("{}: byte {} is not UTF-8", show(source_.name), bad), "an architecture file is plain text");
    }
    while (!failed_ && at_ < text_.size()) {
      if (line_begins_ && open_ == 0) {
        indentation();
      } else {
        token();
      }
    }
    if (!failed_ && open_ > 0) refuse(opened_, "this bracket is never closed", "");
    if (failed_) return std::unexpected(error_);
    if (!tokens_.empty() && tokens_.back().kind != Kind::line_end) add(Kind::line_end, "");
    for (; indents_.size() > 1; indents_.pop_back()) add(Kind::dedent, "");
    add(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] Place here() const { return {file_, line_, static_cast<int>(at_ - line_start_) + 1}; }
  [[nodiscard]] char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  Token& add(Kind kind, std::string text) { return tokens_.emplace_back(Token{kind, std::move(text), 0, 0, here()}); }

  void refuse(Place place, const std::string& message, std::string hint) {
    if (failed_) return;
    failed_ = true;
    error_ = error_at(source_, place, message, std::move(hint));
  }

  void new_line() {
    ++at_;
    ++line_;
    line_start_ = at_;
  }

  void skip_comment() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  // Blank lines and comments have none.
  void indentation() {
    std::size_t width = 0;
    while (peek() == ' ') ++at_, ++width;
    if (peek() == '\t') return refuse(here(), "a tab in the indentation", "indent with spaces");
    if (peek() == '#') skip_comment();
    if (peek() == '\r') ++at_;
    if (at_ >= text_.size()) return;
    if (peek() == '\n') return new_line();
    line_begins_ = false;
    if (width > indents_.back()) {
      if (indents_.size() > 60) return refuse(here(), "blocks lie too deep in each other", "at most 60 levels");
      indents_.push_back(width);
      add(Kind::indent, "");
    }
    while (width < indents_.back()) {
      indents_.pop_back();
      add(Kind::dedent, "");
    }
    if (width != indents_.back()) refuse(here(), "this line is indented like none before it", "");
  }

  void token() {
    const char c = peek();
    if (c == ' ' || c == '\r') {
      ++at_;
    } else if (c == '#') {
      skip_comment();
    } else if (c == '\n') {
      if (open_ == 0) {
        add(Kind::line_end, "");
        line_begins_ = true;
      }
      new_line();
    } else if ((c == 'f') && (peek(1) == '"' || peek(1) == '\'')) {
      ++at_;
      text(Kind::format);
    } else if (is_letter(c)) {
      const std::size_t start = at_;
      Token& t = add(Kind::name, "");
      while (is_letter(peek()) || is_digit(peek())) ++at_;
      t.text = text_.substr(start, at_ - start);
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      number();
    } else if (c == '"' || c == '\'') {
      text(Kind::text);
    } else {
      sign();
    }
  }

  void sign() {
    for (const std::string_view s : signs) {
      if (text_.substr(at_, s.size()) != s) continue;
      if (s == "(" || s == "[" || s == "{") {
        if (open_++ == 0) opened_ = here();
      } else if (s == ")" || s == "]" || s == "}") {
        if (open_ == 0) return refuse(here(), fmt::format("{} closes nothing", s), "");
        --open_;
      }
      add(Kind::sign, std::string(s));
      at_ += s.size();
      return;
    }
    refuse(here(), fmt::format("\"{}\" has no meaning here", show(text_.substr(at_, 1))), "");
  }

  void number() {
    const std::size_t start = at_;
    Token& t = add(Kind::whole, "");
    const auto digits = [&] {
      while (is_digit(peek()) || (peek() == '_' && is_digit(peek(1)))) ++at_;
    };
    digits();
    if (peek() == '.') t.kind = Kind::real, ++at_, digits();
    if ((peek() == 'e' || peek() == 'E') && (is_digit(peek(1)) || ((peek(1) == '-' || peek(1) == '+') && is_digit(peek(2))))) {
      t.kind = Kind::real;
      at_ += 2;
      digits();
    }
    std::string plain(text_.substr(start, at_ - start));
    std::erase(plain, '_');
    const char* last = plain.data() + plain.size();
    const auto result = t.kind == Kind::whole ? std::from_chars(plain.data(), last, t.whole) : read_real(plain.data(), last, t.real);
    if (result.ec != std::errc() || result.ptr != last || is_letter(peek())) {
      refuse(t.place, fmt::format("\"{}\" is no number that can be held", show(plain)), "");
    }
  }

  void text(Kind kind) {
    Token& t = add(kind, "");
    if (kind == Kind::format) --t.place.column;  // the f
    const char quote = peek();
    const bool three = peek(1) == quote && peek(2) == quote;
    at_ += three ? 3 : 1;
    while (true) {
      if (at_ >= text_.size() || (!three && peek() == '\n')) return refuse(t.place, "this text is never closed", "");
      if (peek() == quote && (!three || (peek(1) == quote && peek(2) == quote))) break;
      if (peek() == '\\') {
        const std::string_view known = "n\\\"'t", means = "\n\\\"'\t";
        const std::size_t i = known.find(peek(1));
        if (i == std::string_view::npos || peek(1) == '\0')
          return refuse(here(), "of escapes only \\n, \\t, \\\\, \\\" and \\' are known", "");
        t.text += means[i];
        at_ += 2;
      } else {
        t.text += peek();
        if (peek() == '\n') {
          new_line();
        } else {
          ++at_;
        }
      }
    }
    at_ += three ? 3 : 1;
  }

  const Source& source_;
  std::string_view text_;
  int file_;
  std::size_t at_ = 0, line_start_ = 0;
  int line_ = 1, open_ = 0;
  Place opened_;
  bool line_begins_ = true, failed_ = false;
  Error error_;
  std::vector<std::size_t> indents_ = {0};
  std::vector<Token> tokens_;
};

}  // namespace

Expected<std::vector<Token>> lex(const Source& source, int file) { return Lexer(source, file).run(); }

}  // namespace stepzero::lang
