// What stands between atoms: signs, comparisons, conditions, and what a parser says when they do not fit.
#include "stepzero/lang/expressions.hpp"

namespace stepzero::lang {

Expected<ExprPtr> ExpressionParser::run_expression() {
  ExprPtr e = tuple_or_one();
  if (now().kind == TokenKind::line_end) ++at_;
  if (!failed_ && now().kind != TokenKind::end)
    refuse(fmt::format("{} is not expected here", shown()), "an f-string takes expressions without a format");
  if (failed_) return std::unexpected(error_);
  return e;
}

std::string ExpressionParser::shown() const {
  if (now().kind == TokenKind::line_end || now().kind == TokenKind::end) return "the end of the line";
  if (now().kind == TokenKind::indent || now().kind == TokenKind::dedent) return "this indentation";
  return now().text.empty() ? "this" : fmt::format("\"{}\"", show(now().text));
}

void ExpressionParser::expect(const char* word, const char* after) {
  if (!failed_ && !take(word)) refuse(fmt::format("expected \"{}\" {}, found {}", word, after, shown()));
}

ExprPtr ExpressionParser::chain(K kind, const Token& sign, ExprPtr a, ExprPtr b) {
  ExprPtr e = join(kind, sign, std::move(a), std::move(b));
  longer(*e);
  return e;
}

void ExpressionParser::longer(Expr& e) {
  e.length = e.parts[0]->length + 1;
  if (e.length > most_depth) refuse("this expression is too long", "give a part of it a name");
}

void ExpressionParser::local(const std::string& name) {
  if (functions_.empty()) return;
  auto& list = functions_.back()->locals;
  if (std::ranges::find(list, name) == list.end()) list.push_back(name);
}

ExprPtr ExpressionParser::variables() {
  ExprPtr first = name();
  if (failed_ || !sees(",")) return first;
  auto all = make(K::tuple);
  all->parts.push_back(std::move(first));
  while (!failed_ && take(",")) all->parts.push_back(name());
  return all;
}

ExprPtr ExpressionParser::name() {
  auto e = make(K::name);
  if (now().kind != TokenKind::name || is_reserved(now().text)) {
    refuse(fmt::format("expected a name, found {}", shown()));
    return e;
  }
  e->text = now().text;
  ++at_;
  return e;
}

bool ExpressionParser::is_reserved(const std::string& word) {
  return std::ranges::find(reserved, word) != reserved.end() ||
         std::ranges::any_of(left_out, [&](const auto& w) { return w.first == word; });
}

void ExpressionParser::parameters(Definition& d, const char* end) {
  while (!failed_ && !sees(end)) {
    const Place place = now().place;
    const ExprPtr param = name();
    if (std::ranges::find(d.params, param->text) != d.params.end())
      refuse_at(place, fmt::format("the argument {} is there twice", param->text));
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

ExprPtr ExpressionParser::tuple_or_one() {
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

ExprPtr ExpressionParser::expression() {
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

ExprPtr ExpressionParser::lambda() {
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

ExprPtr ExpressionParser::any_of() {
  ExprPtr e = all_of();
  for (Token sign = now(); !failed_ && take("or"); sign = now()) e = chain(K::any_of, sign, std::move(e), all_of());
  return e;
}

ExprPtr ExpressionParser::all_of() {
  ExprPtr e = negation();
  for (Token sign = now(); !failed_ && take("and"); sign = now()) e = chain(K::all_of, sign, std::move(e), negation());
  return e;
}

ExprPtr ExpressionParser::negation() {
  const Deeper deeper(*this);
  if (failed_ || !sees("not")) return comparison();
  auto e = make(K::unary);
  e->text = "not";
  ++at_;
  e->parts.push_back(negation());
  return e;
}

std::string ExpressionParser::comparing() {
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

ExprPtr ExpressionParser::comparison() {
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

ExprPtr ExpressionParser::sum() {
  ExprPtr e = term();
  for (Token sign = now(); !failed_ && (take("+") || take("-")); sign = now()) e = chain(K::binary, sign, std::move(e), term());
  return e;
}

ExprPtr ExpressionParser::term() {
  ExprPtr e = factor();
  for (Token sign = now(); !failed_ && (take("*") || take("/") || take("//") || take("%")); sign = now()) {
    e = chain(K::binary, sign, std::move(e), factor());
  }
  return e;
}

ExprPtr ExpressionParser::factor() {
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

}  // namespace stepzero::lang
