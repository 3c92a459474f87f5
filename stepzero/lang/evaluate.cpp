// Expressions.
#include <algorithm>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/lang/evaluator.hpp"

namespace stepzero::lang {

using K = Expr::Kind;

Expected<bool> truth(const Value& value) {
  if (value.is_number()) return value.number() != 0;
  if (const auto* text = value.get<std::string>()) return !text->empty();
  if (const auto* list = value.get<List>()) return !(*list)->empty();
  if (value.is_none()) return false;
  if (value.get<Thing>() != nullptr) return fail("a wire is neither true nor false", "x is None tells whether there is one");
  return true;
}

Value Evaluator::evaluate(const Expr& e) {
  now_ = e.place;
  if (!charge(1))
    return refuse(e.place, fmt::format("stopped after {} steps", limits_.steps),
                  "is there a loop that does not end, or one inside too many others?");
  if (depth_ >= limits_.depth)
    return refuse(e.place, "calls or expressions lie too deep in each other", "does a function call itself without end?");
  ++depth_;
  Value value = evaluate_kind(e);
  --depth_;
  return failed() ? Value() : value;
}

Value Evaluator::evaluate_kind(const Expr& e) {
  switch (e.kind) {
    case K::none:
      return {};
    case K::truth:
      return e.whole != 0;
    case K::whole:
      return e.whole;
    case K::real:
      return e.real;
    case K::text:
      return charge(static_cast<std::int64_t>(e.text.size() / 16)) ? Value(e.text) : refuse(e.place, "too many texts");
    case K::format:
      return format(e);
    case K::name:
      return name(e);
    case K::list:
    case K::tuple:
      return list_of(e);
    case K::unary:
      return unary(e);
    case K::binary: {
      const Value a = evaluate(*e.parts[0]);
      const Value b = failed() ? Value() : evaluate(*e.parts[1]);
      return failed() ? Value() : binary(e.text, a, b, e.place);
    }
    case K::compare:
      return compare(e);
    case K::all_of:
    case K::any_of:
    case K::choice:
      return logic(e);
    case K::call:
      return call_expression(e);
    case K::index:
      return index(e);
    case K::method:
      return refuse(e.place, "a method is called: list.append(x)");
    case K::lambda:
      return std::shared_ptr<const Function>(close(e.definition));
    case K::comprehend:
      return comprehend(e);
  }
  return {};
}

// The scope that Python would look in: a function's own names are those it assigns.
Value Evaluator::name(const Expr& e) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->around.get()) {
    const auto it = scope->names.find(e.text);
    const bool hidden = scope == globals_.get() && e.text.starts_with('_') && !files_[static_cast<std::size_t>(e.place.file)]->inner;
    if (it != scope->names.end() && !hidden) return it->second;
    if (scope->definition != nullptr && std::ranges::find(scope->definition->locals, e.text) != scope->definition->locals.end()) {
      return refuse(e.place, fmt::format("{} is used before it is assigned in {}", show(e.text), scope->definition->name));
    }
  }
  const std::string near = closest(e.text, known_names());
  return refuse(e.place, fmt::format("no name {}{}", show(e.text), near.empty() ? "" : fmt::format("; did you mean {}?", near)),
                near.empty() ? "sizes are declared in arch(\"name\", width=768, ...), words are in docs/architectures.md" : "");
}

std::vector<std::string> Evaluator::known_names() const {
  std::vector<std::string> list;
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->around.get()) {
    for (const auto& [name, value] : scope->names) {
      if (!name.starts_with('_')) list.push_back(name);
    }
  }
  std::ranges::sort(list);
  return list;
}

Value Evaluator::logic(const Expr& e) {
  Value first = evaluate(*e.parts[e.kind == K::choice ? 1 : 0]);
  if (failed()) return {};
  const auto yes = truth(first);
  if (!yes) {
    refuse(e.place, yes.error());
    return {};
  }
  if (e.kind == K::choice) return evaluate(*e.parts[*yes ? 0 : 2]);
  return *yes == (e.kind == K::any_of) ? std::move(first) : evaluate(*e.parts[1]);
}

namespace {

bool contains(const std::vector<Value>& list, const Value& value, std::int64_t& looks) {
  return std::ranges::any_of(list, [&](const Value& each) { return equal(each, value, looks); });
}

// Order of two numbers or two texts: negative, 0, positive; none: they have no order, or one is no number.
std::optional<int> order(const Value& a, const Value& b) {
  const auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return sign(a.whole(), b.whole());
    return a.number() == a.number() && b.number() == b.number() ? std::optional(sign(a.number(), b.number())) : std::nullopt;
  }
  if (a.get<std::string>() != nullptr && b.get<std::string>() != nullptr) return sign(*a.get<std::string>(), *b.get<std::string>());
  return std::nullopt;
}

bool holds(const std::string& sign, int order) {
  return sign == "<" ? order < 0 : sign == "<=" ? order <= 0 : sign == ">" ? order > 0 : order >= 0;
}

}  // namespace

Value Evaluator::compare(const Expr& e) {
  Value a = evaluate(*e.parts[0]);
  for (std::size_t i = 0; i < e.words.size() && !failed(); ++i) {
    Value b = evaluate(*e.parts[i + 1]);
    if (failed()) break;
    const std::string& sign = e.words[i];
    bool yes = false;
    std::int64_t looks = 100'000;
    if (sign == "==" || sign == "!=") {
      yes = equal(a, b, looks) == (sign == "==");
    } else if (sign == "is" || sign == "is not") {
      if (!b.is_none() && b.get<bool>() == nullptr)
        return refuse(e.parts[i + 1]->place, "\"is\" asks for None, True or False", "== compares values");
      const bool same = b.is_none() ? a.is_none() : a.get<bool>() != nullptr && *a.get<bool>() == *b.get<bool>();
      yes = same == (sign == "is");
    } else if (sign == "in" || sign == "not in") {
      bool inside = false;
      if (const auto* list = b.get<List>()) {
        inside = contains(**list, a, looks);
      } else if (b.get<std::string>() != nullptr && a.get<std::string>() != nullptr) {
        inside = b.get<std::string>()->contains(*a.get<std::string>());
      } else {
        return refuse(e.place, fmt::format("{} cannot be in {}", type_name(a), type_name(b)));
      }
      yes = inside == (sign == "in");
    } else if (const auto less = order(a, b)) {
      yes = holds(sign, *less);
    } else if (!a.is_number() || !b.is_number()) {
      return refuse(e.place, fmt::format("{} and {} have no order", type_name(a), type_name(b)));
    }
    if (looks <= 0 || !charge((100'000 - looks) / 4)) return refuse(e.place, "these are too large to compare");
    if (!yes) return false;
    a = std::move(b);
  }
  return true;
}

std::optional<std::size_t> Evaluator::position(const Expr& at, const Value& index, std::size_t size) {
  if (!index.is_whole()) {
    refuse(at.place, fmt::format("an index is a whole number, this is {}", type_name(index)));
    return {};
  }
  const auto n = static_cast<std::int64_t>(size);
  const std::int64_t i = index.whole() < 0 ? index.whole() + n : index.whole();
  if (i < 0 || i >= n) {
    refuse(at.place, fmt::format("no place {} in a list of {}", index.whole(), n));
    return {};
  }
  return static_cast<std::size_t>(i);
}

Value Evaluator::index(const Expr& e) {
  const Value of = evaluate(*e.parts[0]);
  const Value i = failed() ? Value() : evaluate(*e.parts[1]);
  if (failed()) return {};
  const auto* list = of.get<List>();
  const auto* text = of.get<std::string>();
  if (list == nullptr && text == nullptr) return refuse(e.place, fmt::format("{} has no places", type_name(of)));
  const auto at = position(e, i, list != nullptr ? (*list)->size() : text->size());
  if (!at) return {};
  if (list != nullptr) return (**list)[*at];
  if ((static_cast<unsigned char>((*text)[*at]) & 0x80U) != 0)
    return refuse(e.place, "letters of a text can be taken one by one where all are ASCII");
  return std::string(1, (*text)[*at]);
}

Value Evaluator::format(const Expr& e) {
  std::string out;
  for (const ExprPtr& part : e.parts) {
    const Value value = evaluate(*part);
    if (failed()) return {};
    out += to_text(value);
    if (out.size() > 65536 || !charge(static_cast<std::int64_t>(out.size() / 16))) return refuse(e.place, "this text has become too long");
  }
  return out;
}

Value Evaluator::list_of(const Expr& e) {
  std::vector<Value> values;
  for (const ExprPtr& part : e.parts) {
    values.push_back(evaluate(*part));
    if (failed()) return {};
  }
  return keep(std::move(values));
}

Value Evaluator::comprehend(const Expr& e) {
  const Value over = evaluate(*e.parts[1]);
  if (failed()) return {};
  const auto* list = over.get<List>();
  if (list == nullptr) return refuse(e.parts[1]->place, fmt::format("a loop runs over a list, this is {}", type_name(over)));
  const List held = *list;
  auto scope = std::make_shared<Scope>();
  scope->around = scope_;
  const std::shared_ptr<Scope> before = std::exchange(scope_, scope);
  std::vector<Value> values;
  for (std::size_t i = 0; i < held->size() && !failed(); ++i) {
    if (e.words.size() == 1) {
      scope->names[e.words[0]] = (*held)[i];
    } else {
      const auto* parts = (*held)[i].get<List>();
      if (parts == nullptr || (*parts)->size() != e.words.size()) {
        refuse(e.place, fmt::format("{} names for {}", e.words.size(), type_name((*held)[i])));
        break;
      }
      for (std::size_t k = 0; k < e.words.size(); ++k) scope->names[e.words[k]] = (**parts)[k];
    }
    if (e.parts.size() > 2) {
      const auto yes = truth(evaluate(*e.parts[2]));
      if (!failed() && !yes) refuse(e.place, yes.error());
      if (failed() || !*yes) continue;
    }
    values.push_back(evaluate(*e.parts[0]));
  }
  scope_ = before;
  return failed() ? Value() : keep(std::move(values));
}

Value Evaluator::unary(const Expr& e) {
  Value value = evaluate(*e.parts[0]);
  if (failed()) return {};
  if (e.text == "not") {
    const auto yes = truth(value);
    if (yes) return !*yes;
    refuse(e.place, yes.error());
    return {};
  }
  if (value.get<Thing>() != nullptr) return e.text == "+" ? value : binary("*", std::int64_t{-1}, value, e.place);
  if (!value.is_number()) return refuse(e.place, fmt::format("{} has no sign", type_name(value)));
  if (e.text == "+") return value;
  if (value.is_whole()) return whole_arithmetic("-", 0, value.whole(), e.place);
  return -value.number();
}

}  // namespace stepzero::lang
