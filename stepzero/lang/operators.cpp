// Arithmetic, as Python has it: // and % round down, / of whole numbers is a number, "%d" % n fills in.
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/lang/evaluator.hpp"

namespace stepzero::lang {

namespace {

constexpr std::size_t most_text = 65536;

double floor_mod(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

}  // namespace

Value Evaluator::binary(const std::string& sign, const Value& a, const Value& b, Place place) {
  if (a.get<Thing>() != nullptr || b.get<Thing>() != nullptr) {  // the words say what signs between wires mean
    const Value* word = find("_binary");
    if (word == nullptr) return refuse(place, fmt::format("{} {} {}", type_name(a), sign, type_name(b)));
    const auto f = *word->get<std::shared_ptr<const Function>>();
    return apply(*f, {{Value(sign), a, b}, {}}, place);
  }
  if (a.is_number() && b.is_number()) return arithmetic(sign, a, b, place);
  const auto *text = a.get<std::string>(), *more = b.get<std::string>();
  const auto *list = a.get<List>(), *tail = b.get<List>();
  if (sign == "%" && text != nullptr) return percent(*text, b, place);
  if (sign == "+" && text != nullptr && more != nullptr) {
    if (text->size() + more->size() > most_text || !charge(static_cast<std::int64_t>((text->size() + more->size()) / 16))) {
      return refuse(place, "this text has become too long");
    }
    return *text + *more;
  }
  if (sign == "+" && list != nullptr && tail != nullptr) {
    if (!charge(static_cast<std::int64_t>((*list)->size() + (*tail)->size()))) return refuse(place, "this list has become too long");
    std::vector<Value> all = **list;
    all.insert(all.end(), (*tail)->begin(), (*tail)->end());
    return keep(std::move(all));
  }
  if (sign == "*" && b.is_whole() && (text != nullptr || list != nullptr)) return repeat(a, b, place);
  if (sign == "*" && a.is_whole() && (more != nullptr || tail != nullptr)) return repeat(b, a, place);
  return refuse(place, fmt::format("{} {} {} has no meaning", type_name(a), sign, type_name(b)));
}

Value Evaluator::repeat(const Value& what, const Value& times, Place place) {
  const std::int64_t n = std::max<std::int64_t>(times.whole(), 0);
  const auto* list = what.get<List>();
  const auto size = static_cast<std::int64_t>(list != nullptr ? (*list)->size() : what.get<std::string>()->size());
  std::int64_t total = 0;
  const bool fits = !__builtin_mul_overflow(n, size, &total) && (list != nullptr || total <= static_cast<std::int64_t>(most_text));
  if (!fits || !charge(n) || !charge(total)) return refuse(place, fmt::format("{} times {} is too long", n, type_name(what)));
  if (list == nullptr) {
    std::string out;
    for (std::int64_t i = 0; i < n && size > 0; ++i) out += *what.get<std::string>();
    return out;
  }
  std::vector<Value> out;
  for (std::int64_t i = 0; i < n && size > 0; ++i) out.insert(out.end(), (*list)->begin(), (*list)->end());
  return keep(std::move(out));
}

Value Evaluator::arithmetic(const std::string& sign, const Value& a, const Value& b, Place place) {
  if (sign == "**") return power(a, b, place);
  const bool divides = sign == "/" || sign == "//" || sign == "%";
  if (divides && b.number() == 0) return refuse(place, "division by zero");
  if (a.is_whole() && b.is_whole() && sign != "/") return whole_arithmetic(sign, a.whole(), b.whole(), place);
  const double x = a.number(), y = b.number();
  if (sign == "+") return x + y;
  if (sign == "-") return x - y;
  if (sign == "*") return x * y;
  if (sign == "/") return x / y;
  if (sign == "%") return floor_mod(x, y);
  return std::floor((x - floor_mod(x, y)) / y);
}

Value Evaluator::whole_arithmetic(const std::string& sign, std::int64_t a, std::int64_t b, Place place) {
  std::int64_t out = 0;
  bool over = false;
  if (sign == "+") {
    over = __builtin_add_overflow(a, b, &out);
  } else if (sign == "-") {
    over = __builtin_sub_overflow(a, b, &out);
  } else if (sign == "*") {
    over = __builtin_mul_overflow(a, b, &out);
  } else if (b == -1) {
    over = sign == "//" && __builtin_sub_overflow(std::int64_t{0}, a, &out);
  } else {
    const std::int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0) ? 1 : 0;
    out = sign == "%" ? rest + down * b : a / b - down;
  }
  if (over) return refuse(place, fmt::format("{} {} {} is too large a whole number", a, sign, b));
  return out;
}

Value Evaluator::power(const Value& a, const Value& b, Place place) {
  if (a.is_whole() && b.is_whole() && b.whole() >= 0) {
    std::int64_t out = 1, base = a.whole();
    for (std::int64_t n = b.whole(); n > 0; n >>= 1) {
      if ((n & 1) != 0 && __builtin_mul_overflow(out, base, &out)) return refuse(place, "this power is too large a whole number");
      if (n > 1 && __builtin_mul_overflow(base, base, &base)) return refuse(place, "this power is too large a whole number");
    }
    return out;
  }
  const double x = a.number(), y = b.number(), out = std::pow(x, y);
  if ((x == 0 && y < 0) || (std::isnan(out) && !std::isnan(x) && !std::isnan(y)) ||
      (std::isinf(out) && std::isfinite(x) && std::isfinite(y))) {
    return refuse(place, fmt::format("{} ** {} is no number", to_text(a), to_text(b)));
  }
  return out;
}

// "h.%d.%s" % [3, "ln"]; %d of a whole number, %s of anything, %g of a number, %% for the sign itself.
Value Evaluator::percent(const std::string& pattern, const Value& values, Place place) {
  const auto* list = values.get<List>();
  const std::vector<Value> all = list != nullptr ? **list : std::vector<Value>{values};
  std::string out;
  std::size_t used = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      out += pattern[i];
      continue;
    }
    const char kind = ++i < pattern.size() ? pattern[i] : '\0';
    if (kind == '%') {
      out += '%';
      continue;
    }
    if (kind != 'd' && kind != 's') return refuse(place, "of formats only %d, %s and %% are known", "f\"{x}\" writes anything");
    if (used == all.size()) return refuse(place, fmt::format("the text wants more than the {} values given", all.size()));
    if (kind == 'd' && !all[used].is_whole())
      return refuse(place, fmt::format("%d wants a whole number, and gets {}", type_name(all[used])));
    out += kind == 'd' ? fmt::format("{}", all[used].whole()) : to_text(all[used]);
    ++used;
    if (out.size() > most_text || !charge(static_cast<std::int64_t>(out.size() / 16)))
      return refuse(place, "this text has become too long");
  }
  if (used != all.size()) return refuse(place, fmt::format("{} values are given, the text takes {}", all.size(), used));
  return out;
}

}  // namespace stepzero::lang
