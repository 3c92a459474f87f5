#include "stepzero/claims/claim.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/student.hpp"
#include "stepzero/core/text.hpp"

namespace stepzero::claims {

std::string_view to_string(Verdict verdict) {
  constexpr std::string_view names[] = {"holds", "holds if", "fails", "undecided"};
  return names[static_cast<std::size_t>(verdict)];
}

std::string_view to_string(Outcome outcome) {
  constexpr std::string_view names[] = {"agrees", "differs", "undecided"};
  return names[static_cast<std::size_t>(outcome)];
}

std::string_view to_string(Kind kind) {
  constexpr std::string_view names[] = {"statement", "counter-case", "contrast", "correction"};
  return names[static_cast<std::size_t>(kind)];
}

double Row::reach() const { return draws > 1 ? student_quantile(kMissed, draws - 1) * error : error; }

Outcome Row::outcome() const {
  const double half = reach();
  if (!std::isfinite(measured) || !std::isfinite(half)) return Outcome::undecided;
  if (measured - half > high || measured + half < low) return Outcome::differs;
  // a corrected formula must not be off by more than chance, however close it is
  if (kind == Kind::correction && std::isfinite(low) && std::isfinite(high) && !(std::abs(measured - predicted) <= half)) {
    return Outcome::differs;
  }
  return measured - half >= low && measured + half <= high ? Outcome::agrees : Outcome::undecided;
}

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Row sampled(Kind kind, std::string what, double predicted, double low, double high, const Running& r) {
  // one draw says nothing of its spread
  const double error = r.count > 1 ? r.error() : infinity;
  return {kind, std::move(what), predicted, low, high, r.mean, error, r.count};
}

}  // namespace

void Evidence::equal(Kind kind, std::string what, double predicted, const Running& measured, double tolerance) {
  near(kind, std::move(what), predicted, measured, std::abs(predicted) * tolerance);
}

void Evidence::near(Kind kind, std::string what, double predicted, const Running& measured, double slack) {
  rows.push_back(sampled(kind, std::move(what), predicted, predicted - slack, predicted + slack, measured));
}

void Evidence::exact(Kind kind, std::string what, double predicted, double measured, double rounding, double tolerance) {
  const double slack = std::max(std::abs(predicted) * tolerance, 2 * rounding);
  rows.push_back({kind, std::move(what), predicted, predicted - slack, predicted + slack, measured, rounding, 0});
}

void Evidence::at_most(Kind kind, std::string what, double bound, const Running& measured) {
  rows.push_back(sampled(kind, std::move(what), bound, -infinity, bound, measured));
}

void Evidence::at_least(Kind kind, std::string what, double bound, const Running& measured) {
  rows.push_back(sampled(kind, std::move(what), bound, bound, infinity, measured));
}

std::vector<Plot> Evidence::plots() const {
  std::vector<Plot> some;
  for (const Plot& p : {plot, course}) {
    if (!p.curves.empty()) some.push_back(p);
  }
  return some;
}

Verdict Evidence::verdict() const {
  const auto all = [&](Kind kind, Outcome outcome) {
    return std::ranges::all_of(rows, [&](const Row& r) { return r.kind != kind || r.outcome() == outcome; });
  };
  const auto any = [&](Kind kind) { return std::ranges::any_of(rows, [&](const Row& r) { return r.kind == kind; }); };
  const bool told = all(Kind::correction, Outcome::agrees) && all(Kind::contrast, Outcome::differs);
  if (!told || !any(Kind::statement)) return Verdict::undecided;
  const bool differs = std::ranges::any_of(rows, [](const Row& r) { return r.kind == Kind::statement && r.outcome() == Outcome::differs; });
  if (differs) return Verdict::fails;
  if (!all(Kind::statement, Outcome::agrees)) return Verdict::undecided;
  if (!any(Kind::counter) || all(Kind::counter, Outcome::agrees)) return Verdict::holds;
  return all(Kind::counter, Outcome::differs) ? Verdict::holds_if : Verdict::undecided;
}

const Row& Evidence::headline() const {
  const auto of = [&](Kind kind) { return std::ranges::find(rows, kind, &Row::kind); };
  const auto correction = of(Kind::correction);
  return *(correction != rows.end() ? correction : of(Kind::statement));
}

Settings::Settings(std::uint64_t seed, const std::vector<Setting>& defaults) : seed_(seed) {
  for (const Setting& s : defaults) values_.emplace(s.name, s.value);
}

double Settings::operator()(std::string_view name) const {
  const auto it = values_.find(name);
  STEPZERO_CHECK(it != values_.end());
  return it->second;
}

void Settings::set(std::string_view name, double value) { values_.insert_or_assign(std::string(name), value); }

std::string source_text(std::string_view source) {
  const char* what = source == kProducts         ? "the document on the variance of products"
                     : source == kBackprop       ? "two documents on scores and on backpropagation"
                     : source == kInitialization ? "the document on initialization"
                                                 : "a source document";
  return fmt::format("{}: {}", what, source);
}

Expected<void> set(const Claim& claim, Settings& settings, std::string_view assignment) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos)
    return fail(fmt::format("--set {}: expected key=value", show(assignment)), "for example --set draws=200");
  const std::string_view key = assignment.substr(0, equals), text = assignment.substr(equals + 1);
  std::vector<std::string> known;
  for (const Setting& s : claim.settings) known.emplace_back(s.name);
  const auto found = std::ranges::find(claim.settings, key, &Setting::name);
  if (found == claim.settings.end()) {
    const std::string near = closest(key, known);
    return fail(fmt::format("--set {}: claim {} has no such setting{}", show(key), claim.id,
                            near.empty() ? "" : fmt::format("; did you mean {}?", near)),
                fmt::format("its settings are {}", fmt::join(known, ", ")));
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size();
  if (!number || !(value >= found->low && value <= found->high) || (found->whole && value != std::round(value))) {
    return fail(fmt::format("--set {}: \"{}\" is not a {} from {} to {}", show(key), show(text), found->whole ? "whole number" : "number",
                            found->low, found->high),
                fmt::format("{}: {}; {} unless set", found->name, found->meaning, found->value));
  }
  settings.set(key, value);
  return {};
}

}  // namespace stepzero::claims
