#include "stepzero/lang/parser.hpp"

#include "stepzero/lang/expressions.hpp"

namespace stepzero::lang {

namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Expected<Block> run() {
    Block block;
    while (!failed_ && now().kind != TokenKind::end) statement(block);
    if (failed_) return std::unexpected(error_);
    return block;
  }

 private:
  using S = Statement::Kind;

  void block(Block& into) {
    expect(":", "before a block");
    if (failed_) return;
    if (now().kind != TokenKind::line_end) return simple_line(into);
    ++at_;
    if (now().kind != TokenKind::indent) return refuse("an indented block is expected here", "pass does nothing");
    ++at_;
    while (!failed_ && now().kind != TokenKind::dedent && now().kind != TokenKind::end) statement(into);
    if (now().kind == TokenKind::dedent) ++at_;
  }

  void statement(Block& into) {
    const Deeper deeper(*this);
    if (failed_) return;
    if (now().kind == TokenKind::indent) return refuse("this line is indented without need");
    if (sees("for")) return loop(into);
    if (sees("if")) return choice(into);
    if (sees("def")) return define(into);
    simple_line(into);
  }

  void simple_line(Block& into) {
    simple(into);
    if (failed_ || now().kind == TokenKind::end) return;
    if (now().kind != TokenKind::line_end) return refuse(fmt::format("{} is not expected here", shown()), "one statement a line");
    ++at_;
  }

  Statement& add(Block& into, S kind) {
    Statement& s = into.emplace_back();
    s.kind = kind;
    s.place = now().place;
    return s;
  }

  void simple(Block& into) {
    if (take("pass")) return;
    if (sees("break") || sees("continue")) {
      if (loops_ == 0) return refuse(fmt::format("{} outside a loop", now().text));
      add(into, sees("break") ? S::stop : S::next);
      ++at_;
      return;
    }
    if (sees("return")) {
      if (functions_.empty()) return refuse("return outside a function");
      Statement& s = add(into, S::give_back);
      ++at_;
      if (now().kind != TokenKind::line_end && now().kind != TokenKind::end) s.value = tuple_or_one();
      return;
    }
    if (is_own_import()) return;
    if (now().kind == TokenKind::name) {
      for (const auto& [word, instead] : left_out) {
        if (now().text == word) return refuse(fmt::format("{} is not part of the language", word), std::string(instead));
      }
    }
    assignment(into);
  }

  // from stepzero.arch import *: what makes the same file run under Python
  bool is_own_import() {
    constexpr std::array words = {"from", "stepzero", ".", "arch", "import", "*"};
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (at_ + i >= tokens_.size() || !tokens_[at_ + i].is(words[i])) return false;
    }
    at_ += words.size();
    return true;
  }

  void assignment(Block& into) {
    Statement s;
    s.place = now().place;
    ExprPtr first = tuple_or_one();
    if (failed_) return;
    s.kind = S::expression;
    const Token sign = now();
    if (take("=")) {
      s.kind = S::assign;
      target(*first);
      s.target = std::move(first);
      s.place = sign.place;
      first = tuple_or_one();
      if (sees("=")) refuse("one assignment a line", "y = 1, then x = y");
    } else if (sign.kind == TokenKind::sign && sign.text.size() > 1 && sign.text.back() == '=' &&
               std::string_view("+-*/%").contains(sign.text[0])) {
      ++at_;
      s.kind = S::change;
      s.place = sign.place;
      s.text = sign.text.substr(0, sign.text.size() - 1);
      if (first->kind != K::name && first->kind != K::index) refuse_at(first->place, "only a name or a place in a list can be changed");
      if (first->kind == K::name) local(first->text);
      s.target = std::move(first);
      first = tuple_or_one();
    }
    if (s.kind == S::expression && first->kind == K::text) return;  // says something to readers
    s.value = std::move(first);
    into.push_back(std::move(s));
  }

  void target(const Expr& e) {
    if (e.kind == K::name) return local(e.text);
    if (e.kind == K::index) return;
    if (e.kind != K::tuple && e.kind != K::list) return refuse_at(e.place, "only a name, names, or a place in a list can be assigned to");
    for (const ExprPtr& part : e.parts) target(*part);
  }

  void loop(Block& into) {
    Statement& s = add(into, S::loop);
    ++at_;
    Statement made;
    made.target = variables();
    if (made.target) target(*made.target);
    expect("in", "after the variable of a loop");
    made.value = tuple_or_one();
    ++loops_;
    block(made.body);
    --loops_;
    made.kind = S::loop;
    made.place = s.place;
    into.back() = std::move(made);
  }

  void choice(Block& into) {
    Statement s;
    s.kind = S::choice;
    s.place = now().place;
    ++at_;
    s.value = expression();
    block(s.body);
    if (!failed_ && sees("elif")) {
      const Deeper deeper(*this);
      if (!failed_) choice(s.otherwise);
    } else if (take("else")) {
      block(s.otherwise);
    }
    into.push_back(std::move(s));
  }

  void define(Block& into) {
    Statement s;
    s.kind = S::define;
    s.place = now().place;
    ++at_;
    auto d = std::make_shared<Definition>();
    d->place = now().place;
    const ExprPtr called = name();
    d->name = called->text;
    local(d->name);
    expect("(", "after the name of a function");
    parameters(*d, ")");
    expect(")", "after the arguments of a function");
    functions_.push_back(d.get());
    const int outer = std::exchange(loops_, 0);
    block(d->body);
    loops_ = outer;
    functions_.pop_back();
    s.definition = std::move(d);
    into.push_back(std::move(s));
  }

  int loops_ = 0;
};

}  // namespace

Expected<Block> parse(const Source& source, int file) {
  auto tokens = lex(source, file);
  if (!tokens) return std::unexpected(tokens.error());
  return Parser(source, std::move(*tokens)).run();
}

}  // namespace stepzero::lang
