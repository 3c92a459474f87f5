#include "stepzero/solve/axis.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero::solve {

namespace {

constexpr const char* hint =
    "--over key=a..b:n (equal steps), key=a..b:xn (geometric), key=a,b,c; keys are fields of --set, std.ROLE, tokens, scheme, rate";
constexpr std::size_t most_values = 4096;

std::optional<double> number(std::string_view text) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(x)) return {};
  return x;
}

// Fields that take whole numbers are told so by what they take, in words.
bool is_whole(const Axis& axis) {
  if (axis.kind == Axis::Kind::tokens) return true;
  const auto known = fields();
  const auto it = std::ranges::find(known, std::string_view(axis.key), &Field::name);
  return it != known.end() && it->values.find("whole") != std::string_view::npos;
}

Expected<void> steps(Axis& axis, std::string_view range, const std::string& text) {
  const auto wrong = [&](const char* what) { return fail(fmt::format("--over {}: {}", show(text), what), hint); };
  const auto dots = range.find("..");
  const auto colon = std::min(range.find(':', dots), range.size());
  std::string_view count = range.substr(std::min(colon + 1, range.size()));
  axis.geometric = count.starts_with('x');
  if (axis.geometric) count.remove_prefix(1);
  const auto a = number(range.substr(0, dots)), b = number(range.substr(dots + 2, colon - dots - 2));
  const auto n = colon == range.size() ? std::optional<double>(16) : number(count);
  if (!a || !b) return wrong("a and b of a..b are numbers");
  if (!n || *n < 2 || *n > static_cast<double>(most_values) || *n != std::floor(*n))
    return wrong("the number of steps is a whole number from 2 to 4096");
  if (axis.geometric && !(*a > 0 && *b > 0)) return wrong("geometric steps go from one number above 0 to another");
  const bool whole = is_whole(axis);
  for (int i = 0; i < static_cast<int>(*n); ++i) {
    const double u = i / (*n - 1);
    double x = axis.geometric ? *a * std::pow(*b / *a, u) : *a + (*b - *a) * u;
    if (whole) x = std::round(x);
    if (!axis.numbers.empty() && x == axis.numbers.back()) continue;
    axis.numbers.push_back(x);
    axis.values.push_back(whole ? fmt::format("{:.0f}", x) : fmt::format("{:.6g}", x));
  }
  return {};
}

}  // namespace

Expected<Axis> parse_axis(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return fail(fmt::format("--over {}: no axis", show(text)), hint);
  Axis axis{.key = text.substr(0, equals)};
  const std::string_view range = std::string_view(text).substr(equals + 1);
  if (axis.key.starts_with("std.")) axis.kind = Axis::Kind::factor;
  if (axis.key == "tokens") axis.kind = Axis::Kind::tokens;
  if (axis.key == "scheme") axis.kind = Axis::Kind::scheme;
  if (axis.key == "rate") axis.kind = Axis::Kind::rate;
  const auto known = fields();
  if (axis.kind == Axis::Kind::field && std::ranges::find(known, std::string_view(axis.key), &Field::name) == known.end())
    return fail(fmt::format("--over {}: \"{}\" is no field", show(text), show(axis.key)), hint);
  if (range.find("..") != std::string_view::npos && axis.kind != Axis::Kind::scheme) {
    if (auto done = steps(axis, range, text); !done) return std::unexpected(done.error());
    return axis;
  }
  for (std::size_t from = 0; from <= range.size();) {
    const auto comma = std::min(range.find(',', from), range.size());
    axis.values.emplace_back(range.substr(from, comma - from));
    if (const auto x = number(axis.values.back())) axis.numbers.push_back(*x);
    from = comma + 1;
  }
  if (axis.numbers.size() != axis.values.size()) axis.numbers.clear();
  const bool wants_numbers = axis.kind == Axis::Kind::factor || axis.kind == Axis::Kind::tokens || axis.kind == Axis::Kind::rate;
  if (wants_numbers && axis.numbers.empty()) return fail(fmt::format("--over {}: {} takes numbers", show(text), axis.key), hint);
  return axis;
}

}  // namespace stepzero::solve
