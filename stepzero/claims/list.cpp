#include "stepzero/claims/list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"

namespace stepzero::claims {

std::span<const Claim> all() {
  static const std::vector<Claim> list = {
      product_variance(),
      frobenius_products(),
      score_moments(),
      linear_preservation(),
      xavier_normal(),
      xavier_uniform(),
      he_relu(),
      relu_half(),
      attention_uniform(),
      softmax_variance(),
      temperature(),
      multihead_variance(),
      pe_norm(),
      pe_orthogonal(),
      pe_formula(),
      ln_scale(),
      ffn_frobenius(),
      zero_bias(),
      residual_depth(),
      residual_alpha(),
      identity_attention(),
      lr_decay(),
      gradient_bound(),
      forward_flow(),
      backward_flow(),
      key_bias(),
  };
  return list;
}

Expected<const Claim*> find(std::string_view id) {
  std::vector<std::string> known;
  for (const Claim& claim : all()) {
    if (claim.id == id) return &claim;
    known.emplace_back(claim.id);
  }
  const std::string near = closest(id, known);
  return fail(fmt::format("unknown claim \"{}\"{}", show(id), near.empty() ? "" : fmt::format("; did you mean {}?", near)),
              fmt::format("claims are {}", fmt::join(known, ", ")));
}

}  // namespace stepzero::claims
