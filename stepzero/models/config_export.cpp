#include "stepzero/models/config_export.hpp"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stepzero/models/model.hpp"
#include "stepzero/models/own_file.hpp"

namespace stepzero {

namespace {

using A = Architecture;
using Json = nlohmann::ordered_json;

struct Keys {
  std::string_view field;
  std::string (*value)(const A& a);
  std::array<const char*, 5> keys;  // what families call it; nullptr: no more
};

template <auto member>
std::string text(const A& a) {
  if constexpr (requires { to_string(a.*member); })
    return std::string(to_string(a.*member));
  else
    return fmt::format("{}", a.*member);
}

constexpr std::array table = std::to_array<Keys>({
    {"layers", text<&A::layers>, {"n_layer", "num_hidden_layers", "n_layers", "num_layers"}},
    {"width", text<&A::width>, {"n_embd", "hidden_size", "d_model"}},
    {"heads", text<&A::heads>, {"n_head", "num_attention_heads", "num_heads"}},
    {"kv_heads", text<&A::kv_heads>, {"num_key_value_heads", "num_kv_heads"}},
    {"head_dim", text<&A::head_dim>, {"head_dim"}},
    {"ffn", text<&A::ffn>, {"n_inner", "intermediate_size", "ffn_dim", "ffn_hidden_size", "d_ff"}},
    {"vocab", text<&A::vocab>, {"vocab_size"}},
    {"positions", text<&A::positions>, {"n_positions", "max_position_embeddings", "seq_length"}},
    {"init_std", text<&A::init_std>, {"initializer_range", "init_std"}},
    {"norm_eps", text<&A::norm_eps>, {"layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps", "norm_epsilon"}},
    {"rope_theta", text<&A::rope_theta>, {"rope_theta", "rotary_emb_base"}},
    {"tied", text<&A::tied>, {"tie_word_embeddings"}},
    {"activation", text<&A::activation>, {"activation_function", "hidden_act", "hidden_activation"}},
    {"window", text<&A::window>, {"sliding_window"}},
});

// The value as JSON says it: a number, true, false, or else a text.
Json value_of(std::string_view text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_number() || value.is_boolean() ? value : Json(std::string(text));
}

// Of a family that is a file: any key that it reads may be the one.
bool express_size(Json& config, const OwnFile& wanted, std::string_view size, const Json& value) {
  if (own_size(wanted, size).empty()) return false;  // a change of the graph
  for (const std::string& key : wanted.keys) {
    Json trial = config;
    trial[key] = value;
    const auto got = import_config(trial.dump(), "config.json");
    if (!got || own_size(*got->own, size) != own_size(wanted, size)) continue;
    config = std::move(trial);
    return true;
  }
  return false;
}

// A key is right if the family, reading it, comes to what --set would have made.
bool express_one(Json& config, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string field = assignment.substr(0, equals);
  auto wanted = import_config(config.dump(), "config.json");
  if (!wanted || !set_field(*wanted, assignment)) return false;
  if (wanted->own) return express_size(config, *wanted->own, field, value_of(std::string_view(assignment).substr(equals + 1)));
  for (const Keys& row : table) {
    if (row.field != field) continue;
    for (const char* key : row.keys) {
      if (key == nullptr) break;
      Json trial = config;
      trial[key] = value_of(std::string_view(assignment).substr(equals + 1));
      const auto got = import_config(trial.dump(), "config.json");
      if (!got || row.value(*got) != row.value(*wanted)) continue;
      config = std::move(trial);
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> express(Json& config, const std::vector<std::string>& set) {
  std::vector<std::string> rest;
  for (const std::string& assignment : set) {
    if (!express_one(config, assignment)) rest.push_back(assignment);
  }
  return rest;
}

}  // namespace stepzero
