// Schemes that change what is added to the stream, or how: each also changes the architecture.
#include <algorithm>
#include <array>

#include "stepzero/schemes/rules.hpp"

namespace stepzero {

namespace {

// Value, output and feed-forward matrices: what DeepNet, Sub-LN and T-Fixup scale. Query and key only move the scores.
bool carries_signal(const Param& p) { return p.role == Role::value || p.role == Role::attention_out || is_feed_forward(p); }

Distribution embedding_or(const Architecture& a, const Param& p, Distribution matrix) {
  const bool table = is_embedding(p) || p.role == Role::head;
  return with_plain_vectors(p, table ? Distribution::normal(1 / std::sqrt(number_of(a.width))) : matrix);
}

// Embeddings of std 1/sqrt(d), looked up times sqrt(d): what enters the first block has unit size, a tied head gives
// logits of unit size.
void unit_embeddings(Architecture& a) { a.embedding_scale = std::sqrt(number_of(a.width)); }

// ---- DeepNet: x <- norm(alpha x + f(x)); the constants of encoder-only and decoder-only models

void deepnet_adapt(Architecture& a) {
  a.norm_placement = NormPlacement::post;
  a.skip_scale = std::pow(2 * depth(a), 0.25);
  unit_embeddings(a);
}

Distribution deepnet(const Architecture& a, const Param& p) {
  const double beta = std::pow(8 * depth(a), -0.25);
  return embedding_or(a, p, Distribution::normal((carries_signal(p) ? beta : 1) * xavier_std(p)));
}

// ---- Sub-LN: a second norm inside each branch

void sub_ln_adapt(Architecture& a) {
  a.norm_placement = NormPlacement::pre;
  a.sub_norm = true;
  unit_embeddings(a);
}

Distribution sub_ln(const Architecture& a, const Param& p) {
  const double gamma = std::sqrt(std::log(2 * depth(a)));
  return embedding_or(a, p, Distribution::normal((carries_signal(p) ? gamma : 1) * xavier_std(p)));
}

// ---- T-Fixup: no norms

void no_norms(Architecture& a) {
  a.norm = NormKind::none;
  a.qk_norm = QkNorm::none;
  a.norm_placement = NormPlacement::pre;
}

Distribution t_fixup(const Architecture& a, const Param& p) {
  const double decoder = std::pow(9 * depth(a), -0.25);
  const double scale = a.causal ? decoder : 0.67 * std::pow(depth(a), -0.25);
  if (is_embedding(p)) return Distribution::normal(decoder / std::sqrt(number_of(a.width)));
  return embedding_or(a, p, Distribution::normal((carries_signal(p) ? scale : 1) * xavier_std(p)));
}

// ---- Fixup: no norms, branches of two matrices that begin with He / sqrt(branches) and end with 0, a learned scale

void fixup_adapt(Architecture& a) {
  no_norms(a);
  a.branch_gain = BranchGain::scalar;
}

Distribution fixup(const Architecture& a, const Param& p) {
  if (writes_to_stream(p) || p.role == Role::head) return Distribution::constant(0);
  const bool first = p.role == Role::value || p.role == Role::ffn_in || p.role == Role::ffn_gate;
  const double he = std::sqrt(2 / number_of(p.fan_in));
  return embedding_or(a, p, Distribution::normal(first ? he / std::sqrt(2 * depth(a)) : xavier_std(p)));
}

// ---- ReZero, SkipInit, LayerScale: a learned gain on every branch

void rezero_adapt(Architecture& a) {
  no_norms(a);
  a.branch_gain = BranchGain::scalar;
}

Distribution rezero(const Architecture& a, const Param& p) {
  if (p.role == Role::branch_gain) return Distribution::constant(0);
  return embedding_or(a, p, Distribution::normal(xavier_std(p)));
}

void skipinit_adapt(Architecture& a) { a.branch_gain = BranchGain::scalar; }

Distribution skipinit(const Architecture& a, const Param& p) {
  if (p.role == Role::branch_gain) return Distribution::constant(0);
  return with_plain_vectors(p, Distribution::normal(a.init_std));
}

void layerscale_adapt(Architecture& a) { a.branch_gain = BranchGain::channel; }

Distribution layerscale(const Architecture& a, const Param& p) {
  if (p.role == Role::branch_gain) return Distribution::constant(a.layers <= 18 ? 0.1 : a.layers <= 24 ? 1e-5 : 1e-6);
  return with_plain_vectors(p, Distribution::truncated(0.02, 100));
}

// ---- LNS: the deeper the layer, the less its norms let through

void lns_adapt(Architecture& a) { a.norm_scale_by_layer = true; }
Distribution lns(const Architecture& a, const Param& p) { return with_plain_vectors(p, Distribution::normal(a.init_std)); }

// ---- Admin: post-norm, the stream times omega; omega^2 of a branch is the variance of all before it

void admin_adapt(Architecture& a) {
  a.norm_placement = NormPlacement::post;
  unit_embeddings(a);
}

void admin_learn(Architecture& a, const Profile& profile) {
  double before = 1;  // what the embeddings bring
  a.skip_scales.clear();
  for (const double variance : profile.branch_variances) {
    a.skip_scales.push_back(std::sqrt(before));
    before += variance;
  }
}

Distribution admin(const Architecture& a, const Param& p) { return embedding_or(a, p, Distribution::normal(xavier_std(p))); }

// ---- DeepScaleLM: lambda x + beta f with lambda^2 + beta^2 = 1 and branches of unit size

void deepscalelm_adapt(Architecture& a) {
  const double beta = std::min(2 / depth(a), 0.5);  // squared; the paper's models are deep
  a.residual_scale = std::sqrt(beta);
  a.skip_scale = std::sqrt(1 - beta);
  unit_embeddings(a);
}

void deepscalelm_learn(Architecture& a, const Profile& profile) { a.mixing = profile.mixing; }

Distribution deepscalelm(const Architecture& a, const Param& p) {
  const double kept = 1 - a.dropout;
  const double d = number_of(a.width);
  const double mixing = a.mixing.empty() || p.layer < 0 ? 1 : std::max(a.mixing[static_cast<std::size_t>(p.layer)], 1e-3);
  if (p.role == Role::value || p.role == Role::attention_out) {
    return Distribution::normal(std::pow(kept / (mixing * d * number_of(a.heads * a.head_dim)), 0.25));
  }
  if (is_feed_forward(p)) return Distribution::normal(std::pow(2 * kept / (d * number_of(a.ffn)), 0.25));
  return embedding_or(a, p, Distribution::normal(1 / std::sqrt(number_of(p.fan_in))));
}

// ---- source document 003: Xavier, gains 1/sqrt(d), branches times 0.1

void source_003_adapt(Architecture& a) { a.residual_scale = 0.1; }

Distribution source_003(const Architecture& a, const Param& p) {
  if (p.role == Role::gain) return Distribution::constant(1 / std::sqrt(number_of(a.width)));
  return with_plain_vectors(p, Distribution::normal(is_embedding(p) ? a.init_std : xavier_std(p)));
}

// Its other advice: ||W1|| ||W2|| = 1 in the feed-forward part, branches times 1/sqrt(layers).
void source_003_frobenius_adapt(Architecture& a) { a.residual_scale = 1 / std::sqrt(depth(a)); }

Distribution source_003_frobenius(const Architecture& a, const Param& p) {
  if (is_feed_forward(p)) return Distribution::normal(1 / std::sqrt(number_of(p.fan_in) * number_of(p.fan_out)));
  return source_003(a, p);
}

constexpr std::array residual_table = std::to_array<Scheme>({
    {.name = "deepnet",
     .summary = "post-norm, x <- norm(a x + f(x)) with a = (2 layers)^(1/4); Xavier, times (8 layers)^(-1/4) in value, output and FFN",
     .source = "Wang et al. 2022, DeepNet: Scaling Transformers to 1,000 Layers; embeddings as in torchscale",
     .assign = deepnet,
     .adapt = deepnet_adapt,
     .by_part = true},
    {.name = "sub-ln",
     .summary =
         "pre-norm with another norm before the last matrix of each branch; Xavier, times sqrt(ln(2 layers)) in value, output and FFN",
     .source = "Wang et al. 2022, Foundation Transformers (Magneto)",
     .assign = sub_ln,
     .adapt = sub_ln_adapt,
     .by_part = true},
    {.name = "t-fixup",
     .summary = "no norms; Xavier, times (9 layers)^(-1/4) in value, output, FFN (encoders: 0.67 layers^(-1/4)) and embeddings",
     .source = "Huang et al. 2020, Improving Transformer Optimization Through Better Initialization",
     .assign = t_fixup,
     .adapt = no_norms,
     .by_part = true},
    {.name = "fixup",
     .summary = "no norms; branches begin with He / sqrt(2 layers), end with 0 and a learned scale of 1; head 0",
     .source = "Zhang, Dauphin and Ma 2019; its scalar biases, 0 at first, are left out",
     .assign = fixup,
     .adapt = fixup_adapt,
     .by_part = true},
    {.name = "rezero",
     .summary = "no norms, a learned gain of 0 on every branch; Xavier",
     .source = "Bachlechner et al. 2020, ReZero is All You Need",
     .assign = rezero,
     .adapt = rezero_adapt,
     .by_part = true},
    {.name = "skipinit",
     .summary = "a learned gain of 0 on every branch, norms stay; N(0, s^2)",
     .source = "De and Smith 2020, Batch Normalization Biases Residual Blocks Towards the Identity Function",
     .assign = skipinit,
     .adapt = skipinit_adapt},
    {.name = "layerscale",
     .summary = "a learned gain for each channel of every branch: 0.1 up to 18 layers, 1e-5 up to 24, 1e-6 beyond; N(0, 0.02^2)",
     .source = "Touvron et al. 2021, Going deeper with Image Transformers (CaiT)",
     .assign = layerscale,
     .adapt = layerscale_adapt},
    {.name = "lns",
     .summary = "N(0, s^2), norms before the branches of layer l, from 1, divided by sqrt(l)",
     .source = "Sun et al. 2025, The Curse of Depth in Large Language Models",
     .assign = lns,
     .adapt = lns_adapt},
    {.name = "admin",
     .summary = "post-norm, x <- norm(w x + f(x)) with w^2 the variance of the embedding and all branches before; Xavier",
     .source = "Liu et al. 2020, Understanding the Difficulty of Training Transformers; variances by theory, on 128 zipf tokens",
     .assign = admin,
     .adapt = admin_adapt,
     .by_part = true,
     .learn = admin_learn},
    {.name = "deepscalelm",
     .summary =
         "x <- l x + b f(x), b^2 = 2/layers, l^2 = 1 - b^2; matrices that give every branch unit size, by how much attention averages",
     .source = "Kedia et al. 2024, Transformers Get Stable (DSLM); what attention leaves of a value by theory, on 128 zipf tokens",
     .assign = deepscalelm,
     .adapt = deepscalelm_adapt,
     .by_part = true,
     .learn = deepscalelm_learn},
    {.name = "source-003",
     .summary = "Xavier, gains of norms 1/sqrt(d), branches times 0.1",
     .source = "the source document 003 (Mathematical Analysis of Transformer Initialization)",
     .assign = source_003,
     .adapt = source_003_adapt,
     .by_part = true},
    {.name = "source-003-frobenius",
     .summary = "as source-003, with ||W1|| ||W2|| = 1 in the FFN and branches times 1/sqrt(layers)",
     .source = "the source document 003, its feed-forward advice",
     .assign = source_003_frobenius,
     .adapt = source_003_frobenius_adapt,
     .by_part = true},
});

}  // namespace

std::span<const Scheme> residual_schemes() { return residual_table; }

}  // namespace stepzero
