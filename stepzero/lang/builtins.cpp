// Python's own functions, those of them that a description needs.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/lang/evaluator.hpp"

namespace stepzero::lang {

namespace {

Expected<void> plain(const Call& call, std::size_t least, std::size_t most, const char* use) {
  if (!call.named.empty() || call.values.size() < least || call.values.size() > most) return fail("the arguments do not fit", use);
  return {};
}

Expected<double> number(const Value& value) {
  if (value.is_number()) return value.number();
  return fail(fmt::format("a number is expected, this is {}", type_name(value)));
}

Expected<List> list(const Value& value) {
  if (const auto* l = value.get<List>()) return *l;
  return fail(fmt::format("a list is expected, this is {}", type_name(value)));
}

void define_function(Evaluator& e, const char* name, double (*f)(double)) {
  e.define(name, [name, f](Call& call) -> Expected<Value> {
    if (auto fits = plain(call, 1, 1, name); !fits) return std::unexpected(fits.error());
    const auto x = number(call.values[0]);
    if (!x) return std::unexpected(x.error());
    const double y = f(*x);
    if (!std::isfinite(y)) return fail(fmt::format("{}({}) is no number", name, to_text(call.values[0])));
    return Value(y);
  });
}

// floor, ceil: a whole number
void define_rounding(Evaluator& e, const char* name, double (*f)(double)) {
  e.define(name, [name, f](Call& call) -> Expected<Value> {
    if (auto fits = plain(call, 1, 1, name); !fits) return std::unexpected(fits.error());
    const auto x = number(call.values[0]);
    if (!x) return std::unexpected(x.error());
    const double y = f(*x);
    if (!(std::abs(y) < 9e18)) return fail(fmt::format("{}({}) is no whole number that can be held", name, to_text(call.values[0])));
    return Value(static_cast<std::int64_t>(y));
  });
}

Expected<Value> range(Evaluator& e, const Call& call) {
  if (auto fits = plain(call, 1, 3, "range(end), range(start, end) or range(start, end, step)"); !fits)
    return std::unexpected(fits.error());
  std::int64_t at[3] = {0, 0, 1};
  for (std::size_t i = 0; i < call.values.size(); ++i) {
    if (!call.values[i].is_whole())
      return fail(fmt::format("range counts in whole numbers, this is {}", type_name(call.values[i])), "7 // 2 is whole");
    at[call.values.size() == 1 ? 1 : i] = call.values[i].whole();
  }
  if (at[2] == 0) return fail("a range with a step of 0 has no end");
  std::vector<Value> out;
  std::int64_t i = at[0];
  while (at[2] > 0 ? i < at[1] : i > at[1]) {
    if (!e.charge(1)) return fail("this range is too long", "a file may take some million steps");
    out.emplace_back(i);
    if (__builtin_add_overflow(i, at[2], &i)) break;
  }
  return make_list(std::move(out));
}

Expected<Value> best(Evaluator& e, const Call& call, bool largest) {
  std::vector<Value> all = call.values;
  if (all.size() == 1 && all[0].get<List>() != nullptr) all = std::vector<Value>(**all[0].get<List>());
  if (!e.charge(std::ssize(all))) return fail("these are too many");
  if (all.empty() || !call.named.empty()) return fail("nothing to choose from", "max(a, b) or max(list)");
  const Value* found = nullptr;
  for (const Value& value : all) {
    if (!value.is_number()) return fail(fmt::format("numbers are expected, this is {}", type_name(value)));
    if (found == nullptr || (largest ? value.number() > found->number() : value.number() < found->number())) found = &value;
  }
  return *found;
}

Expected<Value> to_whole(const Call& call) {
  if (auto fits = plain(call, 1, 1, "int(x)"); !fits) return std::unexpected(fits.error());
  if (call.values[0].is_whole()) return Value(call.values[0].whole());
  const auto x = number(call.values[0]);
  if (!x) return std::unexpected(x.error());
  if (!(std::abs(*x) < 9e18)) return fail(fmt::format("{} is no whole number that can be held", to_text(call.values[0])));
  return Value(static_cast<std::int64_t>(*x));
}

Expected<Value> size(const Call& call) {
  if (auto fits = plain(call, 1, 1, "len(list)"); !fits) return std::unexpected(fits.error());
  if (const auto* text = call.values[0].get<std::string>()) return Value(static_cast<std::int64_t>(text->size()));
  const auto l = list(call.values[0]);
  if (!l) return std::unexpected(l.error());
  return Value(static_cast<std::int64_t>((*l)->size()));
}

Expected<Value> pairs(Evaluator& e, const Call& call) {
  if (auto fits = plain(call, 2, 4, "zip(a, b)"); !fits) return std::unexpected(fits.error());
  std::size_t least = static_cast<std::size_t>(-1);
  std::vector<List> lists;
  for (const Value& value : call.values) {
    auto l = list(value);
    if (!l) return std::unexpected(l.error());
    least = std::min(least, (*l)->size());
    lists.push_back(std::move(*l));
  }
  std::vector<Value> out;
  for (std::size_t i = 0; i < least; ++i) {
    if (!e.charge(4)) return fail("these lists are too long");
    std::vector<Value> row;
    for (const List& l : lists) row.push_back((*l)[i]);
    out.push_back(make_list(std::move(row)));
  }
  return make_list(std::move(out));
}

// A list of its own with the same values.
Expected<Value> copy(Evaluator& e, const Call& call) {
  if (auto fits = plain(call, 1, 1, "list(values)"); !fits) return std::unexpected(fits.error());
  const auto l = list(call.values[0]);
  if (!l) return std::unexpected(l.error());
  if (!e.charge(static_cast<std::int64_t>((*l)->size()))) return fail("this list is too long");
  return make_list(**l);
}

// fail("what is wrong", "what to do"): how a file refuses what it is given
Expected<Value> refuse(const Call& call) {
  if (auto fits = plain(call, 1, 2, "fail(\"what is wrong\", \"what to do\")"); !fits) return std::unexpected(fits.error());
  return fail(show(to_text(call.values[0])), call.values.size() > 1 ? show(to_text(call.values[1])) : "");
}

}  // namespace

void define_builtins(Evaluator& e) {
  define_function(e, "sqrt", [](double x) { return std::sqrt(x); });
  define_function(e, "exp", [](double x) { return std::exp(x); });
  define_function(e, "log", [](double x) { return std::log(x); });
  define_function(e, "cos", [](double x) { return std::cos(x); });
  define_function(e, "sin", [](double x) { return std::sin(x); });
  define_rounding(e, "floor", [](double x) { return std::floor(x); });
  define_rounding(e, "ceil", [](double x) { return std::ceil(x); });
  e.set("pi", 3.141592653589793);
  e.define("range", [&e](Call& call) { return range(e, call); });
  e.define("min", [&e](Call& call) { return best(e, call, false); });
  e.define("max", [&e](Call& call) { return best(e, call, true); });
  e.define("int", [](Call& call) { return to_whole(call); });
  e.define("len", [](Call& call) { return size(call); });
  e.define("zip", [&e](Call& call) { return pairs(e, call); });
  e.define("list", [&e](Call& call) { return copy(e, call); });
  e.define("fail", [](Call& call) { return refuse(call); });
  e.define("float", [](Call& call) -> Expected<Value> {
    if (auto fits = plain(call, 1, 1, "float(x)"); !fits) return std::unexpected(fits.error());
    const auto x = number(call.values[0]);
    if (!x) return std::unexpected(x.error());
    return Value(*x);
  });
  e.define("str", [](Call& call) -> Expected<Value> {
    if (auto fits = plain(call, 1, 1, "str(x)"); !fits) return std::unexpected(fits.error());
    return Value(to_text(call.values[0]));
  });
}

}  // namespace stepzero::lang
