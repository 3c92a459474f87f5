// Gemma 1 to 3: norms store gain - 1, embeddings are multiplied by sqrt(width).
#include <cmath>

#include "stepzero/models/families.hpp"

namespace stepzero {

namespace {

Architecture gemma_like(ConfigReader& c, std::string_view family, const Sizes& sizes) {
  Architecture a = import_sizes(c, family, sizes);
  a.norm = NormKind::rmsnorm;
  a.norm_offset = true;
  a.norm_eps = c.number({"rms_norm_eps"}, 1e-6, 0);
  a.gated = true;
  a.tied = c.flag({"tie_word_embeddings"}, true);
  a.attention_bias = a.attention_out_bias = c.flag({"attention_bias"}, false);
  a.mlp_bias = false;
  a.embedding_scale = 0;  // sqrt(width)
  return a;
}

Expected<Architecture> import_gemma(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = gemma_like(c, "gemma", {3072, 28, 16, 16, 256, 24576, 256000, 8192});
  // the class reads hidden_act alone; early files leave hidden_activation behind
  import_activation(c, a, "hidden_act", "gelu_pytorch_tanh");
  import_rope(c, a);
  import_padding(c, a, 0);
  return finish(c, a);
}

// What Gemma 2 added.
void import_gemma2_keys(ConfigReader& c, Architecture& a, double attention_cap, double logit_cap) {
  const auto cap = [&](const char* key, double fallback) { return c.is_null(key) ? 0 : c.number({key}, fallback, 1e-6); };
  a.norm_placement = NormPlacement::sandwich;
  a.attention_scale = 1 / std::sqrt(c.number({"query_pre_attn_scalar"}, 256, 1e-6));
  a.attention_softcap = attention_cap > 0 || c.has("attn_logit_softcapping") ? cap("attn_logit_softcapping", attention_cap) : 0;
  a.logit_softcap = logit_cap > 0 || c.has("final_logit_softcapping") ? cap("final_logit_softcapping", logit_cap) : 0;
  a.window = c.count({"sliding_window"}, c.has("sliding_window") ? 0 : 4096);
  import_activation(c, a, "hidden_activation", "gelu_pytorch_tanh");
}

Expected<Architecture> import_gemma2(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = gemma_like(c, "gemma2", {2304, 26, 8, 4, 256, 9216, 256000, 8192});
  import_gemma2_keys(c, a, 50, 30);
  if (!import_layer_types(c, a)) a.layer_types = "sf";
  import_rope(c, a);
  import_padding(c, a, 0);
  return finish(c, a);
}

Expected<Architecture> import_gemma3(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = gemma_like(c, "gemma3_text", {2304, 26, 8, 4, 256, 9216, 262208, 131072});
  import_gemma2_keys(c, a, 0, 0);
  a.qk_norm = QkNorm::head;
  const Index pattern = c.count({"sliding_window_pattern", "_sliding_window_pattern"}, 6, 1, Architecture::most_layers);
  if (!import_layer_types(c, a)) a.layer_types = std::string(static_cast<std::size_t>(pattern - 1), 's') + 'f';
  a.rope_theta_window = c.number({"rope_local_base_freq"}, 10000, 1e-6);
  import_rope(c, a, {.theta = 1e6});
  import_padding(c, a, 0);
  if (c.flag({"use_bidirectional_attention"}, false)) {
    c.complain("use_bidirectional_attention", "embedding models that look both ways are not supported");
  }
  return finish(c, a);
}

constexpr TensorNames gemma2_names() {
  TensorNames n = llama_names;
  n.attn_post_norm = "post_attention_layernorm";
  n.ffn_norm = "pre_feedforward_layernorm";
  return n;
}

}  // namespace

const Family gemma_family = {.model_type = "gemma", .names = llama_names, .import = import_gemma};
const Family gemma2_family = {.model_type = "gemma2", .names = gemma2_names(), .import = import_gemma2};
const Family gemma3_text_family = {.model_type = "gemma3_text", .names = gemma2_names(), .import = import_gemma3};
// A multimodal file: its text_config is read (model.cpp).
const Family gemma3_family = {.model_type = "gemma3", .names = gemma2_names(), .import = import_gemma3};

}  // namespace stepzero
