// GPT-2 and GPT-J: n_embd, n_layer, n_head.
#include "stepzero/models/families.hpp"

namespace stepzero {

namespace {

Architecture gpt_like(ConfigReader& c, std::string_view family, const Sizes& d) {
  Architecture a;
  a.family = family;
  a.width = c.count({"n_embd", "hidden_size"}, d.width);
  a.layers = c.count({"n_layer", "num_hidden_layers"}, d.layers, 1, Architecture::most_layers);
  a.heads = c.count({"n_head", "num_attention_heads"}, d.heads);
  a.ffn = c.count({"n_inner"}, 0);
  a.vocab = c.count({"vocab_size"}, d.vocab);
  a.positions = c.count({"n_positions", "n_ctx", "max_position_embeddings"}, d.positions);
  a.norm_eps = c.number({"layer_norm_epsilon"}, 1e-5, 0);
  a.init_std = c.number({"initializer_range"}, 0.02, 0);
  import_activation(c, a, "activation_function", "gelu_new");
  return a;
}

Expected<Architecture> import_gpt2(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = gpt_like(c, "gpt2", {768, 12, 12, 0, 0, 0, 50257, 1024});
  a.tied = c.flag({"tie_word_embeddings"}, true);
  a.attention_scale_by_layer = c.flag({"scale_attn_by_inverse_layer_idx"}, false);
  if (!c.flag({"scale_attn_weights"}, true)) a.attention_scale = 1;
  if (c.flag({"add_cross_attention"}, false)) c.complain("add_cross_attention", "cross-attention is not supported");
  return finish(c, a);
}

Expected<Architecture> import_gptj(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = gpt_like(c, "gptj", {4096, 28, 16, 0, 0, 0, 50400, 2048});
  a.tied = c.flag({"tie_word_embeddings"}, false);
  a.position = PositionKind::none;
  if (c.is_null("rotary_dim")) c.complain("rotary_dim", "must be a number: the class itself cannot run without");
  a.rotary = c.count({"rotary_dim"}, 64);
  a.rotary_interleaved = true;
  a.parallel_block = a.shared_norm = true;
  a.attention_bias = a.attention_out_bias = false;
  a.head_bias = true;
  return finish(c, a);
}

constexpr TensorNames gpt2_names = {.token = "transformer.wte",
                                    .token_type = "transformer.wtt",
                                    .position = "transformer.wpe",
                                    .embedding_norm = "transformer.ln_e",
                                    .project_in = "transformer.project_in",
                                    .project_out = "transformer.project_out",
                                    .block = "transformer.h.{}.",
                                    .attn_norm = "ln_1",
                                    .qkv = "attn.c_attn",
                                    .q = "attn.q",
                                    .k = "attn.k",
                                    .v = "attn.v",
                                    .q_norm = "attn.q_norm",
                                    .k_norm = "attn.k_norm",
                                    .attn_out = "attn.c_proj",
                                    .attn_post_norm = "ln_1_post",
                                    .ffn_norm = "ln_2",
                                    .ffn_gate_in = "mlp.c_gate_fc",
                                    .ffn_gate = "mlp.c_gate",
                                    .ffn_in = "mlp.c_fc",
                                    .ffn_out = "mlp.c_proj",
                                    .ffn_post_norm = "ln_2_post",
                                    .final_norm = "transformer.ln_f",
                                    .head_dense = "lm_head.dense",
                                    .head_norm = "lm_head.layer_norm",
                                    .head = "lm_head",
                                    .head_bias = "lm_head.bias",
                                    .fused_qkv = FusedQkv::blocks,
                                    .in_out = true,
                                    .optional_prefix = "transformer."};

constexpr TensorNames gptj_names() {
  TensorNames n = gpt2_names;
  n.fused_qkv = FusedQkv::none;
  n.in_out = false;
  n.q = "attn.q_proj";
  n.k = "attn.k_proj";
  n.v = "attn.v_proj";
  n.attn_out = "attn.out_proj";
  n.ffn_in = "mlp.fc_in";
  n.ffn_out = "mlp.fc_out";
  return n;
}

}  // namespace

const Family gpt2_family = {.model_type = "gpt2", .names = gpt2_names, .import = import_gpt2};
const Family gptj_family = {.model_type = "gptj", .names = gptj_names(), .import = import_gptj};

}  // namespace stepzero
