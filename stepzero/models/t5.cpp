// T5 (encoder and decoder) and ViT. Tensors only.
#include <fmt/format.h>

#include "stepzero/models/families.hpp"
#include "stepzero/models/tensor_list.hpp"

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
  a.relative_positions = c.count({"relative_attention_num_buckets"}, 32);
  a.position = PositionKind::none;
  a.norm = NormKind::rmsnorm;
  a.norm_eps = c.number({"layer_norm_epsilon"}, 1e-6, 0);
  a.attention_scale = 1;
  a.attention_bias = a.attention_out_bias = a.mlp_bias = false;
  a.tied = c.flag({"tie_word_embeddings"}, true);
  a.init_std = c.number({"initializer_factor"}, 1, 0);
  std::string proj = c.text({"feed_forward_proj"}, "relu");
  a.gated = proj.starts_with("gated-");
  if (a.gated) proj = proj == "gated-gelu" ? "gelu_new" : proj.substr(6);
  const auto activation = parse_activation(proj);
  if (!activation) c.complain("feed_forward_proj", activation.error().message);
  a.activation = activation.value_or(a.activation);
  return finish(c, a);
}

void t5_attention(TensorList& list, const Architecture& a, const std::string& stem, int l) {
  const Index inner = a.heads * a.head_dim;
  list.matrix(stem + ".q", a.width, inner, Role::query, l);
  list.matrix(stem + ".k", a.width, inner, Role::key, l);
  list.matrix(stem + ".v", a.width, inner, Role::value, l);
  list.matrix(stem + ".o", inner, a.width, Role::attention_out, l);
}

void t5_stack(TensorList& list, const Architecture& a, const std::string& name, Index layers, bool cross) {
  for (int l = 0; l < static_cast<int>(layers); ++l) {
    int part = 0;
    const auto layer = [&] { return fmt::format("{}.block.{}.layer.{}", name, l, part); };
    t5_attention(list, a, layer() + ".SelfAttention", l);
    if (l == 0)
      list.table(layer() + ".SelfAttention.relative_attention_bias.weight", a.relative_positions, a.heads, Role::position_embedding);
    list.norm(layer() + ".layer_norm", a.width, l);
    if (cross) {
      ++part;
      t5_attention(list, a, layer() + ".EncDecAttention", l);
      list.norm(layer() + ".layer_norm", a.width, l);
    }
    ++part;
    const std::string at = layer() + ".DenseReluDense.";
    if (a.gated) list.matrix(at + "wi_0", a.width, a.ffn, Role::ffn_gate, l);
    list.matrix(at + (a.gated ? "wi_1" : "wi"), a.width, a.ffn, Role::ffn_in, l);
    list.matrix(at + "wo", a.ffn, a.width, Role::ffn_out, l);
    list.norm(layer() + ".layer_norm", a.width, l);
  }
  list.norm(name + ".final_layer_norm", a.width);
}

Graph t5_tensors(const Architecture& a) {
  TensorList list;
  list.table("shared.weight", a.vocab, a.width, Role::token_embedding);
  t5_stack(list, a, "encoder", a.layers, false);
  t5_stack(list, a, "decoder", a.decoder_layers, true);
  if (!a.tied) list.matrix("lm_head", a.width, a.vocab, Role::head);
  return list.take();
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
  const Index side = a.image / a.patch;
  a.positions = side * side + 1;
  return finish(c, a);
}

Graph vit_tensors(const Architecture& a) {
  TensorList list;
  const Index inputs = a.colours * a.patch * a.patch;
  list.add({"vit.embeddings.cls_token", {1, 1, a.width}, Role::position_embedding, -1, 1, a.width});
  list.add({"vit.embeddings.position_embeddings", {1, a.positions, a.width}, Role::position_embedding, -1, a.positions, a.width});
  list.add(
      {"vit.embeddings.patch_embeddings.projection.weight", {a.width, a.colours, a.patch, a.patch}, Role::projection, -1, inputs, a.width});
  list.vector("vit.embeddings.patch_embeddings.projection.bias", a.width, Role::bias);
  const Index inner = a.heads * a.head_dim;
  for (int l = 0; l < static_cast<int>(a.layers); ++l) {
    const std::string at = fmt::format("vit.encoder.layer.{}.", l);
    list.norm(at + "layernorm_before", a.width, l, true);
    list.matrix(at + "attention.attention.query", a.width, inner, Role::query, l, a.attention_bias);
    list.matrix(at + "attention.attention.key", a.width, inner, Role::key, l, a.attention_bias);
    list.matrix(at + "attention.attention.value", a.width, inner, Role::value, l, a.attention_bias);
    list.matrix(at + "attention.output.dense", inner, a.width, Role::attention_out, l, true);
    list.norm(at + "layernorm_after", a.width, l, true);
    list.matrix(at + "intermediate.dense", a.width, a.ffn, Role::ffn_in, l, true);
    list.matrix(at + "output.dense", a.ffn, a.width, Role::ffn_out, l, true);
  }
  list.norm("vit.layernorm", a.width, -1, true);
  list.matrix("classifier", a.width, a.vocab, Role::head, -1, true);
  return list.take();
}

}  // namespace

const Family t5_family = {.model_type = "t5", .names = llama_names, .import = import_t5, .tensors = t5_tensors};
const Family vit_family = {.model_type = "vit", .names = llama_names, .import = import_vit, .tensors = vit_tensors};

}  // namespace stepzero
