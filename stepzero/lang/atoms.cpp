// Calls, indices, lists, texts and names.
#include "stepzero/lang/expressions.hpp"

namespace stepzero::lang {

ExprPtr ExpressionParser::postfix() {
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

ExprPtr ExpressionParser::call(ExprPtr function) {
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

ExprPtr ExpressionParser::comprehension(ExprPtr value) {
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

ExprPtr ExpressionParser::list() {
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

ExprPtr ExpressionParser::in_brackets() {
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

ExprPtr ExpressionParser::atom() {
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

ExprPtr ExpressionParser::texts(ExprPtr e, bool format) {
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

ExprPtr ExpressionParser::plain(ExprPtr e) {
  e->kind = K::text;
  return e;
}

ExprPtr ExpressionParser::formatted(ExprPtr e) {
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

ExprPtr ExpressionParser::inside(const std::string& text, Place place) {
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

}  // namespace stepzero::lang
