#include "stepzero/lang/value.hpp"

#include <cmath>

#include <fmt/format.h>

namespace stepzero::lang {

namespace {

constexpr std::size_t most_text = 4096;  // of a list in words

// The shortest digits that mean this number, as Python's repr writes them.
std::string real_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", x);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? std::string("\\n") : c == '\t' ? std::string("\\t") : std::string(1, c);
  }
  return out + "\"";
}

std::string list_text(const List& list, int depth);

std::string literal(const Value& value, int depth) {
  if (const auto* text = value.get<std::string>()) return quoted(*text);
  if (const auto* list = value.get<List>()) return depth > 8 ? "[...]" : list_text(*list, depth);
  return to_text(value);
}

std::string list_text(const List& list, int depth) {
  std::string out = "[";
  for (std::size_t i = 0; i < list->size() && out.size() < most_text; ++i) out += (i > 0 ? ", " : "") + literal((*list)[i], depth + 1);
  return out + (out.size() < most_text ? "]" : "...]");
}

}  // namespace

const char* type_name(const Value& value) {
  struct Name {
    const char* operator()(None) const { return "None"; }
    const char* operator()(bool) const { return "True or False"; }
    const char* operator()(std::int64_t) const { return "a whole number"; }
    const char* operator()(double) const { return "a number"; }
    const char* operator()(const std::string&) const { return "a text"; }
    const char* operator()(const List&) const { return "a list"; }
    const char* operator()(const std::shared_ptr<const Function>&) const { return "a function"; }
    const char* operator()(const Thing& t) const { return t.kind == Thing::Kind::wire ? "a wire" : "a tensor"; }
  };
  return std::visit(Name(), value.v);
}

std::string to_text(const Value& value) {
  if (const auto* b = value.get<bool>()) return *b ? "True" : "False";
  if (const auto* n = value.get<std::int64_t>()) return fmt::format("{}", *n);
  if (const auto* x = value.get<double>()) return real_text(*x);
  if (const auto* text = value.get<std::string>()) return *text;
  if (const auto* list = value.get<List>()) return list_text(*list, 0);
  return value.is_none() ? "None" : fmt::format("<{}>", type_name(value));
}

Value detached(const Value& value, int depth) {
  const auto* list = value.get<List>();
  if (list == nullptr) return value;
  std::vector<Value> values;
  for (std::size_t i = 0; depth < 50 && i < (*list)->size(); ++i) values.push_back(detached((**list)[i], depth + 1));
  return make_list(std::move(values));
}

std::string to_literal(const Value& value) { return literal(value, 0); }

bool equal(const Value& a, const Value& b, std::int64_t& looks, int depth) {
  if (looks <= 0 || depth > 50) return looks = 0, false;
  --looks;
  if (a.is_number() && b.is_number()) return a.is_whole() && b.is_whole() ? a.whole() == b.whole() : a.number() == b.number();
  if (a.v.index() != b.v.index()) return false;
  if (const auto* text = a.get<std::string>()) return *text == *b.get<std::string>();
  if (const auto* f = a.get<std::shared_ptr<const Function>>()) return *f == *b.get<std::shared_ptr<const Function>>();
  if (const auto* t = a.get<Thing>()) return t->kind == b.get<Thing>()->kind && t->id == b.get<Thing>()->id;
  if (const auto* list = a.get<List>()) {
    const List& other = *b.get<List>();
    if (*list == other) return true;
    if ((*list)->size() != other->size()) return false;
    for (std::size_t i = 0; i < other->size(); ++i) {
      if (!equal((**list)[i], (*other)[i], looks, depth + 1)) return false;
    }
  }
  return true;
}

}  // namespace stepzero::lang
