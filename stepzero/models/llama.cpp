#include "stepzero/core/text.hpp"
#include "stepzero/models/config_reader.hpp"
#include "stepzero/models/family.hpp"

namespace stepzero {

namespace {

// v4 writes rope_theta and rope_scaling, v5 one object rope_parameters.
void import_rope(ConfigReader& c, const std::string& file, Architecture& a) {
  a.rope_theta = c.number({"rope_theta"}, 10000, 1e-6);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto* object = c.object(key);
    if (object == nullptr) continue;
    ConfigReader rope(*object, file);
    a.rope_theta = rope.number({"rope_theta"}, a.rope_theta, 1e-6);
    const std::string type = rope.text({"rope_type", "type"}, "default");
    if (type != "default") c.complain(key, "rotary scaling of type \"" + show(type) + "\" is not supported yet");
    if (const auto done = rope.finish(); !done) c.complain(key, done.error().message);
  }
}

Expected<Architecture> import_llama(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a;
  a.family = "llama";
  a.position = PositionKind::none;
  a.rotary = Architecture::whole_head;
  a.norm = NormKind::rmsnorm;
  a.gated = true;
  a.width = c.count({"hidden_size"}, 4096);
  a.layers = c.count({"num_hidden_layers"}, 32, 1, Architecture::most_layers);
  a.heads = c.count({"num_attention_heads"}, 32);
  a.kv_heads = c.count({"num_key_value_heads"}, 0);
  a.head_dim = c.count({"head_dim"}, 0);
  a.ffn = c.count({"intermediate_size"}, 11008);
  a.vocab = c.count({"vocab_size"}, 32000);
  a.positions = c.count({"max_position_embeddings"}, 2048);
  a.norm_eps = c.number({"rms_norm_eps"}, 1e-6, 0);
  a.tied = c.flag({"tie_word_embeddings"}, false);
  a.init_std = c.number({"initializer_range"}, 0.02, 0);
  a.attention_bias = c.flag({"attention_bias"}, false);
  a.mlp_bias = c.flag({"mlp_bias"}, false);
  import_rope(c, file, a);
  const auto activation = parse_activation(c.text({"hidden_act"}, "silu"));
  if (!activation) c.complain("hidden_act", activation.error().message);
  a.activation = activation.value_or(a.activation);
  if (auto done = c.finish(); !done) return std::unexpected(done.error());
  return a;
}

}  // namespace

const Family llama_family = {
    .model_type = "llama",
    .names = {.token = "model.embed_tokens",
              .position = "model.embed_positions",
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
              .ffn_gate = "mlp.gate_proj",
              .ffn_in = "mlp.up_proj",
              .ffn_out = "mlp.down_proj",
              .ffn_post_norm = "post_feedforward_layernorm",
              .final_norm = "model.norm",
              .head = "lm_head"},
    .import = import_llama,
};

}  // namespace stepzero
