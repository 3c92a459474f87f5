// Mixtral, DeepSeek-V2 and V3: blocks with experts, and latent attention.
#include <cmath>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/models/families.hpp"

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
  a.attention_bias = a.attention_out_bias = c.flag({"attention_bias"}, false);
  import_rope(c, a);
  a.rotary_interleaved = true;
}

void import_groups(ConfigReader& c, Architecture& a, Index groups, Index kept) {
  a.router_groups = c.count({"n_group"}, groups, 1, Architecture::most_experts);
  a.router_kept_groups = c.count({"topk_group"}, kept, 1, Architecture::most_experts);
}

// The class multiplies the scores where a long-context rule names mscale_all_dim.
void import_score_scale(ConfigReader& c, Architecture& a) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto* object = c.object(key);
    if (object == nullptr || a.rope_scaling == RopeScaling::none) continue;
    ConfigReader rope(*object, c.file());
    const double all = rope.number({"mscale_all_dim"}, 0, 0);
    const double mscale = all > 0 && a.rope_factor > 1 ? 0.1 * all * std::log(a.rope_factor) + 1 : 1;
    a.attention_scale = mscale * mscale / std::sqrt(static_cast<double>(a.key_dim + a.key_rope_dim));
    if (const auto done = rope.finish(); !done) c.complain(key, done.error().message);
  }
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
  a.router_normalise = false;  // the class does not read norm_topk_prob
  a.router_scale = c.number({"routed_scaling_factor"}, 1, -1e30);
  const std::string method = c.text({"topk_method"}, "greedy");
  if (method == "group_limited_greedy") import_groups(c, a, 1, 1);
  if (method != "greedy" && method != "group_limited_greedy") {
    c.complain("topk_method", fmt::format("\"{}\" is neither \"greedy\" nor \"group_limited_greedy\"", show(method)));
  }
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
  a.router_bias = a.router_sigmoid = true;
  a.router_normalise = c.flag({"norm_topk_prob"}, true);
  a.router_scale = c.number({"routed_scaling_factor"}, 2.5, -1e30);
  import_groups(c, a, 8, 4);
  a.router_group_best = 2;
  import_latent_attention(c, a);
  a.rotary_interleaved = c.flag({"rope_interleave"}, true);
  import_score_scale(c, a);
  return finish(c, a);
}

constexpr TensorNames mixtral_names() {
  TensorNames n = llama_names;
  n.router = "block_sparse_moe.gate";
  n.expert = "block_sparse_moe.experts.{}.";
  n.expert_gate = "w1";
  n.expert_in = "w3";
  n.expert_out = "w2";
  return n;
}

}  // namespace

const Family mixtral_family = {.model_type = "mixtral", .names = mixtral_names(), .import = import_mixtral};
const Family deepseek_v2_family = {.model_type = "deepseek_v2", .names = llama_names, .import = import_deepseek_v2};
const Family deepseek_v3_family = {.model_type = "deepseek_v3", .names = llama_names, .import = import_deepseek_v3};

}  // namespace stepzero
