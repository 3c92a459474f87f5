// Schemes whose attention matrices are not independent numbers.
#include <algorithm>
#include <array>

#include "stepzero/schemes/rules.hpp"

namespace stepzero {

namespace {

bool is_attention(const Param& p) {
  return p.role == Role::query || p.role == Role::key || p.role == Role::value || p.role == Role::attention_out;
}

// Half of the size in the identity, half in noise: W = (I + Z)/sqrt(2) with entries of Z of variance 1/fan_in.
Distribution identity_attention(const Architecture& a, const Param& p) {
  if (is_attention(p)) return Distribution::diagonal_and_noise(std::sqrt(0.5), std::sqrt(0.5 / number_of(p.fan_in)), p.rows(), p.cols());
  return with_plain_vectors(p, Distribution::normal(a.init_std));
}

// Mean of the largest share of the singular values of 0.7 (Z + I), shares 1, 1/2, 1/4, ... 1/64; from 768 x 768 draws.
double mean_singular_value(double share) {
  constexpr std::array mean = {0.875, 1.268, 1.483, 1.610, 1.689, 1.737, 1.768};
  const double place = std::clamp(-std::log2(share), 0.0, static_cast<double>(mean.size() - 1));
  const auto below = std::min(static_cast<std::size_t>(place), mean.size() - 2);
  const double part = place - static_cast<double>(below);
  return (1 - part) * mean[below] + part * mean[below + 1];
}

// A matrix made of k singular vectors times the roots of their values has entries of variance mean(s) / d. Where `group`
// query heads share a key head, all but the first are M V / sqrt(S) with an M of their own, and outputs are shared out.
double mimetic_std(const Architecture& a, const Param& p) {
  const bool scores = p.role == Role::query || p.role == Role::key;
  const double d = number_of(a.width);
  const double group = number_of(a.heads / a.kv_heads);
  const double s = mean_singular_value(std::min(number_of(a.head_dim * (scores ? 1 : a.kv_heads)) / d, 1.0)) * (scores ? 1 : 0.4 / 0.7);
  if (p.role == Role::query) return std::sqrt((s + (group - 1) * 0.98 / s) / group / d);
  return std::sqrt(s / d) / (p.role == Role::attention_out ? group : 1);
}

// Wq Wk' = 0.7 Z + 0.7 I in each head, Wv Wo = 0.4 Z - 0.4 I, by singular value decompositions.
Distribution mimetic(const Architecture& a, const Param& p) {
  const bool latent = a.key_value_rank > 0;  // keys and values of no head alone
  if (is_attention(p) && !latent) return Distribution::structured(Distribution::Structure::mimetic, mimetic_std(a, p));
  return with_plain_vectors(p, Distribution::normal(a.init_std));
}

void mimetic_adapt(Architecture& a) { a.position = a.position == PositionKind::learned ? PositionKind::sinusoidal : a.position; }

constexpr std::array structure_table = std::to_array<Scheme>({
    {.name = "identity-attention",
     .summary = "query, key, value and output (I + Z)/sqrt(2), Z of variance 1/fan_in; the rest N(0, s^2)",
     .source = "the source document 003: attention weights closer to the identity matrix",
     .assign = identity_attention,
     .by_part = true},
    {.name = "mimetic",
     .summary = "in each head Wq Wk' near 0.7 Z + 0.7 I, Wv Wo = 0.4 Z - 0.4 I, sinusoidal positions; the rest N(0, s^2)",
     .source = "Trockman and Kolter 2023, Mimetic Initialization of Self-Attention Layers",
     .assign = mimetic,
     .adapt = mimetic_adapt,
     .by_part = true},
});

}  // namespace

std::span<const Scheme> structure_schemes() { return structure_table; }

}  // namespace stepzero
