#pragma once
// The families, and what their readers of config.json share.
#include "stepzero/models/config_reader.hpp"
#include "stepzero/models/family.hpp"
#include "stepzero/models/rope.hpp"

namespace stepzero {

extern const Family gpt2_family, gptj_family, bert_family, roberta_family, opt_family, bloom_family, falcon_family, gpt_neox_family,
    phi_family;
extern const Family llama_family, mistral_family, qwen2_family, qwen3_family, granite_family, olmo_family, olmo2_family, phi3_family,
    stablelm_family, cohere_family, starcoder2_family;
extern const Family mixtral_family, deepseek_v2_family, deepseek_v3_family, t5_family, vit_family, cnn_family;
extern const Family gemma_family, gemma2_family, gemma3_family, gemma3_text_family;

// Defaults of the usual keys: hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim,
// intermediate_size, vocab_size, max_position_embeddings. 0 means derived.
struct Sizes {
  Index width, layers, heads, kv_heads, head_dim, ffn, vocab, positions;
};
Architecture import_sizes(ConfigReader& c, std::string_view family, const Sizes& defaults);

void import_activation(ConfigReader& c, Architecture& a, std::string_view key, std::string_view fallback);

// pad_token_id, for classes that give it to their embedding; a fallback of no_padding: none.
void import_padding(ConfigReader& c, Architecture& a, Index fallback = Architecture::no_padding);

// layer_types, if the file has them; false: it has not.
bool import_layer_types(ConfigReader& c, Architecture& a);

Expected<Architecture> finish(const ConfigReader& c, Architecture a);

// The names of LLaMA's tensors, which most families keep.
constexpr TensorNames llama_names = {.token = "model.embed_tokens",
                                     .token_type = "model.token_type_embeddings",
                                     .position = "model.embed_positions",
                                     .embedding_norm = "model.embed_layernorm",
                                     .project_in = "model.project_in",
                                     .project_out = "model.project_out",
                                     .block = "model.layers.{}.",
                                     .attn_norm = "input_layernorm",
                                     .qkv = "self_attn.qkv_proj",
                                     .q = "self_attn.q_proj",
                                     .k = "self_attn.k_proj",
                                     .v = "self_attn.v_proj",
                                     .q_norm = "self_attn.q_norm",
                                     .k_norm = "self_attn.k_norm",
                                     .attn_out = "self_attn.o_proj",
                                     .attn_post_norm = "post_self_attn_layernorm",
                                     .ffn_norm = "post_attention_layernorm",
                                     .ffn_gate_in = "mlp.gate_up_proj",
                                     .ffn_gate = "mlp.gate_proj",
                                     .ffn_in = "mlp.up_proj",
                                     .ffn_out = "mlp.down_proj",
                                     .ffn_post_norm = "post_feedforward_layernorm",
                                     .final_norm = "model.norm",
                                     .head_dense = "lm_head.dense",
                                     .head_norm = "lm_head.layer_norm",
                                     .head = "lm_head",
                                     .head_bias = "lm_head.bias",
                                     .q_latent = "self_attn.q_a_proj",
                                     .q_latent_norm = "self_attn.q_a_layernorm",
                                     .q_out = "self_attn.q_b_proj",
                                     .kv_latent = "self_attn.kv_a_proj_with_mqa",
                                     .kv_latent_norm = "self_attn.kv_a_layernorm",
                                     .kv_out = "self_attn.kv_b_proj",
                                     .router = "mlp.gate",
                                     .router_bias = "mlp.gate.e_score_correction_bias",
                                     .expert = "mlp.experts.{}.",
                                     .shared_experts = "mlp.shared_experts.",
                                     .expert_gate = "gate_proj",
                                     .expert_in = "up_proj",
                                     .expert_out = "down_proj",
                                     .optional_prefix = "model."};

}  // namespace stepzero
