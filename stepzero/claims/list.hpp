#pragma once
// All claims, in the order of the documents. To add one: a file, a line here and a line in list.cpp.
#include <span>

#include "stepzero/claims/claim.hpp"

namespace stepzero::claims {

Claim product_variance();
Claim frobenius_products();
Claim score_moments();
Claim linear_preservation();
Claim xavier_normal();
Claim xavier_uniform();
Claim he_relu();
Claim relu_half();
Claim attention_uniform();
Claim softmax_variance();
Claim temperature();
Claim multihead_variance();
Claim pe_norm();
Claim pe_orthogonal();
Claim pe_formula();
Claim ln_scale();
Claim ffn_frobenius();
Claim zero_bias();
Claim residual_depth();
Claim residual_alpha();
Claim identity_attention();
Claim lr_decay();
Claim gradient_bound();
Claim forward_flow();
Claim backward_flow();
Claim key_bias();

std::span<const Claim> all();
Expected<const Claim*> find(std::string_view id);

}  // namespace stepzero::claims
