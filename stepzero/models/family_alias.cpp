#include "stepzero/models/family_alias.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

namespace stepzero {

namespace {

using nlohmann::json;

struct Alias {
  std::string_view model_type, family;
  std::string_view defaults;  // of its class, where they are not the family's
};

constexpr std::array aliases = std::to_array<Alias>({
    {"xlm-roberta", "roberta", R"({"vocab_size": 30522})"},
    {"camembert", "roberta", R"({"vocab_size": 30522})"},
    {"mt5", "t5",
     R"({"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false})"},
    {"qwen2_vl_text", "qwen2",
     R"({"hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
         "vocab_size": 152064, "rms_norm_eps": 1e-5, "rope_theta": 1e6})"},
    {"qwen2_5_vl_text", "qwen2",
     R"({"hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
         "vocab_size": 152064, "rms_norm_eps": 1e-5, "rope_theta": 1e6})"},
    {"qwen3_vl_text", "qwen3", R"({"max_position_embeddings": 128000, "rope_theta": 5e6})"},
});

// Positions in time, height and width are one where all tokens are text.
void read_as_text(json& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = config.find(key);
    if (rope == config.end() || !rope->is_object()) continue;
    for (const char* type : {"rope_type", "type"}) {
      if (rope->contains(type) && (*rope)[type] == "mrope") (*rope)[type] = "default";
    }
  }
}

}  // namespace

void read_as_known_family(json& config) {
  const auto type = config.is_object() ? config.find("model_type") : config.end();
  if (!config.is_object() || type == config.end() || !type->is_string()) return;
  const auto alias = std::ranges::find(aliases, type->get<std::string>(), &Alias::model_type);
  if (alias == aliases.end()) return;
  *type = alias->family;
  const json defaults = json::parse(alias->defaults);
  for (const auto& [key, value] : defaults.items()) {
    if (!config.contains(key)) config[key] = value;
  }
  if (alias->model_type.contains("_vl_")) read_as_text(config);
}

}  // namespace stepzero
