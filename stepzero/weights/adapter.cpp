#include "stepzero/weights/adapter.hpp"

#include <cmath>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/io/file.hpp"
#include "stepzero/io/json.hpp"
#include "stepzero/io/paths.hpp"

namespace stepzero {

namespace {

using Json = nlohmann::json;

constexpr const char* config_name = "adapter_config.json";
constexpr const char* tensors_name = "adapter_model.safetensors";

// A key that is there and asks for something; peft writes null, false, {} and [] where it does not.
bool asks(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && !it->is_null() && *it != false && !((it->is_object() || it->is_array()) && it->empty());
}

Expected<void> refuse_unknown(const Json& config, const std::string& file) {
  if (config.value("peft_type", Json("LORA")) != "LORA")
    return fail(fmt::format("{}: peft_type is {}", show(file), show(config["peft_type"].dump())), "only LORA is known");
  for (const char* key : {"rank_pattern", "alpha_pattern", "layers_to_transform", "layer_replication", "modules_to_save", "use_dora",
                          "lora_bias", "exclude_modules", "target_parameters", "trainable_token_indices", "use_qalora"}) {
    if (asks(config, key)) return fail(fmt::format("{}: \"{}\" is not supported", show(file), key), "give the adapters another form");
  }
  if (asks(config, "bias") && config["bias"] != "none")
    return fail(fmt::format("{}: \"bias\" is {}: biases stay as they are here", show(file), show(config["bias"].dump())));
  return {};
}

Expected<double> number_in(const Json& config, const char* key, double otherwise, const std::string& file) {
  const auto it = config.find(key);
  if (it == config.end()) return otherwise;
  if (it->is_number() && it->get<double>() > 0 && it->get<double>() < 1e9) return it->get<double>();
  return fail(fmt::format("{}: \"{}\" is {}, a positive number is wanted", show(file), key, show(it->dump())));
}

Expected<void> read_targets(const Json& config, const std::string& file, Lora& lora) {
  const auto it = config.find("target_modules");
  if (it != config.end() && *it == "all-linear") {
    lora.roles = {"all-linear"};
    return {};
  }
  const bool list = it != config.end() && it->is_array() && !it->empty();
  for (const Json& name : list ? *it : Json::array()) {
    if (name.is_string()) lora.modules.push_back(name.get<std::string>());
  }
  if (list && lora.modules.size() == it->size()) return {};
  return fail(fmt::format("{}: \"target_modules\" is not a list of names", show(file)),
              "a pattern is not read: name the modules with --lora modules=...");
}

}  // namespace

Expected<Lora> read_adapter_config(const std::string& path) {
  const std::string file = join_path(is_directory(path) ? std::string_view(path) : folder_of(path), config_name);
  constexpr std::uint64_t limit = 1 << 20;
  const auto text = read_text(file, limit);
  if (!text) return fail(text.error().message, "beside the adapter's tensors; or say what they are with --lora");
  const auto config = parse_json(*text, file);
  if (!config) return std::unexpected(config.error());
  if (!config->is_object()) return fail(fmt::format("{}: an object is wanted", show(file)));
  if (auto done = refuse_unknown(*config, file); !done) return std::unexpected(done.error());
  const auto rank = number_in(*config, "r", 8, file), alpha = number_in(*config, "lora_alpha", 8, file);
  if (!rank) return std::unexpected(rank.error());
  if (!alpha) return std::unexpected(alpha.error());
  auto lora = parse_lora(fmt::format("rank={}", *rank));
  if (!lora) return fail(fmt::format("{}: \"r\": {}", show(file), lora.error().message));
  lora->alpha = *alpha;
  lora->root = asks(*config, "use_rslora");
  lora->roles.clear();
  if (auto done = read_targets(*config, file, *lora); !done) return std::unexpected(done.error());
  return lora;
}

Expected<CheckpointFiles> open_adapter(const std::string& path) {
  return CheckpointFiles::open(is_directory(path) ? join_path(path, tensors_name) : path);
}

// Names are cut to what tells the modules apart, as people write them, where that names no others.
std::string adapter_config(const Graph& graph, const Lora& lora, const std::string& model) {
  std::set<std::string> with, without;
  bool in_out = false;
  const auto last = [](const std::string& module) { return module.substr(module.rfind('.') + 1); };
  std::set<std::string> whole;
  for (const Param& p : graph.params) {
    if (p.role == Role::lora_down) {
      const std::string stem = p.name.substr(adapter_prefix.size());
      whole.insert(stem.substr(0, stem.size() - std::string_view(".lora_A.weight").size()));
    }
  }
  for (const Param& p : graph.params) {
    if (p.is_adapter() || p.role == Role::bias) continue;
    const bool chosen = whole.contains(module_of(p));
    (chosen ? with : without).insert(last(module_of(p)));
    in_out = in_out || (chosen && p.in_out);
  }
  Json targets = Json::array();
  std::set<std::string> names;
  for (const std::string& module : whole) names.insert(without.contains(last(module)) ? module : last(module));
  for (const std::string& name : names) targets.push_back(name);
  const bool whole_number = lora.alpha == std::floor(lora.alpha);
  const Json alpha = whole_number ? Json(static_cast<std::int64_t>(lora.alpha)) : Json(lora.alpha);
  const nlohmann::ordered_json config = {
      {"peft_type", "LORA"},    {"task_type", "CAUSAL_LM"}, {"base_model_name_or_path", model}, {"r", lora.rank},
      {"lora_alpha", alpha},    {"use_rslora", lora.root},  {"target_modules", targets},        {"fan_in_fan_out", in_out},
      {"bias", "none"},         {"lora_dropout", 0.0},      {"modules_to_save", nullptr},       {"init_lora_weights", true},
      {"inference_mode", false}};
  return config.dump(2) + "\n";
}

Graph adapters_of(const Graph& graph) {
  Graph adapters;
  for (const Param& p : graph.params) {
    if (p.is_adapter()) adapters.add_param(p);
  }
  return adapters;
}

}  // namespace stepzero
