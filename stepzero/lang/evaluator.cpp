#include "stepzero/lang/evaluator.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/lang/parser.hpp"

namespace stepzero::lang {

using K = Expr::Kind;
using S = Statement::Kind;

Evaluator::Evaluator(Limits limits)
    : limits_(limits), globals_(std::make_shared<Scope>()), file_scope_(std::make_shared<Scope>()), scope_(globals_) {
  file_scope_->around = globals_;
  define_builtins(*this);
}

Evaluator::~Evaluator() {
  scopes_.push_back(globals_);
  scopes_.push_back(file_scope_);
  for (const List& list : lists_) list->clear();
  for (const auto& scope : scopes_) {
    scope->names.clear();
    scope->around.reset();
  }
}

Value Evaluator::keep(std::vector<Value> values) {
  lists_.push_back(std::make_shared<std::vector<Value>>(std::move(values)));
  return lists_.back();
}

void Evaluator::define(const std::string& name, Word word) {
  auto f = std::make_shared<Function>();
  f->name = name;
  f->word = std::move(word);
  set(name, std::shared_ptr<const Function>(std::move(f)));
}

const Value* Evaluator::find(const std::string& name) const {
  const auto it = globals_->names.find(name);
  return it == globals_->names.end() ? nullptr : &it->second;
}

Expected<std::shared_ptr<const Program>> compile(Source source, int number, bool inner) {
  auto parsed = parse(source, number);
  if (!parsed) return std::unexpected(parsed.error());
  return std::make_shared<const Program>(Program{std::move(source), inner, std::move(*parsed)});
}

Expected<void> Evaluator::run(const Source& source) {
  const auto program = compile(source, static_cast<int>(files_.size()));
  if (!program) return std::unexpected(program.error());
  return run(*program);
}

Expected<void> Evaluator::run(const std::shared_ptr<const Program>& program) {
  files_.push_back(program);
  scope_ = program->inner ? globals_ : file_scope_;
  run_block(program->block);
  if (error_) return std::unexpected(*error_);
  return {};
}

bool Evaluator::charge(std::int64_t steps) {
  steps_ += std::max<std::int64_t>(steps, 0);
  return steps_ <= limits_.steps;
}

Value Evaluator::refuse(Place place, const std::string& message, std::string hint) {
  if (failed()) return {};
  now_ = place;
  const Place shown = this->place();
  error_ = error_at(files_[static_cast<std::size_t>(shown.file)]->source, shown, message, std::move(hint));
  return {};
}

// An error of a word, which knows no place.
void Evaluator::refuse(Place place, Error error) {
  if (!failed()) refuse(place, error.message, std::move(error.hint));
}

// What a file did wrong shows in the words it called: the place is the last one of its own.
Place Evaluator::place() const {
  const auto own = [&](Place p) { return !files_[static_cast<std::size_t>(p.file)]->inner; };
  if (own(now_)) return now_;
  const auto it = std::find_if(calls_.rbegin(), calls_.rend(), own);
  return it == calls_.rend() ? now_ : *it;
}

// ---- statements

Evaluator::Flow Evaluator::run_block(const Block& block) {
  for (const Statement& s : block) {
    const Flow flow = run_statement(s);
    if (failed() || flow != Flow::on) return flow;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::run_statement(const Statement& s) {
  now_ = s.place;
  if (!charge(1)) {
    refuse(s.place, fmt::format("stopped after {} steps", limits_.steps),
           "is there a loop that does not end, or one inside too many others?");
    return Flow::on;
  }
  switch (s.kind) {
    case S::expression:
      evaluate(*s.value);
      break;
    case S::assign: {
      Value value = evaluate(*s.value);
      if (!failed()) assign(*s.target, std::move(value));
      break;
    }
    case S::change:
      change(s);
      break;
    case S::loop:
      return run_loop(s);
    case S::choice: {
      const Value asked = evaluate(*s.value);
      if (failed()) break;
      const auto yes = truth(asked);
      if (!yes) {
        refuse(s.value->place, yes.error());
        break;
      }
      return run_block(*yes ? s.body : s.otherwise);
    }
    case S::define:
      scope_->names[s.definition->name] = std::shared_ptr<const Function>(close(s.definition));
      break;
    case S::give_back:
      back_ = s.value ? evaluate(*s.value) : Value();
      return Flow::back;
    case S::stop:
      return Flow::stop;
    case S::next:
      return Flow::next;
    case S::nothing:
      break;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::run_loop(const Statement& s) {
  const Value over = evaluate(*s.value);
  if (failed()) return Flow::on;
  const auto* list = over.get<List>();
  if (list == nullptr) {
    refuse(s.value->place, fmt::format("a loop runs over a list, this is {}", type_name(over)), "for l in range(layers):");
    return Flow::on;
  }
  const List held = *list;
  for (std::size_t i = 0; i < held->size(); ++i) {
    if (!charge(1)) {
      refuse(s.place, fmt::format("stopped after {} steps", limits_.steps), "does this loop change the list it runs over?");
      return Flow::on;
    }
    assign(*s.target, (*held)[i]);
    if (failed()) return Flow::on;
    const Flow flow = run_block(s.body);
    if (failed() || flow == Flow::back) return flow;
    if (flow == Flow::stop) break;
  }
  return Flow::on;
}

void Evaluator::assign(const Expr& target, Value value) {
  if (target.kind == K::name) {
    scope_->names[target.text] = std::move(value);
    return;
  }
  if (target.kind == K::index) return store(target, std::move(value));
  const auto* list = value.get<List>();
  if (list == nullptr || (*list)->size() != target.parts.size()) {
    refuse(target.place, list == nullptr ? fmt::format("{} names, and {}", target.parts.size(), type_name(value))
                                         : fmt::format("{} names for {} values", target.parts.size(), (*list)->size()));
    return;
  }
  const List held = *list;
  for (std::size_t i = 0; i < target.parts.size() && !failed(); ++i) assign(*target.parts[i], (*held)[i]);
}

void Evaluator::store(const Expr& place, Value value) {
  const Value of = evaluate(*place.parts[0]);
  const Value index = failed() ? Value() : evaluate(*place.parts[1]);
  if (failed()) return;
  const auto* list = of.get<List>();
  if (list == nullptr) {
    refuse(place.place, fmt::format("{} has no places to store to", type_name(of)));
    return;
  }
  if (const auto i = position(place, index, (*list)->size())) (**list)[*i] = std::move(value);
}

void Evaluator::change(const Statement& s) {
  const Value before = evaluate(*s.target);
  const Value by = failed() ? Value() : evaluate(*s.value);
  if (failed()) return;
  Value after = binary(s.text, before, by, s.place);
  if (!failed()) assign(*s.target, std::move(after));
}

std::shared_ptr<Function> Evaluator::close(const std::shared_ptr<const Definition>& definition) {
  auto f = std::make_shared<Function>();
  f->name = definition->name;
  f->definition = definition;
  f->around = scope_;
  for (const ExprPtr& value : definition->defaults) f->defaults.push_back(failed() ? Value() : evaluate(*value));
  scopes_.push_back(scope_);
  functions_.push_back(f);
  return f;
}

// ---- calls

Value Evaluator::call_expression(const Expr& e) {
  if (e.parts[0]->kind == K::method) return method(e);
  const Value called = evaluate(*e.parts[0]);
  if (failed()) return {};
  const auto* f = called.get<std::shared_ptr<const Function>>();
  if (f == nullptr) return refuse(e.place, fmt::format("{} cannot be called", type_name(called)));
  const std::shared_ptr<const Function> held = *f;
  Call call;
  const std::size_t plain = e.parts.size() - e.words.size();
  for (std::size_t i = 1; i < e.parts.size(); ++i) {
    Value value = evaluate(*e.parts[i]);
    if (failed()) return {};
    if (i < plain) {
      call.values.push_back(std::move(value));
    } else {
      call.named.emplace_back(e.words[i - plain], std::move(value));
    }
  }
  return apply(*held, std::move(call), e.place);
}

Value Evaluator::apply(const Function& f, Call call, Place place) {
  now_ = place;
  if (f.word) {
    auto value = f.word(call);
    if (failed()) return {};  // of a function that the word called
    if (value) {
      if (const auto* list = value->get<List>()) lists_.push_back(*list);
      return std::move(*value);
    }
    refuse(place, value.error());
    return {};
  }
  auto scope = std::make_shared<Scope>();
  scope->around = f.around;
  scope->definition = f.definition.get();
  if (!bind(f, call, *scope, place)) return {};
  const std::shared_ptr<Scope> before = std::exchange(scope_, std::move(scope));
  calls_.push_back(place);
  back_ = {};
  Value result;
  if (f.definition->result) {
    result = evaluate(*f.definition->result);
  } else {
    run_block(f.definition->body);
    result = std::exchange(back_, {});
  }
  if (!failed()) calls_.pop_back();
  scope_ = before;
  return result;
}

bool Evaluator::bind(const Function& f, Call& call, Scope& scope, Place place) {
  const auto& params = f.definition->params;
  const std::string all = fmt::format("{}({})", f.name, fmt::join(params, ", "));
  if (call.values.size() > params.size()) {
    refuse(place, fmt::format("{} takes {} arguments, {} are given", f.name, params.size(), call.values.size()), all);
    return false;
  }
  for (std::size_t i = 0; i < call.values.size(); ++i) scope.names[params[i]] = std::move(call.values[i]);
  for (auto& [word, value] : call.named) {
    if (std::ranges::find(params, word) == params.end()) {
      const std::string near = closest(word, params);
      refuse(place, fmt::format("{} has no argument {}{}", f.name, show(word), near.empty() ? "" : fmt::format("; did you mean {}?", near)),
             all);
      return false;
    }
    if (!scope.names.emplace(word, std::move(value)).second) {
      refuse(place, fmt::format("the argument {} of {} is given twice", word, f.name), all);
      return false;
    }
  }
  const std::size_t needed = params.size() - f.defaults.size();
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (scope.names.contains(params[i])) continue;
    if (i < needed) {
      refuse(place, fmt::format("{} needs its argument {}", f.name, params[i]), all);
      return false;
    }
    scope.names[params[i]] = f.defaults[i - needed];
  }
  return true;
}

Value Evaluator::method(const Expr& call) {
  const Expr& m = *call.parts[0];
  const Value of = evaluate(*m.parts[0]);
  if (failed()) return {};
  std::vector<Value> values;
  for (std::size_t i = 1; i < call.parts.size(); ++i) {
    values.push_back(evaluate(*call.parts[i]));
    if (failed()) return {};
  }
  const auto* list = of.get<List>();
  if (list == nullptr || !call.words.empty() || (m.text != "append" && m.text != "pop")) {
    return refuse(m.place, fmt::format("{} has no method {}", type_name(of), show(m.text)), "lists have append(x) and pop()");
  }
  if (!charge(1)) return refuse(m.place, "the list has become too long");
  if (m.text == "append") {
    if (values.size() != 1) return refuse(m.place, "append takes one value");
    (*list)->push_back(std::move(values[0]));
    return {};
  }
  if (values.size() > 1) return refuse(m.place, "pop takes at most one index");
  if ((*list)->empty()) return refuse(m.place, "the list is empty: nothing is left to pop");
  const auto i = position(m, values.empty() ? Value(std::int64_t{-1}) : values[0], (*list)->size());
  if (!i) return {};
  if (!charge(static_cast<std::int64_t>((*list)->size() - *i) / 16))
    return refuse(m.place, fmt::format("stopped after {} steps", limits_.steps));
  Value out = std::move((**list)[*i]);
  (*list)->erase((*list)->begin() + static_cast<std::ptrdiff_t>(*i));
  return out;
}

}  // namespace stepzero::lang
