#include "stepzero/models/model.hpp"

#include <array>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/io/file.hpp"
#include "stepzero/io/json.hpp"
#include "stepzero/models/family.hpp"

namespace stepzero {

namespace {

constexpr std::array preset_table = std::to_array<Preset>({
    {"gpt2", R"({"model_type": "gpt2"})"},
    {"gpt2-medium", R"({"model_type": "gpt2", "n_embd": 1024, "n_layer": 24, "n_head": 16})"},
    {"gpt2-large", R"({"model_type": "gpt2", "n_embd": 1280, "n_layer": 36, "n_head": 20})"},
    {"gpt2-xl", R"({"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25})"},
    {"tinyllama-1.1b", R"({"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32,
      "num_key_value_heads": 4, "intermediate_size": 5632, "rms_norm_eps": 1e-5})"},
    {"llama-2-7b", R"({"model_type": "llama", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5})"},
    {"llama-2-13b", R"({"model_type": "llama", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40,
      "intermediate_size": 13824, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5})"},
    {"llama-2-70b", R"({"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
      "num_key_value_heads": 8, "intermediate_size": 28672, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5})"},
    {"llama-3-8b", R"({"model_type": "llama", "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
      "max_position_embeddings": 8192, "rope_theta": 500000.0, "rms_norm_eps": 1e-5})"},
    {"llama-3-70b", R"({"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
      "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256, "max_position_embeddings": 8192,
      "rope_theta": 500000.0, "rms_norm_eps": 1e-5})"},
    // The shape of 3.1; its rotary scaling, which only matters beyond 8192 positions, is left out.
    {"llama-3-405b", R"({"model_type": "llama", "hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128,
      "num_key_value_heads": 8, "intermediate_size": 53248, "vocab_size": 128256, "max_position_embeddings": 8192,
      "rope_theta": 500000.0, "rms_norm_eps": 1e-5})"},
});

Expected<Architecture> import(std::string_view text, const std::string& file) {
  auto config = parse_json(text, file);
  if (!config) return std::unexpected(config.error());
  const auto type = config->is_object() ? config->find("model_type") : config->end();
  if (!config->is_object() || type == config->end() || !type->is_string()) {
    return fail(fmt::format("{}: \"model_type\" is missing", show(file)), "a Hugging Face config.json names its family there");
  }
  const Family* family = find_family(type->get<std::string>());
  if (family == nullptr) {
    std::vector<std::string_view> known;
    for (const Family& f : families()) known.push_back(f.model_type);
    return fail(fmt::format("{}: unknown model_type \"{}\"", show(file), show(type->get<std::string>())),
                fmt::format("known are {}", fmt::join(known, ", ")));
  }
  auto a = family->import(*config, file);
  if (!a) return a;
  // What stepzero init adds for what the family's own keys cannot say.
  const auto ours = config->find("stepzero");
  if (ours == config->end() || !ours->is_object() || !ours->contains("set")) return a;
  for (const auto& assignment : (*ours)["set"]) {
    if (!assignment.is_string()) return fail(fmt::format("{}: \"stepzero.set\" must hold texts", show(file)), "such as \"layers=2\"");
    if (auto done = set_field(*a, assignment.get<std::string>()); !done) {
      return fail(fmt::format("{}: {}", show(file), done.error().message), done.error().hint);
    }
  }
  return a;
}

}  // namespace

Expected<Architecture> import_config(std::string_view text, const std::string& file) { return import(text, file); }

std::span<const Preset> presets() { return preset_table; }

Expected<Architecture> load_model(const std::string& model) {
  std::vector<std::string> known;
  for (const Preset& preset : preset_table) {
    known.emplace_back(preset.name);
    if (preset.name != model) continue;
    auto a = import(preset.config, model);
    if (a) a->name = model;
    return a;
  }
  std::error_code ignored;
  std::filesystem::path path = model;
  if (std::filesystem::is_directory(path, ignored)) path /= "config.json";
  if (!std::filesystem::exists(path, ignored)) {
    const std::string near = closest(model, known);
    return fail(fmt::format("unknown model \"{}\": neither a preset nor a file{}", show(model),
                            near.empty() ? "" : fmt::format("; did you mean {}?", near)),
                fmt::format("presets are {}; or give a config.json or the directory that holds it", fmt::join(known, ", ")));
  }
  constexpr std::size_t limit = std::size_t{16} << 20;
  auto text = read_text(path.string(), limit);
  if (!text) return std::unexpected(text.error());
  auto a = import(*text, path.string());
  if (a) {
    const auto absolute = std::filesystem::absolute(path, ignored);
    a->name =
        path.filename() == "config.json" && absolute.has_parent_path() ? absolute.parent_path().filename().string() : path.stem().string();
  }
  return a;
}

Expected<nlohmann::ordered_json> model_config(const std::string& model) {
  for (const Preset& preset : preset_table) {
    if (preset.name == model) return nlohmann::ordered_json::parse(preset.config);
  }
  std::error_code ignored;
  std::filesystem::path path = model;
  if (std::filesystem::is_directory(path, ignored)) path /= "config.json";
  constexpr std::size_t limit = std::size_t{16} << 20;
  const auto text = read_text(path.string(), limit);
  if (!text) return std::unexpected(text.error());
  if (auto checked = parse_json(*text, path.string()); !checked) return std::unexpected(checked.error());
  return nlohmann::ordered_json::parse(*text);
}

}  // namespace stepzero
