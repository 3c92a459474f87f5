// Mixtral, DeepSeek-V2 and V3: blocks with experts, and latent attention. Tensors only.
#include <fmt/format.h>

#include "stepzero/models/families.hpp"
#include "stepzero/models/tensor_list.hpp"

namespace stepzero {

namespace {

Architecture moe_like(ConfigReader& c, std::string_view family, const Sizes& sizes, double eps) {
  Architecture a = import_sizes(c, family, sizes);
  a.norm = NormKind::rmsnorm;
  a.norm_eps = c.number({"rms_norm_eps"}, eps, 0);
  a.gated = true;
  a.tied = c.flag({"tie_word_embeddings"}, false);
  a.attention_bias = a.attention_out_bias = a.mlp_bias = false;
  import_activation(c, a, "hidden_act", "silu");
  import_padding(c, a);
  return a;
}

Expected<Architecture> import_mixtral(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = moe_like(c, "mixtral", {4096, 32, 32, 8, 0, 14336, 32000, 131072}, 1e-5);
  a.experts = c.count({"num_local_experts", "num_experts"}, 8, 1, Architecture::most_experts);
  a.experts_per_token = c.count({"num_experts_per_tok"}, 2);
  a.window = c.count({"sliding_window"}, 0);
  import_rope(c, a, {.theta = 1e6});
  return finish(c, a);
}

void import_latent_attention(ConfigReader& c, Architecture& a) {
  a.query_rank = c.count({"q_lora_rank"}, c.has("q_lora_rank") ? 0 : 1536);
  a.key_value_rank = c.count({"kv_lora_rank"}, 512);
  a.key_dim = c.count({"qk_nope_head_dim"}, 128);
  a.key_rope_dim = c.count({"qk_rope_head_dim"}, 64);
  a.value_dim = c.count({"v_head_dim"}, 128);
  a.head_dim = a.key_dim + a.key_rope_dim;
  a.kv_heads = a.heads;
  a.attention_bias = a.attention_out_bias = c.flag({"attention_bias"}, false);
  import_rope(c, a);
  a.rotary = a.key_rope_dim;
}

Expected<Architecture> import_deepseek_v2(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = moe_like(c, "deepseek_v2", {4096, 32, 32, 0, 0, 11008, 32000, 2048}, 1e-6);
  a.mlp_bias = c.flag({"mlp_bias"}, false);
  a.experts = c.count({"n_routed_experts"}, 64, 1, Architecture::most_experts);
  a.shared_experts = c.count({"n_shared_experts"}, c.has("n_shared_experts") ? 0 : 2, 1, Architecture::most_experts);
  a.experts_per_token = c.count({"num_experts_per_tok"}, 0);
  a.expert_ffn = c.count({"moe_intermediate_size"}, 1407);
  a.dense_layers = c.count({"first_k_dense_replace"}, 0, 0);
  import_latent_attention(c, a);
  return finish(c, a);
}

Expected<Architecture> import_deepseek_v3(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = moe_like(c, "deepseek_v3", {7168, 61, 128, 128, 0, 18432, 129280, 4096}, 1e-6);
  a.experts = c.count({"n_routed_experts"}, 256, 1, Architecture::most_experts);
  a.shared_experts = c.count({"n_shared_experts"}, 1, 1, Architecture::most_experts);
  a.experts_per_token = c.count({"num_experts_per_tok"}, 8);
  a.expert_ffn = c.count({"moe_intermediate_size"}, 2048);
  a.dense_layers = c.count({"first_k_dense_replace"}, 3, 0);
  a.router_bias = true;
  import_latent_attention(c, a);
  return finish(c, a);
}

struct Gated {
  std::string_view gate, in, out;
};
constexpr Gated plain_names = {"gate_proj", "up_proj", "down_proj"};
constexpr Gated mixtral_names = {"w1", "w3", "w2"};

void gated(TensorList& list, const Architecture& a, const std::string& stem, const Gated& names, Index ffn, int l) {
  list.matrix(fmt::format("{}.{}", stem, names.gate), a.width, ffn, Role::ffn_gate, l, a.mlp_bias);
  list.matrix(fmt::format("{}.{}", stem, names.in), a.width, ffn, Role::ffn_in, l, a.mlp_bias);
  list.matrix(fmt::format("{}.{}", stem, names.out), ffn, a.width, Role::ffn_out, l, a.mlp_bias);
}

void experts(TensorList& list, const Architecture& a, const std::string& stem, const Gated& names, int l) {
  list.matrix(stem + ".gate", a.width, a.experts, Role::router, l);
  if (a.router_bias) list.vector(stem + ".gate.e_score_correction_bias", a.experts, Role::bias, l);
  for (Index e = 0; e < a.experts; ++e) gated(list, a, fmt::format("{}.experts.{}", stem, e), names, a.expert_ffn, l);
  if (a.shared_experts > 0) gated(list, a, stem + ".shared_experts", names, a.shared_experts * a.expert_ffn, l);
}

void plain_attention(TensorList& list, const Architecture& a, const std::string& stem, int l) {
  list.matrix(stem + ".q_proj", a.width, a.heads * a.head_dim, Role::query, l, a.attention_bias);
  list.matrix(stem + ".k_proj", a.width, a.kv_heads * a.head_dim, Role::key, l, a.attention_bias);
  list.matrix(stem + ".v_proj", a.width, a.kv_heads * a.head_dim, Role::value, l, a.attention_bias);
  list.matrix(stem + ".o_proj", a.heads * a.head_dim, a.width, Role::attention_out, l, a.attention_out_bias);
}

void latent_attention(TensorList& list, const Architecture& a, const std::string& stem, int l) {
  const Index queries = a.heads * (a.key_dim + a.key_rope_dim);
  if (a.query_rank == 0) {
    list.matrix(stem + ".q_proj", a.width, queries, Role::query, l);
  } else {
    list.matrix(stem + ".q_a_proj", a.width, a.query_rank, Role::query, l, a.attention_bias);
    list.norm(stem + ".q_a_layernorm", a.query_rank, l);
    list.matrix(stem + ".q_b_proj", a.query_rank, queries, Role::query, l);
  }
  list.matrix(stem + ".kv_a_proj_with_mqa", a.width, a.key_value_rank + a.key_rope_dim, Role::key, l, a.attention_bias);
  list.norm(stem + ".kv_a_layernorm", a.key_value_rank, l);
  list.matrix(stem + ".kv_b_proj", a.key_value_rank, a.heads * (a.key_dim + a.value_dim), Role::query_key_value, l);
  list.matrix(stem + ".o_proj", a.heads * a.value_dim, a.width, Role::attention_out, l, a.attention_out_bias);
}

template <class Attention, class FeedForward>
Graph tensors(const Architecture& a, const Attention& attention, const FeedForward& feed_forward) {
  TensorList list;
  list.table("model.embed_tokens.weight", a.vocab, a.width, Role::token_embedding, a.padding);
  for (int l = 0; l < static_cast<int>(a.layers); ++l) {
    const std::string at = fmt::format("model.layers.{}.", l);
    list.norm(at + "input_layernorm", a.width, l);
    attention(list, a, at + "self_attn", l);
    list.norm(at + "post_attention_layernorm", a.width, l);
    feed_forward(list, at, l);
  }
  list.norm("model.norm", a.width);
  if (!a.tied) list.matrix("lm_head", a.width, a.vocab, Role::head);
  return list.take();
}

Graph mixtral_tensors(const Architecture& a) {
  return tensors(a, plain_attention,
                 [&](TensorList& list, const std::string& at, int l) { experts(list, a, at + "block_sparse_moe", mixtral_names, l); });
}

Graph deepseek_tensors(const Architecture& a) {
  return tensors(a, latent_attention, [&](TensorList& list, const std::string& at, int l) {
    if (l < a.dense_layers)
      gated(list, a, at + "mlp", plain_names, a.ffn, l);
    else
      experts(list, a, at + "mlp", plain_names, l);
  });
}

}  // namespace

const Family mixtral_family = {.model_type = "mixtral", .names = llama_names, .import = import_mixtral, .tensors = mixtral_tensors};
const Family deepseek_v2_family = {
    .model_type = "deepseek_v2", .names = llama_names, .import = import_deepseek_v2, .tensors = deepseek_tensors};
const Family deepseek_v3_family = {
    .model_type = "deepseek_v3", .names = llama_names, .import = import_deepseek_v3, .tensors = deepseek_tensors};

}  // namespace stepzero
