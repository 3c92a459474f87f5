// Schemes that make settings found on a small model right for a large one.
#include <array>

#include "stepzero/schemes/rules.hpp"

namespace stepzero {

namespace {

double widening(const Architecture& a) { return number_of(a.width) / number_of(a.base_width); }

// ---- muP: hidden matrices 1/m of the base model's variance, scores over head_dim, logits over m

void mup_adapt(Architecture& a) {
  a.attention_scale = 1 / number_of(a.head_dim);
  a.logit_scale = 1 / widening(a);
}

Distribution mup(const Architecture& a, const Param& p, double branches) {
  if (is_embedding(p) || p.role == Role::head) return Distribution::normal(a.init_std);
  const double variance = a.init_std * a.init_std / widening(a) / (writes_to_stream(p) ? branches : 1);
  return with_plain_vectors(p, Distribution::normal(std::sqrt(variance)));
}

Distribution mup_scaled(const Architecture& a, const Param& p) { return mup(a, p, 2 * number_of(a.layers)); }

// ---- CompleteP: muP in width, and branches divided by the growth in depth rather than by its root

void completep_adapt(Architecture& a) {
  mup_adapt(a);
  a.residual_scale = number_of(a.base_layers) / number_of(a.layers);
}

Distribution completep(const Architecture& a, const Param& p) { return mup(a, p, 1); }

// ---- u-muP: all weights N(0, 1), the scale is in the products; the stream keeps unit size: b x + a f, a^2 + b^2 = 1

void u_mup_adapt(Architecture& a) {
  a.unit_linear = true;
  a.attention_scale = 1 / number_of(a.head_dim);
  a.logit_scale = 1 / number_of(a.width);
  a.skip_scales.clear();
  a.residual_scales.clear();
  for (Index branch = 0; branch < 2 * a.layers; ++branch) {
    const double ratio = 1 / number_of(a.layers + branch);  // tau^2 of the paper, both of its residual multipliers 1
    a.skip_scales.push_back(std::sqrt(1 / (ratio + 1)));
    a.residual_scales.push_back(std::sqrt(ratio / (ratio + 1)));
  }
}

Distribution u_mup(const Architecture&, const Param& p) { return with_plain_vectors(p, Distribution::normal(1)); }

constexpr std::array width_table = std::to_array<Scheme>({
    {.name = "mup",
     .summary = "hidden N(0, s^2/m), outputs of both branches s^2/(2 m layers), m = width / base_width; scores / head_dim, logits / m",
     .source = "Yang et al. 2022, Tensor Programs V; as in EleutherAI/nanoGPT-mup",
     .assign = mup_scaled,
     .adapt = mup_adapt},
    {.name = "completep",
     .summary = "hidden N(0, s^2/m); branches times base_layers / layers; scores / head_dim, logits / m, m = width / base_width",
     .source = "Dey et al. 2025, Don't be lazy: CompleteP (alpha = 1)",
     .assign = completep,
     .adapt = completep_adapt},
    {.name = "u-mup",
     .summary = "all N(0, 1); products / sqrt(fan_in), scores / head_dim, logits / d; x <- b x + a f with a^2 + b^2 = 1",
     .source = "Blake et al. 2024, u-muP, all multipliers 1; its scales of activations and of the attention's output are left out",
     .assign = u_mup,
     .adapt = u_mup_adapt},
});

}  // namespace

std::span<const Scheme> width_schemes() { return width_table; }

}  // namespace stepzero
