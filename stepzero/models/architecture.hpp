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

enum class BranchGain : std::uint8_t { none, scalar, channel };

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
  double skip_scale = 1;                      // on the stream where a branch is added to it
  std::vector<double> skip_scales = {};       // one for each of the 2 layers branches; empty: skip_scale
  std::vector<double> residual_scales = {};   // likewise, on the branches; empty: residual_scale
  BranchGain branch_gain = BranchGain::none;  // a learned gain on every branch
  bool sub_norm = false;                      // a norm before the last matrix of every branch
  bool norm_scale_by_layer = false;           // norms before the branches of layer l, from 0, divided by sqrt(l + 1)
  bool unit_linear = false;                   // what enters a product divided by sqrt(fan_in)
  Index base_width = 256;                     // the model whose settings muP carries over
  Index base_layers = 2;
  std::vector<double> mixing = {};        // how much of a value's size attention leaves in each layer, as a scheme that asked was told
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
std::string_view to_string(BranchGain g);
std::string_view to_string(PositionKind p);

}  // namespace stepzero
