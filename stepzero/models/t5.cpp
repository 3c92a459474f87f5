// T5 (encoder and decoder) and ViT.
#include <cmath>

#include <fmt/format.h>

#include "stepzero/models/families.hpp"

namespace stepzero {

namespace {

Expected<Architecture> import_t5(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a;
  a.family = "t5";
  a.width = c.count({"d_model", "hidden_size"}, 512);
  a.layers = c.count({"num_layers", "num_hidden_layers"}, 6, 1, Architecture::most_layers);
  a.decoder_layers = c.count({"num_decoder_layers"}, a.layers, 1, Architecture::most_layers);
  a.heads = c.count({"num_heads", "num_attention_heads"}, 8);
  a.head_dim = c.count({"d_kv", "head_dim"}, 64);
  a.ffn = c.count({"d_ff"}, 2048);
  a.vocab = c.count({"vocab_size"}, 32128);
  a.relative_positions = c.count({"relative_attention_num_buckets"}, 32, 4, 1 << 20);
  a.relative_distance = c.count({"relative_attention_max_distance"}, 128);
  a.position = PositionKind::none;
  a.norm = NormKind::rmsnorm;
  a.norm_eps = c.number({"layer_norm_epsilon"}, 1e-6, 0);
  a.attention_scale = 1;
  a.attention_bias = a.attention_out_bias = a.mlp_bias = false;
  a.tied = c.flag({"tie_word_embeddings"}, true);
  if (a.tied) a.logit_scale = 1 / std::sqrt(static_cast<double>(a.width));
  a.init_std = c.number({"initializer_factor"}, 1, 0);
  std::string proj = c.text({"feed_forward_proj"}, "relu");
  a.gated = proj.starts_with("gated-");
  if (a.gated) proj = proj == "gated-gelu" ? "gelu_new" : proj.substr(6);
  const auto activation = parse_activation(proj);
  if (!activation) c.complain("feed_forward_proj", activation.error().message);
  a.activation = activation.value_or(a.activation);
  return finish(c, a);
}

constexpr TensorNames t5_decoder = {.token = "shared",
                                    .block = "decoder.block.{}.",
                                    .attn_norm = "layer.0.layer_norm",
                                    .q = "layer.0.SelfAttention.q",
                                    .k = "layer.0.SelfAttention.k",
                                    .v = "layer.0.SelfAttention.v",
                                    .attn_out = "layer.0.SelfAttention.o",
                                    .ffn_norm = "layer.2.layer_norm",
                                    .ffn_gate = "layer.2.DenseReluDense.wi_0",
                                    .ffn_in = "layer.2.DenseReluDense.wi_1",
                                    .ffn_out = "layer.2.DenseReluDense.wo",
                                    .final_norm = "decoder.final_layer_norm",
                                    .head = "lm_head",
                                    .relative = "layer.0.SelfAttention.relative_attention_bias",
                                    .cross_norm = "layer.1.layer_norm",
                                    .cross_q = "layer.1.EncDecAttention.q",
                                    .cross_k = "layer.1.EncDecAttention.k",
                                    .cross_v = "layer.1.EncDecAttention.v",
                                    .cross_out = "layer.1.EncDecAttention.o"};

constexpr TensorNames t5_encoder() {
  TensorNames n = t5_decoder;
  n.block = "encoder.block.{}.";
  n.ffn_norm = "layer.1.layer_norm";
  n.ffn_gate = "layer.1.DenseReluDense.wi_0";
  n.ffn_in = "layer.1.DenseReluDense.wi_1";
  n.ffn_out = "layer.1.DenseReluDense.wo";
  n.final_norm = "encoder.final_layer_norm";
  return n;
}
constexpr TensorNames t5_encoder_names = t5_encoder();

// Without a gate there is one matrix, and it has no number.
void rename_t5(const Architecture& a, TensorNames& names) {
  if (!a.gated) names.ffn_in.remove_suffix(2);
}

Expected<Architecture> import_vit(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = import_sizes(c, "vit", {768, 12, 12, 0, 0, 3072, 2, 1});
  a.image = c.count({"image_size"}, 224, 1, 1 << 16);
  a.patch = c.count({"patch_size"}, 16, 1, 1 << 16);
  a.colours = c.count({"num_channels"}, 3, 1, 1 << 16);
  a.attention_bias = c.flag({"qkv_bias"}, true);
  a.norm_eps = c.number({"layer_norm_eps"}, 1e-12, 0);
  a.causal = a.tied = false;
  a.head_bias = true;
  import_activation(c, a, "hidden_act", "gelu");
  const auto* labels = c.object("id2label");
  a.vocab = labels != nullptr && !labels->empty() ? static_cast<Index>(labels->size()) : c.count({"num_labels"}, 2);
  if (a.patch > a.image) c.complain("patch_size", fmt::format("{} is larger than the image of {}", a.patch, a.image));
  return finish(c, a);
}

constexpr TensorNames vit_names = {.position = "vit.embeddings.position_embeddings",
                                   .block = "vit.encoder.layer.{}.",
                                   .attn_norm = "layernorm_before",
                                   .q = "attention.attention.query",
                                   .k = "attention.attention.key",
                                   .v = "attention.attention.value",
                                   .attn_out = "attention.output.dense",
                                   .ffn_norm = "layernorm_after",
                                   .ffn_in = "intermediate.dense",
                                   .ffn_out = "output.dense",
                                   .final_norm = "vit.layernorm",
                                   .head = "classifier",
                                   .head_bias = "classifier.bias",
                                   .patches = "vit.embeddings.patch_embeddings.projection",
                                   .class_token = "vit.embeddings.cls_token"};

}  // namespace

const Family t5_family = {.model_type = "t5", .names = t5_decoder, .import = import_t5, .rename = rename_t5, .encoder = &t5_encoder_names};
const Family vit_family = {.model_type = "vit", .names = vit_names, .import = import_vit};

}  // namespace stepzero
