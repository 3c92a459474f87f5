#include "stepzero/schemes/transfer_rules.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

using P = Parametrization;
using R = UpdateRule;

constexpr auto parametrizations = std::to_array<std::pair<std::string_view, P>>({{"standard", P::standard},
                                                                                 {"aligned", P::aligned},
                                                                                 {"mup", P::mup},
                                                                                 {"depth-mup", P::depth_mup},
                                                                                 {"completep", P::completep},
                                                                                 {"spectral", P::spectral},
                                                                                 {"u-mup", P::u_mup}});

bool has_size_of_rate(R r) { return r == R::adam || r == R::lion || r == R::sophia; }
bool has_eps(R r) { return r == R::adam || r == R::sophia || r == R::shampoo; }

// Of the whole rate, by the width alone.
double rate_by_width(R rule, TensorKind kind, const Ratios& r) {
  const double multiplier = kind == TensorKind::output ? 1 / r.in : 1;
  if (has_size_of_rate(rule)) return kind == TensorKind::hidden ? 1 / r.in : 1;
  if (rule == R::sso) return 1 / multiplier;
  if (rule == R::sgd) return r.out / r.in / (multiplier * multiplier);  // once in the gradient, once in its effect
  return std::sqrt(r.out / r.in) / multiplier / r.update_size;          // singular values 1
}

// ... and by the depth: layers^-alpha stands on each branch, and layers of them add up in one direction.
double rate_by_depth(R rule, const Ratios& r, double alpha) {
  if (!r.in_block || alpha == 0) return 1;
  return std::pow(r.depth, rule == R::sgd ? 2 * alpha - 1 : alpha - 1);
}

double eps_factor(R rule, const Ratios& r, double alpha) {
  if (!has_eps(rule)) return 1;
  if (rule == R::shampoo) return r.in_block ? std::pow(r.depth, -2 * alpha) : 1 / r.width;
  return 1 / r.width * (r.in_block ? std::pow(r.depth, -alpha) : 1);
}

Factors u_mup(TensorKind kind, const Ratios& r) {
  Factors f;
  if (kind == TensorKind::hidden) f.rate = 1 / std::sqrt(r.in * (r.in_block ? r.depth : 1));
  if (kind == TensorKind::input) f.rate = 1 / std::sqrt(r.out);
  f.decay = 1 / f.rate;
  return f;
}

}  // namespace

std::string_view to_string(P p) { return std::ranges::find(parametrizations, p, &std::pair<std::string_view, P>::second)->first; }

std::string_view to_string(R r) {
  constexpr std::array<std::string_view, 9> names = {"sgd", "adam", "lion", "sophia", "muon", "kimi", "shampoo", "soap", "sso"};
  return names[static_cast<std::size_t>(r)];
}

std::string_view to_string(TensorKind k) {
  constexpr std::array<std::string_view, 4> names = {"input", "hidden", "output", "vector"};
  return names[static_cast<std::size_t>(k)];
}

std::vector<std::string> parametrization_names() {
  std::vector<std::string> names;
  for (const auto& [name, p] : parametrizations) names.emplace_back(name);
  return names;
}

Expected<P> parse_parametrization(std::string_view name) {
  const auto it = std::ranges::find(parametrizations, name, &std::pair<std::string_view, P>::first);
  if (it != parametrizations.end()) return it->second;
  return fail(fmt::format("there is no parametrization \"{}\"", show(name)), fmt::format("{}", fmt::join(parametrization_names(), ", ")));
}

TensorKind kind_of_tensor(const Param& p) {
  if (p.role == Role::head) return TensorKind::output;
  const bool table = p.role == Role::token_embedding || p.role == Role::position_embedding;
  const bool vector = p.role == Role::gain || p.role == Role::bias || p.role == Role::branch_gain;
  return table ? TensorKind::input : vector ? TensorKind::vector : TensorKind::hidden;
}

double depth_exponent(P p) { return p == P::depth_mup ? 0.5 : p == P::completep || p == P::spectral ? 1 : 0; }

Expected<void> check_rule(P p, R rule) {
  const bool adam = has_size_of_rate(rule);
  if ((p == P::aligned || p == P::u_mup) && !adam)
    return fail(fmt::format("{} has no rates for {}", to_string(p), to_string(rule)),
                "its paper knows AdamW; mup and spectral know the others");
  return {};
}

Factors factors_of(P p, R rule, TensorKind kind, const Ratios& r) {
  Factors f;
  if (p == P::standard) return f;
  if (p == P::u_mup) return u_mup(kind, r);
  if (p == P::aligned) {
    if (kind == TensorKind::hidden || kind == TensorKind::output) f.rate = 1 / r.in;
    return f;
  }
  const double alpha = depth_exponent(p);
  if (kind == TensorKind::hidden) f.std = 1 / std::sqrt(r.in);
  const double by_width = rate_by_width(rule, kind, r);
  f.rate = by_width * rate_by_depth(rule, r, alpha);
  // rate * decay is kept; over the depth only where the paper says so (SGD of the spectral condition)
  f.decay = 1 / (rule == R::sgd ? f.rate : by_width);
  f.eps = eps_factor(rule, r, alpha);
  return f;
}

Multipliers multipliers_of(P p, double head_dim, double width, double depth) {
  if (p == P::standard || p == P::aligned || p == P::u_mup) return {};
  return {.scores = 1 / head_dim, .branches = std::pow(depth, -depth_exponent(p)), .logits = 1 / width};
}

}  // namespace stepzero
