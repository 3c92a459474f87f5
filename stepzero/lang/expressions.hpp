#pragma once
// Tokens to expressions: the half of the parser that knows Python's precedence. Internal to lang/.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/lang/lexer.hpp"
#include "stepzero/lang/syntax.hpp"

namespace stepzero::lang {

inline constexpr int most_depth = 100;  // of expressions and blocks in each other

// Words of Python that the language leaves out, and what to write instead.
inline constexpr auto left_out = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"while", "loop over a range: for l in range(layers):"},
     {"class", "functions and lists do: def block(x):"},
     {"import", "nothing is imported but: from stepzero.arch import *"},
     {"from", "nothing is imported but: from stepzero.arch import *"},
     {"with", ""},
     {"try", ""},
     {"raise", "fail(\"what is wrong\", \"what to do\")"},
     {"assert", "if not ...: fail(\"what is wrong\")"},
     {"global", "a list can be changed from inside a function: total[0] = 1"},
     {"nonlocal", "a list can be changed from inside a function: total[0] = 1"},
     {"del", ""},
     {"yield", "return a list"},
     {"async", ""},
     {"await", ""}});
inline constexpr auto reserved =
    std::to_array<std::string_view>({"and", "or", "not", "if", "elif", "else", "for", "in", "is", "def", "lambda", "return", "break",
                                     "continue", "pass", "True", "False", "None"});

class ExpressionParser {
 public:
  ExpressionParser(const Source& source, std::vector<Token> tokens) : source_(source), tokens_(std::move(tokens)) {}

  // One expression and nothing behind it: what stands in the braces of an f-string.
  Expected<ExprPtr> run_expression();

 protected:
  using TokenKind = Token::Kind;
  using K = Expr::Kind;

  // Counts how deep rules lie in each other.
  struct Deeper {
    explicit Deeper(ExpressionParser& p) : parser(p) {
      if (++parser.depth_ > most_depth)
        parser.refuse("expressions or blocks lie too deep in each other", fmt::format("at most {} levels", most_depth));
    }
    ~Deeper() { --parser.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ExpressionParser& parser;
  };

  [[nodiscard]] const Token& now() const { return tokens_[std::min(at_, tokens_.size() - 1)]; }
  [[nodiscard]] bool sees(const char* word) const { return now().is(word); }
  bool take(const char* word) {
    if (failed_ || !sees(word)) return false;
    ++at_;
    return true;
  }
  [[nodiscard]] std::string shown() const;
  void refuse(const std::string& message, std::string hint = {}) { refuse_at(now().place, message, std::move(hint)); }
  void refuse_at(Place place, const std::string& message, std::string hint = {}) {
    if (failed_) return;
    failed_ = true;
    error_ = error_at(source_, place, message, std::move(hint));
  }
  void expect(const char* word, const char* after);
  [[nodiscard]] ExprPtr make(K kind) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->place = now().place;
    return e;
  }
  // a + b + c + ...: no deeper to one side than other expressions to both
  ExprPtr chain(K kind, const Token& sign, ExprPtr a, ExprPtr b);
  void longer(Expr& e);
  static ExprPtr join(K kind, const Token& sign, ExprPtr a, ExprPtr b) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->place = sign.place;
    e->text = sign.text;
    e->parts.push_back(std::move(a));
    e->parts.push_back(std::move(b));
    return e;
  }

  void local(const std::string& name);
  // a, b
  ExprPtr variables();
  ExprPtr name();
  static bool is_reserved(const std::string& word);
  void parameters(Definition& d, const char* end);
  ExprPtr tuple_or_one();
  ExprPtr expression();
  ExprPtr lambda();
  ExprPtr any_of();
  ExprPtr all_of();
  ExprPtr negation();
  // The sign of a comparison, if one stands here.
  std::string comparing();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr term();
  ExprPtr factor();
  ExprPtr postfix();
  ExprPtr call(ExprPtr function);
  // Behind the value: for a, b in list if condition
  ExprPtr comprehension(ExprPtr value);
  ExprPtr list();
  ExprPtr in_brackets();
  ExprPtr atom();
  // Texts that stand beside each other are one.
  ExprPtr texts(ExprPtr e, bool format);
  static ExprPtr plain(ExprPtr e);
  ExprPtr formatted(ExprPtr e);
  ExprPtr inside(const std::string& text, Place place);

  const Source& source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<Definition*> functions_;  // that lie around
  bool failed_ = false;
  Error error_;
};

}  // namespace stepzero::lang
