#include "stepzero/models/config_reader.hpp"
#include "stepzero/models/family.hpp"

namespace stepzero {

namespace {

Expected<Architecture> import_gpt2(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a;
  a.family = "gpt2";
  a.width = c.count({"n_embd", "hidden_size"}, 768);
  a.layers = c.count({"n_layer", "num_hidden_layers"}, 12, 1, Architecture::most_layers);
  a.heads = c.count({"n_head", "num_attention_heads"}, 12);
  a.ffn = c.count({"n_inner"}, 0);
  a.vocab = c.count({"vocab_size"}, 50257);
  a.positions = c.count({"n_positions", "n_ctx", "max_position_embeddings"}, 1024);
  a.norm_eps = c.number({"layer_norm_epsilon"}, 1e-5, 0);
  a.tied = c.flag({"tie_word_embeddings"}, true);
  a.init_std = c.number({"initializer_range"}, 0.02, 0);
  a.attention_scale_by_layer = c.flag({"scale_attn_by_inverse_layer_idx"}, false);
  if (!c.flag({"scale_attn_weights"}, true)) a.attention_scale = 1;
  const auto activation = parse_activation(c.text({"activation_function"}, "gelu_new"));
  if (!activation) c.complain("activation_function", activation.error().message);
  a.activation = activation.value_or(a.activation);
  if (auto done = c.finish(); !done) return std::unexpected(done.error());
  return a;
}

}  // namespace

const Family gpt2_family = {
    .model_type = "gpt2",
    .names = {.token = "transformer.wte",
              .position = "transformer.wpe",
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
              .ffn_gate = "mlp.c_gate",
              .ffn_in = "mlp.c_fc",
              .ffn_out = "mlp.c_proj",
              .ffn_post_norm = "ln_2_post",
              .final_norm = "transformer.ln_f",
              .head = "lm_head",
              .fused_qkv = true,
              .in_out = true,
              .optional_prefix = "transformer."},
    .import = import_gpt2,
};

}  // namespace stepzero
