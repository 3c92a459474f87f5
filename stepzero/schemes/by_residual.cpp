// Schemes that change what is added to the stream, or how: each also changes the architecture.
#include <array>

#include "stepzero/schemes/rules.hpp"

namespace stepzero {

namespace {

// ---- DeepNet: x <- norm(alpha x + f(x)), encoder-only and decoder-only constants.

void deepnet_adapt(Architecture& a) {
  a.norm_placement = NormPlacement::post;
  a.skip_scale = std::pow(2 * number_of(a.layers), 0.25);
  a.embedding_scale = std::sqrt(number_of(a.width));  // so that what enters the first block is of unit size, as the paper's theory has it
}

Distribution deepnet(const Architecture& a, const Param& p) {
  const double beta = std::pow(8 * number_of(a.layers), -0.25);
  const bool scaled = p.role == Role::value || p.role == Role::attention_out || is_feed_forward(p);
  if (is_embedding(p) || p.role == Role::head) return Distribution::normal(1 / std::sqrt(number_of(a.width)));
  return with_plain_vectors(p, Distribution::normal((scaled ? beta : 1) * xavier_std(p)));
}

constexpr std::array table = std::to_array<Scheme>({
    {.name = "deepnet",
     .summary = "post-norm, x <- norm(a x + f(x)) with a = (2 layers)^(1/4); Xavier, times (8 layers)^(-1/4) in value, output and FFN",
     .source = "Wang et al. 2022, DeepNet: Scaling Transformers to 1,000 Layers; embeddings as in torchscale",
     .assign = deepnet,
     .adapt = deepnet_adapt,
     .by_part = true},
});

}  // namespace

std::span<const Scheme> residual_schemes() { return table; }

}  // namespace stepzero
