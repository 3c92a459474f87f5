// OPT and Phi: LLaMA's names for the projections, GPT's plain block.
#include "stepzero/models/families.hpp"

namespace stepzero {

namespace {

Expected<Architecture> import_opt(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = import_sizes(c, "opt", {768, 12, 12, 0, 0, 3072, 50272, 2048});
  a.kv_heads = a.head_dim = 0;
  a.ffn = c.count({"ffn_dim"}, 3072);
  a.init_std = c.number({"init_std"}, 0.02, 0);
  a.embedding_width = c.count({"word_embed_proj_dim"}, 0);
  a.position_offset = 2;
  a.norm_eps = 1e-5;
  a.norm_gain = a.norm_bias = c.flag({"layer_norm_elementwise_affine"}, true);
  a.norm_placement = c.flag({"do_layer_norm_before"}, true) ? NormPlacement::pre : NormPlacement::post;
  a.final_norm = !c.flag({"_remove_final_layer_norm"}, false);
  a.attention_bias = a.attention_out_bias = a.mlp_bias = c.flag({"enable_bias"}, true);
  a.tied = c.flag({"tie_word_embeddings"}, true);
  import_activation(c, a, "activation_function", "relu");
  import_padding(c, a, 1);
  return finish(c, a);
}

Expected<Architecture> import_phi(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = import_sizes(c, "phi", {2048, 24, 32, 0, 0, 8192, 51200, 2048});
  a.norm_eps = c.number({"layer_norm_eps"}, 1e-5, 0);
  a.parallel_block = a.shared_norm = true;
  a.head_bias = true;
  a.tied = c.flag({"tie_word_embeddings"}, false);
  if (c.flag({"qk_layernorm"}, false)) {
    a.qk_norm = QkNorm::head;
    a.qk_norm_bias = true;
  }
  import_activation(c, a, "hidden_act", "gelu_new");
  import_rope(c, a, {.fraction = 0.5, .partial = true});
  import_padding(c, a);
  return finish(c, a);
}

constexpr TensorNames opt_names() {
  TensorNames n = llama_names;
  n.token = "model.decoder.embed_tokens";
  n.token_type = "model.decoder.embed_types";
  n.position = "model.decoder.embed_positions";
  n.embedding_norm = "model.decoder.embed_layer_norm";
  n.project_in = "model.decoder.project_in";
  n.project_out = "model.decoder.project_out";
  n.block = "model.decoder.layers.{}.";
  n.attn_norm = "self_attn_layer_norm";
  n.attn_out = "self_attn.out_proj";
  n.ffn_norm = "final_layer_norm";
  n.ffn_gate = "fc_gate";
  n.ffn_in = "fc1";
  n.ffn_out = "fc2";
  n.final_norm = "model.decoder.final_layer_norm";
  return n;
}

constexpr TensorNames phi_names() {
  TensorNames n = llama_names;
  n.attn_out = "self_attn.dense";
  n.q_norm = "self_attn.q_layernorm";
  n.k_norm = "self_attn.k_layernorm";
  n.ffn_in = "mlp.fc1";
  n.ffn_out = "mlp.fc2";
  n.final_norm = "model.final_layernorm";
  return n;
}

}  // namespace

const Family opt_family = {.model_type = "opt", .names = opt_names(), .import = import_opt};
const Family phi_family = {.model_type = "phi", .names = phi_names(), .import = import_phi};

}  // namespace stepzero
