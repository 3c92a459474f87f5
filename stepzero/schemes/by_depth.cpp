// Schemes of the libraries that trained the well-known models: a fixed or width-dependent std, less in the matrices that
// write to the stream, by the number of layers or by the layer's own number.
#include <array>

#include "stepzero/schemes/rules.hpp"

namespace stepzero {

namespace {

double own_depth(const Param& p) { return static_cast<double>(p.layer + 1); }  // of the layer itself, from 1
double width(const Architecture& a) { return number_of(a.width); }

// N(0, s^2), divided by sqrt(2 layers) where a branch ends.
double scaled_std(const Architecture& a, const Param& p) { return a.init_std / (writes_to_stream(p) ? std::sqrt(2 * depth(a)) : 1); }

Distribution gpt2_openai(const Architecture& a, const Param& p) {
  return with_plain_vectors(p, Distribution::normal(p.role == Role::position_embedding ? a.init_std / 2 : scaled_std(a, p)));
}

Distribution megatron(const Architecture& a, const Param& p) { return with_plain_vectors(p, Distribution::normal(scaled_std(a, p))); }

// tf.truncated_normal draws again beyond two parent standard deviations, and does not make up for the loss.
Distribution bert(const Architecture& a, const Param& p) { return with_plain_vectors(p, Distribution::truncated(a.init_std, 2)); }

void t5_adapt(Architecture& a) {
  a.attention_scale = 1;                                // the query's std carries the 1/sqrt(head_dim)
  if (a.tied) a.logit_scale = 1 / std::sqrt(width(a));  // a tied head reads the stream times d^(-1/2)
}

Distribution t5(const Architecture& a, const Param& p) {
  const double head_dim = number_of(a.head_dim);
  if (is_embedding(p) || p.role == Role::head) return Distribution::normal(1);
  return with_plain_vectors(p, Distribution::normal(1 / std::sqrt(number_of(p.fan_in) * (p.role == Role::query ? head_dim : 1))));
}

Distribution small_init_wang(const Architecture& a, const Param& p) {
  const double small = std::sqrt(2 / (5 * width(a)));
  return with_plain_vectors(p, Distribution::normal(writes_to_stream(p) ? 2 / (depth(a) * std::sqrt(width(a))) : small));
}

Distribution olmo_mitchell(const Architecture& a, const Param& p) {
  const double fan = p.role == Role::ffn_out ? number_of(p.fan_in) : width(a);
  return with_plain_vectors(p, Distribution::truncated(1 / std::sqrt(fan * (writes_to_stream(p) ? 2 * own_depth(p) : 1)), 3));
}

Distribution llama(const Architecture& a, const Param& p, bool scaled) {
  if (is_embedding(p)) return Distribution::normal(1);
  if (p.role == Role::head) return Distribution::truncated(1 / std::sqrt(width(a)), 3);
  return with_plain_vectors(p, Distribution::normal(a.init_std / (scaled ? std::sqrt(2 * own_depth(p)) : 1)));
}

Distribution llama_depth(const Architecture& a, const Param& p) { return llama(a, p, writes_to_stream(p)); }
Distribution torchtitan_llama(const Architecture& a, const Param& p) {
  return llama(a, p, writes_to_stream(p) || (a.gated && p.role == Role::ffn_in));
}

// std 0.02 with bounds of +-2: a hundred standard deviations.
Distribution timm_vit(const Architecture&, const Param& p) { return with_plain_vectors(p, Distribution::truncated(0.02, 100)); }

constexpr std::array depth_table = std::to_array<Scheme>({
    {"gpt2-openai", "as gpt2, positions with half the std", "openai/gpt-2: wte 0.02, wpe 0.01; Radford et al. 2019, section 2.3",
     gpt2_openai},
    {"megatron", "N(0, s^2), outputs of both branches divided by sqrt(2 layers), in every family",
     "Megatron-LM: init_method_normal, scaled_init_method_normal; also nanoGPT", megatron},
    {"bert", "N(0, s^2) cut at 2 s everywhere, so that the std is 0.88 s; no scaling by depth",
     "google-research/bert: truncated_normal_initializer", bert},
    {"t5", "1/sqrt(fan_in), queries 1/sqrt(d head_dim) with scores not divided by anything, embeddings N(0, 1)",
     "transformers 4.57, T5PreTrainedModel, factor 1", t5, t5_adapt, true},
    {"small-init+wang", "sqrt(2/(5 d)), outputs of both branches 2/(layers sqrt(d))",
     "Nguyen and Salazar 2019 and Wang and Komatsuzaki 2021; gpt-neox small_init and wang_init (Pythia up to 2.8B)", small_init_wang},
    {"olmo-mitchell", "1/sqrt(d), outputs 1/sqrt(2 fan (l + 1)) in layer l from 0; all cut at 3 parent std", "OLMo: InitFnType.mitchell",
     olmo_mitchell},
    {"llama-depth", "N(0, s^2), outputs of both branches divided by sqrt(2 (l + 1)); embeddings N(0, 1), head 1/sqrt(d) cut at 3 std",
     "OLMo-core llama_depth and torchtitan's Llama 3, with only the down projection of the FFN scaled", llama_depth},
    {"torchtitan-llama", "as llama-depth, and the up projection divided as well",
     "torchtitan Llama 3 as it is: w3 is scaled too (issue 3334)", torchtitan_llama},
    {"timm-vit", "N(0, 0.02^2): the truncation at +-2 is a hundred standard deviations away",
     "timm: init_weights_vit_timm, trunc_normal_(std=.02)", timm_vit},
});

}  // namespace

std::span<const Scheme> depth_schemes() { return depth_table; }

}  // namespace stepzero
