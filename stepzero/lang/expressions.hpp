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
inline constexpr auto reserved = std::to_array<std::string_view>({"and", "or", "not", "if", "elif", "else", "for", "in", "is", "def", "lambda", "return",
                                                           "break", "continue", "pass", "True", "False", "None"});

class ExpressionParser {
 public:
  ExpressionParser(const Source& source, std::vector<Token> tokens) : source_(source), tokens_(std::move(tokens)) {}

  // One expression and nothing behind it: what stands in the braces of an f-string.
  Expected<ExprPtr> run_expression() {
    ExprPtr e = tuple_or_one();
    if (now().kind == TokenKind::line_end) ++at_;
    if (!failed_ && now().kind != TokenKind::end) refuse(fmt::format("{} is not expected here", shown()), "an f-string takes expressions without a format");
    if (failed_) return std::unexpected(error_);
    return e;
  }

 protected:
  using TokenKind = Token::Kind;
  using K = Expr::Kind;

  // Counts how deep rules lie in each other.
  struct Deeper {
    explicit Deeper(ExpressionParser& p) : parser(p) {
      if (++parser.depth_ > most_depth) parser.refuse("expressions or blocks lie too deep in each other", fmt::format("at most {} levels", most_depth));
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
  [[nodiscard]] std::string shown() const {
    if (now().kind == TokenKind::line_end || now().kind == TokenKind::end) return "the end of the line";
    if (now().kind == TokenKind::indent || now().kind == TokenKind::dedent) return "this indentation";
    return now().text.empty() ? "this" : fmt::format("\"{}\"", show(now().text));
  }
  void refuse(const std::string& message, std::string hint = {}) { refuse_at(now().place, message, std::move(hint)); }
  void refuse_at(Place place, const std::string& message, std::string hint = {}) {
    if (failed_) return;
    failed_ = true;
    error_ = error_at(source_, place, message, std::move(hint));
  }
  void expect(const char* word, const char* after) {
    if (!failed_ && !take(word)) refuse(fmt::format("expected \"{}\" {}, found {}", word, after, shown()));
  }
  [[nodiscard]] ExprPtr make(K kind) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->place = now().place;
    return e;
  }
  // a + b + c + ...: no deeper to one side than other expressions to both
  ExprPtr chain(K kind, const Token& sign, ExprPtr a, ExprPtr b) {
    ExprPtr e = join(kind, sign, std::move(a), std::move(b));
    longer(*e);
    return e;
  }
  void longer(Expr& e) {
    e.length = e.parts[0]->length + 1;
    if (e.length > most_depth) refuse("this expression is too long", "give a part of it a name");
  }
  static ExprPtr join(K kind, const Token& sign, ExprPtr a, ExprPtr b) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->place = sign.place;
    e->text = sign.text;
    e->parts.push_back(std::move(a));
    e->parts.push_back(std::move(b));
    return e;
  }

  void local(const std::string& name) {
    if (functions_.empty()) return;
    auto& list = functions_.back()->locals;
    if (std::ranges::find(list, name) == list.end()) list.push_back(name);
  }

  // a, b
  ExprPtr variables() {
    ExprPtr first = name();
    if (failed_ || !sees(",")) return first;
    auto all = make(K::tuple);
    all->parts.push_back(std::move(first));
    while (!failed_ && take(",")) all->parts.push_back(name());
    return all;
  }

  ExprPtr name() {
    auto e = make(K::name);
    if (now().kind != TokenKind::name || is_reserved(now().text)) {
      refuse(fmt::format("expected a name, found {}", shown()));
      return e;
    }
    e->text = now().text;
    ++at_;
    return e;
  }
  static bool is_reserved(const std::string& word) {
    return std::ranges::find(reserved, word) != reserved.end() || std::ranges::any_of(left_out, [&](const auto& w) { return w.first == word; });
  }

  void parameters(Definition& d, const char* end) {
    while (!failed_ && !sees(end)) {
      const Place place = now().place;
      const ExprPtr param = name();
      if (std::ranges::find(d.params, param->text) != d.params.end()) refuse_at(place, fmt::format("the argument {} is there twice", param->text));
      d.params.push_back(param->text);
      if (take("=")) {
        d.defaults.push_back(expression());
      } else if (!d.defaults.empty()) {
        refuse_at(place, "an argument without a default behind one that has one");
      }
      if (!take(",")) break;
    }
    d.locals = d.params;
  }

  ExprPtr tuple_or_one() {
    ExprPtr first = expression();
    if (failed_ || !sees(",")) return first;
    auto all = make(K::tuple);
    all->place = first->place;
    all->parts.push_back(std::move(first));
    while (!failed_ && take(",")) {
      if (now().kind == TokenKind::line_end || now().kind == TokenKind::end || sees("=") || sees(")")) break;
      all->parts.push_back(expression());
    }
    return all;
  }

  ExprPtr expression() {
    const Deeper deeper(*this);
    if (failed_) return make(K::none);
    if (sees("lambda")) return lambda();
    ExprPtr value = any_of();
    const Token sign = now();
    if (!take("if")) return value;
    auto e = make(K::choice);
    e->place = sign.place;
    e->parts.push_back(std::move(value));
    e->parts.push_back(any_of());
    expect("else", "in a conditional expression");
    e->parts.push_back(expression());
    return e;
  }

  ExprPtr lambda() {
    auto e = make(K::lambda);
    ++at_;
    auto d = std::make_shared<Definition>();
    d->name = "lambda";
    d->place = e->place;
    parameters(*d, ":");
    expect(":", "after the arguments of a lambda");
    functions_.push_back(d.get());
    d->result = expression();
    functions_.pop_back();
    e->definition = std::move(d);
    return e;
  }

  ExprPtr any_of() {
    ExprPtr e = all_of();
    for (Token sign = now(); !failed_ && take("or"); sign = now()) e = chain(K::any_of, sign, std::move(e), all_of());
    return e;
  }
  ExprPtr all_of() {
    ExprPtr e = negation();
    for (Token sign = now(); !failed_ && take("and"); sign = now()) e = chain(K::all_of, sign, std::move(e), negation());
    return e;
  }
  ExprPtr negation() {
    const Deeper deeper(*this);
    if (failed_ || !sees("not")) return comparison();
    auto e = make(K::unary);
    e->text = "not";
    ++at_;
    e->parts.push_back(negation());
    return e;
  }

  // The sign of a comparison, if one stands here.
  std::string comparing() {
    for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (take(sign)) return sign;
    }
    if (take("in")) return "in";
    if (take("is")) return take("not") ? "is not" : "is";
    if (sees("not") && at_ + 1 < tokens_.size() && tokens_[at_ + 1].is("in")) {
      at_ += 2;
      return "not in";
    }
    return {};
  }

  ExprPtr comparison() {
    ExprPtr first = sum();
    const Place place = now().place;
    std::string sign = comparing();
    if (sign.empty()) return first;
    auto e = make(K::compare);
    e->place = place;
    e->parts.push_back(std::move(first));
    while (!failed_ && !sign.empty()) {
      e->words.push_back(sign);
      e->parts.push_back(sum());
      sign = comparing();
    }
    return e;
  }

  ExprPtr sum() {
    ExprPtr e = term();
    for (Token sign = now(); !failed_ && (take("+") || take("-")); sign = now()) e = chain(K::binary, sign, std::move(e), term());
    return e;
  }
  ExprPtr term() {
    ExprPtr e = factor();
    for (Token sign = now(); !failed_ && (take("*") || take("/") || take("//") || take("%")); sign = now()) {
      e = chain(K::binary, sign, std::move(e), factor());
    }
    return e;
  }
  ExprPtr factor() {
    const Deeper deeper(*this);
    if (failed_) return make(K::none);
    if (sees("-") || sees("+")) {
      auto e = make(K::unary);
      e->text = now().text;
      ++at_;
      e->parts.push_back(factor());
      return e;
    }
    ExprPtr base = postfix();
    const Token sign = now();
    if (!take("**")) return base;
    return join(K::binary, sign, std::move(base), factor());
  }

  ExprPtr postfix() {
    ExprPtr e = atom();
    while (!failed_) {
      const Place place = now().place;
      if (!e->parts.empty()) longer(*e);
      if (sees("(")) {
        e = call(std::move(e));
      } else if (take("[")) {
        auto index = make(K::index);
        index->place = place;
        index->parts.push_back(std::move(e));
        index->parts.push_back(expression());
        if (sees(":")) refuse("slices are not part of the language", "[x[i] for i in range(n)]");
        expect("]", "after an index");
        e = std::move(index);
      } else if (take(".")) {
        auto method = make(K::method);
        method->place = place;
        method->text = name()->text;
        method->parts.push_back(std::move(e));
        if (!failed_ && !sees("(")) refuse("only methods stand behind a dot", "list.append(x), list.pop()");
        e = std::move(method);
      } else {
        break;
      }
    }
    return e;
  }

  ExprPtr call(ExprPtr function) {
    auto e = make(K::call);
    e->place = function->place;
    ++at_;
    e->parts.push_back(std::move(function));
    while (!failed_ && !sees(")")) {
      if (sees("*") || sees("**")) refuse("arguments are written one by one");
      if (now().kind == TokenKind::name && at_ + 1 < tokens_.size() && tokens_[at_ + 1].is("=")) {
        const std::string word = now().text;
        if (std::ranges::find(e->words, word) != e->words.end()) refuse(fmt::format("the argument {} is given twice", word));
        at_ += 2;
        e->words.push_back(word);
        e->parts.push_back(expression());
      } else {
        if (!e->words.empty()) refuse("an argument without a name behind one that has one");
        ExprPtr one = expression();
        e->parts.push_back(sees("for") ? comprehension(std::move(one)) : std::move(one));
      }
      if (!take(",")) break;
    }
    expect(")", "after the arguments of a call");
    return e;
  }

  // Behind the value: for a, b in list if condition
  ExprPtr comprehension(ExprPtr value) {
    auto e = make(K::comprehend);
    e->place = value->place;
    ++at_;
    e->parts.push_back(std::move(value));
    const ExprPtr names = variables();
    for (const ExprPtr& n : names->parts) e->words.push_back(n->text);
    if (names->kind == K::name) e->words = {names->text};
    expect("in", "after the variable of a comprehension");
    e->parts.push_back(any_of());
    if (take("if")) e->parts.push_back(any_of());
    if (sees("for")) refuse("one loop in a comprehension");
    return e;
  }

  ExprPtr list() {
    auto e = make(K::list);
    ++at_;
    while (!failed_ && !sees("]")) {
      ExprPtr one = expression();
      if (sees("for") && e->parts.empty()) {
        ExprPtr made = comprehension(std::move(one));
        expect("]", "after a comprehension");
        return made;
      }
      e->parts.push_back(std::move(one));
      if (!take(",")) break;
    }
    expect("]", "after a list");
    return e;
  }

  ExprPtr in_brackets() {
    ++at_;
    if (sees(")")) {
      auto none = make(K::tuple);
      ++at_;
      return none;
    }
    ExprPtr e = tuple_or_one();
    if (sees("for")) e = comprehension(std::move(e));
    expect(")", "after an expression in brackets");
    return e;
  }

  ExprPtr atom() {
    const Token t = now();
    if (failed_) return make(K::none);
    if (sees("(")) return in_brackets();
    if (sees("[")) return list();
    if (sees("{")) {
      refuse("dictionaries and sets are not part of the language", "lists are");
      return make(K::none);
    }
    auto e = make(K::none);
    e->text = t.text;
    e->whole = t.whole;
    e->real = t.real;
    switch (t.kind) {
      case TokenKind::whole:
        e->kind = K::whole;
        break;
      case TokenKind::real:
        e->kind = K::real;
        break;
      case TokenKind::text:
      case TokenKind::format:
        ++at_;
        return texts(std::move(e), t.kind == TokenKind::format);
      case TokenKind::name:
        if (t.text == "True" || t.text == "False") {
          e->kind = K::truth;
          e->whole = t.text == "True" ? 1 : 0;
          break;
        }
        if (t.text == "None") break;
        return name();
      default:
        refuse(fmt::format("expected a value, found {}", shown()));
        return e;
    }
    ++at_;
    return e;
  }

  // Texts that stand beside each other are one.
  ExprPtr texts(ExprPtr e, bool format) {
    e = format ? formatted(std::move(e)) : plain(std::move(e));
    while (!failed_ && (now().kind == TokenKind::text || now().kind == TokenKind::format)) {
      auto next = make(K::text);
      next->text = now().text;
      const Token sign = {TokenKind::sign, "+", 0, 0, now().place};
      const bool is_format = now().kind == TokenKind::format;
      ++at_;
      e = join(K::binary, sign, std::move(e), is_format ? formatted(std::move(next)) : std::move(next));
    }
    return e;
  }
  static ExprPtr plain(ExprPtr e) {
    e->kind = K::text;
    return e;
  }

  ExprPtr formatted(ExprPtr e) {
    e->kind = K::format;
    const std::string text = std::exchange(e->text, {});
    std::string written;
    const auto flush = [&] {
      auto piece = std::make_unique<Expr>();
      piece->kind = K::text;
      piece->place = e->place;
      piece->text = std::exchange(written, {});
      e->parts.push_back(std::move(piece));
    };
    for (std::size_t i = 0; i < text.size() && !failed_; ++i) {
      const bool doubled = i + 1 < text.size() && text[i + 1] == text[i];
      if (text[i] != '{' && text[i] != '}') {
        written += text[i];
      } else if (doubled) {
        written += text[i++];
      } else {
        const std::size_t end = text[i] == '{' ? text.find('}', i) : std::string::npos;
        if (end == std::string::npos) {
          refuse_at(e->place, fmt::format("a lonely {} in an f-string", text[i]), "{{ and }} stand for the characters themselves");
          break;
        }
        flush();
        e->parts.push_back(inside(text.substr(i + 1, end - i - 1), e->place));
        i = end;
      }
    }
    flush();
    return e;
  }

  ExprPtr inside(const std::string& text, Place place) {
    const Deeper deeper(*this);
    if (failed_) return make(K::none);
    auto tokens = lex({source_.name, text}, place.file);
    if (!tokens) {
      refuse_at(place, fmt::format("\"{}\" in an f-string is no expression", show(text)));
      return make(K::none);
    }
    for (Token& t : *tokens) t.place = place;
    ExpressionParser parser(source_, std::move(*tokens));
    parser.depth_ = depth_;
    auto e = parser.run_expression();
    if (e) return std::move(*e);
    if (!failed_) error_ = e.error();
    failed_ = true;
    return make(K::none);
  }

  const Source& source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<Definition*> functions_;  // that lie around
  bool failed_ = false;
  Error error_;
};

}  // namespace stepzero::lang
