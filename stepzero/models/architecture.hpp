#pragma once
// The architecture description: what every family's config.json is lowered to and the graph is built from.
// 0 in a size or scale means "derived": `resolve` fills it in and checks that everything fits.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/core/view.hpp"

namespace stepzero {

enum class NormKind : std::uint8_t { layernorm, rmsnorm, none };
enum class NormPlacement : std::uint8_t { pre, post, sandwich, branch };
enum class PositionKind : std::uint8_t { learned, sinusoidal, none };
enum class Activation : std::uint8_t { identity, relu, relu2, sigmoid, tanh, silu, quick_gelu, gelu, gelu_tanh };

struct Architecture {
  std::string name;
  std::string family;

  static constexpr Index most_layers = 10000;
  Index layers = 12;
  Index width = 768;
  Index heads = 12;
  Index kv_heads = 0;  // heads
  Index head_dim = 0;  // width / heads
  Index ffn = 0;       // 4 width
  Index vocab = 50257;
  Index positions = 1024;

  PositionKind position = PositionKind::learned;
  static constexpr Index whole_head = -1;
  Index rotary = 0;  // channels of each head that turn; 0: none
  double rope_theta = 10000;
  bool causal = true;
  Index window = 0;  // 0: sees everything

  NormKind norm = NormKind::layernorm;
  double norm_eps = 1e-5;
  NormPlacement norm_placement = NormPlacement::pre;
  bool qk_norm = false;
  bool parallel_block = false;

  Activation activation = Activation::gelu_tanh;
  bool gated = false;
  bool attention_bias = true;
  bool mlp_bias = true;

  double attention_scale = 0;             // 1 / sqrt(head_dim)
  bool attention_scale_by_layer = false;  // further divided by the layer's number, from 1 (GPT-2's option)
  double attention_softcap = 0;           // 0: none
  double residual_scale = 1;
  double embedding_scale = 1;
  double logit_scale = 1;
  double logit_softcap = 0;  // 0: none
  bool tied = true;
  double dropout = 0;
  double init_std = 0.02;

  // What schemes change in the forward pass.
  double skip_scale = 1;                  // on the stream where a branch is added to it
  std::vector<std::string> changes = {};  // what a scheme has changed, as "field=value"
};

// Fills in derived sizes; says which field is wrong and what would fit.
Expected<void> resolve(Architecture& a);

// A field that --set can change.
struct Field {
  std::string_view name;
  std::string_view values;  // what it takes, in words
  Expected<void> (*set)(Architecture&, std::string_view value);
};
std::span<const Field> fields();

// "key=value"
Expected<void> set_field(Architecture& a, std::string_view assignment);

Expected<Activation> parse_activation(std::string_view name);
std::string_view to_string(Activation a);
std::string_view to_string(NormKind n);
std::string_view to_string(NormPlacement p);

}  // namespace stepzero
