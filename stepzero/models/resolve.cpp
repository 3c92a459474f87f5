// What an architecture description leaves to be derived, and whether it fits together.
#include <cmath>

#include <fmt/format.h>

#include "stepzero/models/build_cnn.hpp"
#include "stepzero/models/family.hpp"
#include "stepzero/models/own_file.hpp"

namespace stepzero {

namespace {

// In doubles, so that nothing overflows before it is refused.
double parameters_about(const Architecture& a) {
  const auto n = [](Index size) { return static_cast<double>(size); };
  const double tables = n(a.vocab) * n(a.embedding_width) * (a.tied ? 1 : 2) + n(a.width) * n(a.embedding_width) +
                        (n(a.position == PositionKind::learned ? a.positions : 0) + n(a.position_offset) + n(a.token_types)) * n(a.width) +
                        n(a.relative_positions) * n(a.heads) + n(a.width) * n(a.colours) * n(a.patch) * n(a.patch);
  const double attention = n(a.heads + a.kv_heads) * 2 * n(a.head_dim) + n(a.heads) * n(a.value_dim);
  const double latent = (n(a.query_rank) + n(a.key_value_rank)) * (n(a.width) + n(a.heads) * n(a.key_dim + a.key_rope_dim + a.value_dim));
  const double branch = (a.gated ? 3 : 2) * n(a.ffn) + 3 * n(a.experts + a.shared_experts) * n(a.expert_ffn);
  return tables + n(a.layers + 2 * a.decoder_layers) * (n(a.width) * (attention + branch) + latent);
}

Expected<void> resolve_experts(Architecture& a) {
  if (a.expert_ffn == 0) a.expert_ffn = a.ffn;
  if (a.experts == 0) return {};
  if (a.decoder_layers > 0) return fail("an encoder-decoder has no experts");
  if (a.experts * a.layers > 1'000'000)
    return fail(fmt::format("{} layers of {} experts are more than a million experts", a.layers, a.experts));
  if (a.sub_norm || a.unit_linear || a.mlp_bias) {
    return fail(fmt::format("{} has no place inside experts", a.sub_norm ? "sub_norm" : a.unit_linear ? "unit_linear" : "mlp_bias"));
  }
  return {};
}

}  // namespace

Expected<void> resolve(Architecture& a) {
  if (a.own) return resolve_own(a);
  if (a.family == "cnn") return resolve_cnn(a);
  if (!a.stages.empty() || a.norm == NormKind::batchnorm) {
    return fail(fmt::format("family {} has no {}", a.family, a.stages.empty() ? "batchnorm" : "stages of convolutions"));
  }
  const Family* family = find_family(a.family);
  if ((a.experts > 0 || a.key_value_rank > 0) && family != nullptr && family->names.router.empty()) {
    return fail(fmt::format("family {} knows no experts and no latent attention", a.family));
  }
  if (a.key_value_rank > 0) {  // latent attention
    if (a.key_dim < 1 || a.key_rope_dim < 1 || a.value_dim < 1) return fail("latent attention needs key_dim, key_rope_dim and value_dim");
    a.head_dim = a.key_dim + a.key_rope_dim;
    a.rotary = a.key_rope_dim;
    a.kv_heads = a.heads;
  }
  if (a.kv_heads == 0) a.kv_heads = a.heads;
  if (a.ffn == 0) a.ffn = 4 * a.width;
  if (a.head_dim == 0) {
    if (a.width % a.heads != 0) {
      return fail(fmt::format("heads = {} does not divide width = {}", a.heads, a.width),
                  "choose heads that divide the width, or set head_dim as well");
    }
    a.head_dim = a.width / a.heads;
  }
  if (a.heads % a.kv_heads != 0) {
    return fail(fmt::format("kv_heads = {} does not divide heads = {}", a.kv_heads, a.heads));
  }
  if (a.parallel_block && a.norm_placement != NormPlacement::pre) {
    return fail(fmt::format("norm_placement = {} has no meaning in a parallel block", to_string(a.norm_placement)),
                "set parallel_block=false or norm_placement=pre");
  }
  if (auto done = resolve_experts(a); !done) return done;
  if (a.decoder_layers > 0 && (family == nullptr || family->encoder == nullptr)) {
    return fail(fmt::format("decoder_layers = {}, and family {} has no encoder", a.decoder_layers, a.family));
  }
  if (a.decoder_layers > a.layers && !(a.skip_scales.empty() && a.residual_scales.empty())) {
    return fail("skip_scales and residual_scales need an encoder as deep as the decoder");
  }
  if (a.relative_positions > 0 && (a.relative_positions < 4 || 2 * a.relative_distance <= a.relative_positions)) {
    return fail(fmt::format("relative_positions = {} must be at least 4 and less than twice relative_distance = {}", a.relative_positions,
                            a.relative_distance));
  }
  if (a.image > 0) {
    if (a.patch < 1 || a.patch > a.image) return fail(fmt::format("patch = {} must be from 1 to image = {}", a.patch, a.image));
    a.positions = (a.image / a.patch) * (a.image / a.patch) + 1;  // a class token and the patches
  }
  if (a.embedding_width == 0) a.embedding_width = a.width;
  if (a.embedding_scale == 0) a.embedding_scale = std::sqrt(static_cast<double>(a.width));
  if (a.padding >= a.vocab) a.padding = Architecture::no_padding;
  if (a.residual_from_norm && a.norm_placement != NormPlacement::pre) {
    return fail(fmt::format("residual_from_norm has no meaning with norm_placement = {}", to_string(a.norm_placement)));
  }
  for (const auto* list : {&a.skip_scales, &a.residual_scales}) {
    if (list->empty() || static_cast<Index>(list->size()) == 2 * a.layers) continue;
    return fail(fmt::format("{} has {} numbers, {} layers need {}", list == &a.skip_scales ? "skip_scales" : "residual_scales",
                            list->size(), a.layers, 2 * a.layers));
  }
  if (a.rotary == Architecture::whole_head) a.rotary = static_cast<Index>(static_cast<double>(a.head_dim) * a.rotary_fraction);
  if (a.rotary % 2 != 0 || a.rotary > a.head_dim) {
    return fail(fmt::format("rotary = {} must be even and at most head_dim = {}", a.rotary, a.head_dim));
  }
  if (a.rope_original_positions == 0) a.rope_original_positions = a.positions;
  for (const auto* list : {&a.rope_short, &a.rope_long}) {
    if (a.rope_scaling == RopeScaling::longrope && a.rotary > 0 && static_cast<Index>(list->size()) != a.rotary / 2) {
      return fail(fmt::format("longrope needs {} factors, one for each pair of turned channels, and has {}", a.rotary / 2, list->size()));
    }
  }
  if (a.attention_scale == 0) a.attention_scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
  const double parameters = parameters_about(a);
  if (!(parameters <= 1e13)) {
    return fail(fmt::format("this description has about {:.1e} parameters, {:.0f} TB in float32; the limit is 1e13", parameters,
                            parameters * 4e-12));
  }
  return {};
}

}  // namespace stepzero
