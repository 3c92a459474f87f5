// GPT-NeoX, BLOOM and Falcon: one tensor for queries, keys and values, head by head.
#include <cmath>

#include "stepzero/models/families.hpp"

namespace stepzero {

namespace {

Expected<Architecture> import_gpt_neox(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = import_sizes(c, "gpt_neox", {6144, 44, 64, 0, 0, 24576, 50432, 2048});
  a.kv_heads = a.head_dim = 0;  // no such keys here
  a.norm_eps = c.number({"layer_norm_eps"}, 1e-5, 0);
  a.parallel_block = c.flag({"use_parallel_residual"}, true);
  a.attention_bias = a.attention_out_bias = c.flag({"attention_bias"}, true);
  a.tied = c.flag({"tie_word_embeddings"}, false);
  import_activation(c, a, "hidden_act", "gelu");
  import_rope(c, a, {.fraction = 0.25, .partial = true});
  return finish(c, a);
}

Expected<Architecture> import_bloom(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a;
  a.family = "bloom";
  a.width = c.count({"hidden_size", "n_embed"}, 64);
  a.layers = c.count({"n_layer", "num_hidden_layers"}, 2, 1, Architecture::most_layers);
  a.heads = c.count({"n_head", "num_attention_heads"}, 8);
  a.vocab = c.count({"vocab_size"}, 250880);
  a.positions = c.count({"seq_length"}, Index{1} << 24);  // ALiBi has no end
  a.norm_eps = c.number({"layer_norm_epsilon"}, 1e-5, 0);
  a.init_std = c.number({"initializer_range"}, 0.02, 0);
  a.tied = c.flag({"tie_word_embeddings"}, true);
  a.residual_from_norm = c.flag({"apply_residual_connection_post_layernorm"}, false);
  a.position = PositionKind::none;
  a.alibi = 1;
  a.embedding_norm = true;
  a.activation = Activation::gelu_tanh;
  return finish(c, a);
}

// Two architectures under one name: the old with one key head (or as many as queries), the new with groups.
Expected<Architecture> import_falcon(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = import_sizes(c, "falcon", {4544, 32, 71, 0, 0, 0, 65024, 2048});
  a.width = c.count({"n_embed", "hidden_size"}, 4544);
  a.head_dim = 0;
  a.ffn = c.count({"ffn_hidden_size"}, 0);
  a.norm_eps = c.number({"layer_norm_epsilon"}, 1e-5, 0);
  a.tied = c.flag({"tie_word_embeddings"}, true);
  const bool grouped = c.flag({"new_decoder_architecture"}, false);
  const Index groups = c.count({"num_kv_heads"}, a.heads);
  a.kv_heads = grouped ? groups : c.flag({"multi_query"}, true) ? 1 : a.heads;
  a.parallel_block = c.flag({"parallel_attn"}, true);
  const Index norms = c.count({"num_ln_in_parallel_attn"}, grouped ? 2 : 1, 1, 2);
  a.shared_norm = norms == 1;
  if (grouped && !a.parallel_block) c.complain("parallel_attn", "false does not go with new_decoder_architecture");
  if (!grouped && norms == 2) c.complain("num_ln_in_parallel_attn", "2 needs new_decoder_architecture");
  a.attention_bias = a.attention_out_bias = a.mlp_bias = c.flag({"bias"}, false);
  import_activation(c, a, "activation", "gelu");
  import_rope(c, a);
  if (c.flag({"alibi"}, false)) {
    a.rotary = 0;
    // The class divides scores and biases by sqrt(head_dim) alike; where it shows its attention (eager), the bias is added
    // in the scores and again in the mask.
    a.alibi = 2 / std::sqrt(static_cast<double>(a.width) / static_cast<double>(a.heads));
  }
  return finish(c, a);
}

void rename_falcon(const Architecture& a, TensorNames& n) {
  if (a.parallel_block && !a.shared_norm) {
    n.attn_norm = "ln_attn";
    n.ffn_norm = "ln_mlp";
  }
}

constexpr TensorNames falcon_names = {.token = "transformer.word_embeddings",
                                      .token_type = "transformer.token_type_embeddings",
                                      .position = "transformer.position_embeddings",
                                      .embedding_norm = "transformer.word_embeddings_layernorm",
                                      .project_in = "transformer.project_in",
                                      .project_out = "transformer.project_out",
                                      .block = "transformer.h.{}.",
                                      .attn_norm = "input_layernorm",
                                      .qkv = "self_attention.query_key_value",
                                      .q = "self_attention.query",
                                      .k = "self_attention.key",
                                      .v = "self_attention.value",
                                      .q_norm = "self_attention.query_layernorm",
                                      .k_norm = "self_attention.key_layernorm",
                                      .attn_out = "self_attention.dense",
                                      .attn_post_norm = "post_self_attention_layernorm",
                                      .ffn_norm = "post_attention_layernorm",
                                      .ffn_gate_in = "mlp.gate_h_to_4h",
                                      .ffn_gate = "mlp.gate",
                                      .ffn_in = "mlp.dense_h_to_4h",
                                      .ffn_out = "mlp.dense_4h_to_h",
                                      .ffn_post_norm = "post_mlp_layernorm",
                                      .final_norm = "transformer.ln_f",
                                      .head_dense = "lm_head.dense",
                                      .head_norm = "lm_head.layer_norm",
                                      .head = "lm_head",
                                      .head_bias = "lm_head.bias",
                                      .fused_qkv = FusedQkv::groups,
                                      .optional_prefix = "transformer."};

constexpr TensorNames gpt_neox_names() {
  TensorNames n = falcon_names;
  n.token = "gpt_neox.embed_in";
  n.token_type = "gpt_neox.embed_types";
  n.position = "gpt_neox.embed_positions";
  n.embedding_norm = "gpt_neox.embed_layernorm";
  n.project_in = "gpt_neox.project_in";
  n.project_out = "gpt_neox.project_out";
  n.block = "gpt_neox.layers.{}.";
  n.qkv = "attention.query_key_value";
  n.q_norm = "attention.query_layernorm";
  n.k_norm = "attention.key_layernorm";
  n.attn_out = "attention.dense";
  n.final_norm = "gpt_neox.final_layer_norm";
  n.head = "embed_out";
  n.head_bias = "embed_out.bias";
  n.optional_prefix = "gpt_neox.";
  return n;
}

}  // namespace

const Family gpt_neox_family = {.model_type = "gpt_neox", .names = gpt_neox_names(), .import = import_gpt_neox};
const Family bloom_family = {.model_type = "bloom", .names = falcon_names, .import = import_bloom};
const Family falcon_family = {.model_type = "falcon", .names = falcon_names, .import = import_falcon, .rename = rename_falcon};

}  // namespace stepzero
