// LLaMA and the families that keep its tensors and most of its block. Defaults and names are those of transformers 4.57.
#include "stepzero/models/families.hpp"

namespace stepzero {

namespace {

// What all of them share: RMSNorm (or LayerNorm) before gated branches, rotary positions, no biases.
Architecture llama_like(ConfigReader& c, std::string_view family, const Sizes& sizes, bool tied = false) {
  Architecture a = import_sizes(c, family, sizes);
  a.norm = NormKind::rmsnorm;
  a.gated = true;
  a.tied = c.flag({"tie_word_embeddings"}, tied);
  a.attention_bias = a.attention_out_bias = a.mlp_bias = false;
  import_activation(c, a, "hidden_act", "silu");
  return a;
}

void attention_bias(ConfigReader& c, Architecture& a, bool fallback = false) {
  a.attention_bias = a.attention_out_bias = c.flag({"attention_bias"}, fallback);
}

Expected<Architecture> import_llama(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = llama_like(c, "llama", {4096, 32, 32, 0, 0, 11008, 32000, 2048});
  a.norm_eps = c.number({"rms_norm_eps"}, 1e-6, 0);
  attention_bias(c, a);
  a.mlp_bias = c.flag({"mlp_bias"}, false);
  import_rope(c, a);
  import_padding(c, a);
  return finish(c, a);
}

Expected<Architecture> import_mistral(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = llama_like(c, "mistral", {4096, 32, 32, 8, 0, 14336, 32000, 131072});
  a.norm_eps = c.number({"rms_norm_eps"}, 1e-6, 0);
  a.window = c.count({"sliding_window"}, c.has("sliding_window") ? 0 : 4096);
  import_rope(c, a);
  import_padding(c, a);
  return finish(c, a);
}

// Layers from max_window_layers on have the window, if windows are used at all.
void qwen_windows(ConfigReader& c, Architecture& a) {
  if (c.flag({"use_sliding_window"}, false)) a.window = c.count({"sliding_window"}, c.has("sliding_window") ? 0 : 4096);
  const Index first = std::min(c.count({"max_window_layers"}, 28, 0), a.layers);
  if (import_layer_types(c, a)) {
    if (a.window == 0 && a.layer_types.find('s') != std::string::npos)
      c.complain("layer_types", "asks for a window, and use_sliding_window is false");
    return;
  }
  if (a.window > 0)
    a.layer_types = std::string(static_cast<std::size_t>(first), 'f') + std::string(static_cast<std::size_t>(a.layers - first), 's');
}

Expected<Architecture> import_qwen2(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = llama_like(c, "qwen2", {4096, 32, 32, 32, 0, 22016, 151936, 32768});
  a.norm_eps = c.number({"rms_norm_eps"}, 1e-6, 0);
  a.attention_bias = true;
  qwen_windows(c, a);
  import_rope(c, a);
  import_padding(c, a);
  return finish(c, a);
}

Expected<Architecture> import_qwen3(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = llama_like(c, "qwen3", {4096, 32, 32, 32, 128, 22016, 151936, 32768});
  a.norm_eps = c.number({"rms_norm_eps"}, 1e-6, 0);
  a.qk_norm = QkNorm::head;
  attention_bias(c, a);
  qwen_windows(c, a);
  import_rope(c, a);
  import_padding(c, a);
  return finish(c, a);
}

Expected<Architecture> import_granite(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = llama_like(c, "granite", {4096, 32, 32, 0, 0, 11008, 32000, 2048});
  a.norm_eps = c.number({"rms_norm_eps"}, 1e-6, 0);
  attention_bias(c, a);
  a.mlp_bias = c.flag({"mlp_bias"}, false);
  a.embedding_scale = c.number({"embedding_multiplier"}, 1, -1e30);
  a.residual_scale = c.number({"residual_multiplier"}, 1, -1e30);
  a.attention_scale = c.number({"attention_multiplier"}, 1, 1e-30);
  a.logit_scale = 1 / c.number({"logits_scaling"}, 1, 1e-30);
  import_rope(c, a);
  import_padding(c, a);
  return finish(c, a);
}

Expected<Architecture> import_olmo(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = llama_like(c, "olmo", {4096, 32, 32, 0, 0, 11008, 50304, 2048});
  a.norm = NormKind::layernorm;
  a.norm_gain = a.norm_bias = false;
  a.norm_eps = 1e-5;
  attention_bias(c, a);
  a.clip_qkv = c.number({"clip_qkv"}, 0, 0);
  import_rope(c, a);
  import_padding(c, a, 1);
  return finish(c, a);
}

Expected<Architecture> import_olmo2(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = llama_like(c, "olmo2", {4096, 32, 32, 0, 0, 11008, 50304, 2048});
  a.norm_eps = c.number({"rms_norm_eps"}, 1e-5, 0);
  a.norm_placement = NormPlacement::branch;
  a.qk_norm = QkNorm::all;
  attention_bias(c, a);
  import_rope(c, a);
  import_padding(c, a, 1);
  return finish(c, a);
}

Expected<Architecture> import_phi3(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = llama_like(c, "phi3", {3072, 32, 32, 0, 0, 8192, 32064, 4096});
  a.norm_eps = c.number({"rms_norm_eps"}, 1e-5, 0);
  a.window = c.count({"sliding_window"}, 0);
  import_rope(c, a, {.partial = true, .original_positions = 4096});
  import_padding(c, a, 32000);
  return finish(c, a);
}

Expected<Architecture> import_stablelm(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = llama_like(c, "stablelm", {2560, 32, 32, 32, 0, 6912, 50304, 4096});
  a.norm = NormKind::layernorm;
  a.norm_eps = c.number({"layer_norm_eps"}, 1e-5, 0);
  a.attention_bias = c.flag({"use_qkv_bias"}, false);
  a.parallel_block = a.shared_norm = c.flag({"use_parallel_residual"}, false);
  if (c.flag({"qk_layernorm"}, false)) a.qk_norm = QkNorm::each_head;
  import_rope(c, a, {.fraction = 0.25, .partial = true});
  import_padding(c, a);
  return finish(c, a);
}

Expected<Architecture> import_cohere(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = llama_like(c, "cohere", {8192, 40, 64, 0, 0, 22528, 256000, 8192}, true);
  a.norm = NormKind::layernorm;
  a.norm_bias = false;
  a.norm_eps = c.number({"layer_norm_eps"}, 1e-5, 0);
  a.parallel_block = a.shared_norm = true;
  a.logit_scale = c.number({"logit_scale"}, 0.0625, -1e30);
  if (c.flag({"use_qk_norm"}, false)) a.qk_norm = QkNorm::each_head;
  attention_bias(c, a);
  import_rope(c, a);
  a.rotary_interleaved = true;
  import_padding(c, a, 0);
  return finish(c, a);
}

Expected<Architecture> import_starcoder2(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = llama_like(c, "starcoder2", {3072, 30, 24, 2, 0, 12288, 49152, 4096}, true);
  a.norm = NormKind::layernorm;
  a.norm_eps = c.number({"norm_epsilon"}, 1e-5, 0);
  a.gated = false;
  a.attention_bias = a.attention_out_bias = a.mlp_bias = c.flag({"use_bias"}, true);
  a.init_std = c.number({"initializer_range"}, 0.018042, 0);
  a.window = c.count({"sliding_window"}, 0);
  import_activation(c, a, "hidden_act", "gelu_pytorch_tanh");
  import_rope(c, a);
  import_padding(c, a);
  return finish(c, a);
}

constexpr TensorNames phi3_names() {
  TensorNames n = llama_names;
  n.fused_qkv = FusedQkv::blocks;
  n.fused_gate = true;
  return n;
}

// Norms on the outputs of the branches only.
constexpr TensorNames olmo2_names() {
  TensorNames n = llama_names;
  n.attn_norm = "post_attention_layernorm";
  n.ffn_norm = "post_feedforward_layernorm";
  return n;
}

constexpr TensorNames stablelm_names() {
  TensorNames n = llama_names;
  n.q_norm = "self_attn.q_layernorm.norms.{}";
  n.k_norm = "self_attn.k_layernorm.norms.{}";
  return n;
}

constexpr TensorNames starcoder2_names() {
  TensorNames n = llama_names;
  n.ffn_in = "mlp.c_fc";
  n.ffn_out = "mlp.c_proj";
  return n;
}

}  // namespace

const Family llama_family = {.model_type = "llama", .names = llama_names, .import = import_llama};
const Family mistral_family = {.model_type = "mistral", .names = llama_names, .import = import_mistral};
const Family qwen2_family = {.model_type = "qwen2", .names = llama_names, .import = import_qwen2};
const Family qwen3_family = {.model_type = "qwen3", .names = llama_names, .import = import_qwen3};
const Family granite_family = {.model_type = "granite", .names = llama_names, .import = import_granite};
const Family olmo_family = {.model_type = "olmo", .names = llama_names, .import = import_olmo};
const Family olmo2_family = {.model_type = "olmo2", .names = olmo2_names(), .import = import_olmo2};
const Family phi3_family = {.model_type = "phi3", .names = phi3_names(), .import = import_phi3};
const Family stablelm_family = {.model_type = "stablelm", .names = stablelm_names(), .import = import_stablelm};
const Family cohere_family = {.model_type = "cohere", .names = llama_names, .import = import_cohere};
const Family starcoder2_family = {.model_type = "starcoder2", .names = starcoder2_names(), .import = import_starcoder2};

}  // namespace stepzero
