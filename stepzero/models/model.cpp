#include "stepzero/models/model.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/graph/graph_json.hpp"
#include "stepzero/io/file.hpp"
#include "stepzero/io/json.hpp"
#include "stepzero/io/paths.hpp"
#include "stepzero/models/family.hpp"
#include "stepzero/models/family_alias.hpp"
#include "stepzero/models/family_file.hpp"
#include "stepzero/models/own_file.hpp"

namespace stepzero {

namespace {

// The text model inside a multimodal file. Where both say something about the same size, they must agree.
Expected<nlohmann::json> text_model(nlohmann::json config, const std::string& file) {
  for (const char* key : {"text_config", "llm_config"}) {
    const auto nested = config.is_object() ? config.find(key) : config.end();
    if (nested == config.end() || !nested->is_object()) continue;
    nlohmann::json inner = *nested;
    for (const char* size : {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
                             "intermediate_size", "vocab_size"}) {
      if (config.contains(size) && inner.contains(size) && config[size] != inner[size]) {
        return fail(
            fmt::format("{}: \"{}\" is {}, but {} in \"{}\"", show(file), size, show(config[size].dump()), show(inner[size].dump()), key));
      }
    }
    for (const char* shared : {"model_type", "tie_word_embeddings"}) {
      if (!inner.contains(shared) && config.contains(shared)) inner[shared] = config[shared];
    }
    return inner;
  }
  return config;
}

// Python writes numbers that are not finite as words, which are no JSON: infinity becomes a number that is as good as it.
std::string finite_numbers(std::string_view text) {
  constexpr std::string_view word = "Infinity";
  std::string out;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    if (!quoted && text.substr(i).starts_with(word)) {
      out += "1e300";
      i += word.size() - 1;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Which tower of a model of images and texts: that of its class, if it has one.
Expected<nlohmann::json> tower(nlohmann::json config, const std::string& file) {
  const auto type = config.is_object() ? config.find("model_type") : config.end();
  if (!config.is_object() || type == config.end() || (*type != "clip" && *type != "siglip")) return config;
  const auto name = type->get<std::string>();
  const auto classes = config.find("architectures");
  const std::string of_class = classes != config.end() && classes->is_array() && !classes->empty() && classes->front().is_string()
                                   ? classes->front().get<std::string>()
                                   : "";
  if (!of_class.ends_with("ForImageClassification") || !config.contains("vision_config") || !config["vision_config"].is_object()) {
    return fail(fmt::format("{}: a {} model has two towers, and one loss for both, which is not run", show(file), name),
                fmt::format("give one tower: its vision_config or text_config as a file, with \"model_type\": \"{}_vision_model\" or "
                            "\"{}_text_model\"",
                            name, name));
  }
  nlohmann::json inner = config["vision_config"];
  inner["model_type"] = name + "_vision_model";
  for (const char* shared : {"architectures", "id2label", "num_labels", "initializer_factor"}) {
    if (config.contains(shared) && !inner.contains(shared)) inner[shared] = config[shared];
  }
  return inner;
}

Expected<Architecture> import(std::string_view text, const std::string& file, std::string_view like) {
  const std::string numbers = text.contains("Infinity") ? finite_numbers(text) : std::string();
  auto parsed = parse_json(numbers.empty() ? text : std::string_view(numbers), file);
  if (!parsed) return std::unexpected(parsed.error());
  auto config = tower(std::move(*parsed), file);
  if (!config) return std::unexpected(config.error());
  config = text_model(std::move(*config), file);
  if (!config) return std::unexpected(config.error());
  const std::string own = config->is_object()
                              ? config->value("model_type", nlohmann::json()).is_string() ? (*config)["model_type"].get<std::string>() : ""
                              : "";
  if (!like.empty() && config->is_object()) (*config)["model_type"] = like;
  read_as_known_family(*config);
  const auto type = config->is_object() ? config->find("model_type") : config->end();
  if (!config->is_object() || type == config->end() || !type->is_string()) {
    return fail(fmt::format("{}: \"model_type\" is missing", show(file)), "a Hugging Face config.json names its family there");
  }
  const Family* family = find_family(type->get<std::string>());
  const FamilyFile* family_file = find_family_file(type->get<std::string>());
  if (family == nullptr && family_file == nullptr) {
    std::set<std::string> known;
    for (const Family& f : families()) known.emplace(f.model_type);
    for (const FamilyFile& f : family_files()) known.emplace(f.model_type);
    const std::string unknown = type->get<std::string>();
    const std::string near = closest(unknown, std::vector<std::string>(known.begin(), known.end()));
    return fail(fmt::format("{}: unknown model_type \"{}\"", show(file), show(unknown)),
                fmt::format("{}--like FAMILY reads it as one of the {} known: llama, gpt2, bert, t5, ... (stepzero models shows them)",
                            near.empty() ? "" : fmt::format("did you mean {}? ", near), known.size()));
  }
  auto a = family_file != nullptr ? load_family(family_file->model_type, family_file->text, *config, file) : family->import(*config, file);
  if (!a) return a;
  if (!like.empty() && like != own && !a->sizes_not_given.empty()) {
    return fail(fmt::format("{}: read as {} it does not say {}", show(file), like, fmt::join(a->sizes_not_given, ", ")),
                fmt::format("its keys are those of {}; without the sizes it would be {}'s default model",
                            own.empty() ? "another family" : show(own), like));
  }
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

namespace {

constexpr std::size_t most_text = std::size_t{64} << 20;
constexpr const char* input_name = "standard input";
constexpr const char* text_name = "the text";

bool is_input(const std::string& model) { return model == "-" || model == "/dev/stdin"; }
bool is_text(const std::string& model) { return model.starts_with('{') || model.contains('\n'); }

// Standard input, read once: whoever asks again gets the same.
Expected<std::string> read_input() {
  static const Expected<std::string> text = []() -> Expected<std::string> {
    std::string all;
    std::array<char, 65536> some;
    while (const std::size_t n = std::fread(some.data(), 1, some.size(), stdin)) {
      all.append(some.data(), n);
      if (all.size() > most_text)
        return fail(fmt::format("standard input: at most {} bytes are read", most_text), "is this the file that was meant?");
    }
    if (std::ferror(stdin) != 0) return fail("standard input cannot be read");
    return all;
  }();
  return text;
}

// The text of a config.json, and where it lies.
struct Found {
  std::string text, path;

  [[nodiscard]] bool has_path() const { return path != input_name && path != text_name; }
};

Expected<Found> find_config(const std::string& model, const std::vector<std::string>& known) {
  if (is_input(model)) {
    auto text = read_input();
    if (!text) return std::unexpected(text.error());
    return Found{std::move(*text), input_name};
  }
  if (is_text(model)) return Found{model, text_name};
  std::string path = model;
  if (is_directory(path)) {
    path = join_path(path, "config.json");
    if (!exists(path))
      return fail(fmt::format("{}: a directory without a config.json", show(model)),
                  "name the directory of a checkpoint, or a config.json itself");
  }
  if (!exists(path)) {
    const std::string near = closest(model, known);
    return fail(fmt::format("unknown model \"{}\": neither a preset nor a file{}", show(model),
                            near.empty() ? "" : fmt::format("; did you mean {}?", near)),
                fmt::format("presets are {}; or give a config.json or the directory that holds it", fmt::join(known, ", ")));
  }
  auto text = read_text(path, most_text);
  if (!text) return std::unexpected(text.error());
  return Found{std::move(*text), std::move(path)};
}

}  // namespace

namespace {

constexpr const char* carried_schema = "stepzero.architecture/1";

enum class Form : std::uint8_t { config, text, graph, carried };

// A config.json, a text of the language, a canonical graph, or a config.json that carries such a text (what init writes).
Form form_of(const Found& found) {
  if (found.path.ends_with(".py")) return Form::text;
  const std::string_view text = found.text;
  const std::size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::string_view head = text.substr(first, 4096);
  if (!found.has_path() && !head.empty() && (std::isalpha(static_cast<unsigned char>(head[0])) != 0 || head[0] == '#')) return Form::text;
  const auto says = [&](const char* schema) { return head.starts_with('{') && head.contains(fmt::format("\"{}\"", schema)); };
  return says(graph_schema) ? Form::graph : says(carried_schema) ? Form::carried : Form::config;
}

Expected<Architecture> load_carried(const Found& found) {
  const std::string& file = found.path;
  const auto config = parse_json(found.text, file);
  if (!config) return std::unexpected(config.error());
  if (!config->contains("architecture") || !(*config)["architecture"].is_string()) {
    return fail(fmt::format("{}: \"architecture\" does not hold the text of an architecture file", show(file)));
  }
  auto a = load_text((*config)["architecture"], file);
  if (!a || !config->contains("set")) return a;
  for (const auto& assignment : (*config)["set"]) {
    if (!assignment.is_string()) return fail(fmt::format("{}: \"set\" must hold texts", show(file)), "such as \"layers=2\"");
    if (auto done = set_field(*a, assignment.get<std::string>()); !done) return std::unexpected(done.error());
  }
  return a;
}

Expected<Architecture> load_own(const Found& found, Form form) {
  if (form == Form::carried) return load_carried(found);
  if (form == Form::text) return load_text(found.text, found.path);
  return load_graph(found.text, found.path);
}

}  // namespace

namespace {

// That of its folder, or its own.
std::string name_of(const std::string& path) {
  const std::string_view file = file_name(path);
  if (file == "config.json") return std::string(file_name(folder_of(absolute_path(path))));
  return std::string(file.substr(0, std::max<std::size_t>(file.rfind('.'), 1)));
}

}  // namespace

Expected<Architecture> import_config(std::string_view text, const std::string& file) { return import(text, file, {}); }

Expected<Architecture> load_model(const std::string& model, std::string_view like) {
  std::vector<std::string> known;
  for (const Preset& preset : presets()) {
    known.emplace_back(preset.name);
    if (preset.name != model) continue;
    auto a = import(preset.config, model, like);
    if (!a) return a;
    a->name = model;
    a->notices.clear();  // a preset says what differs from its family
    return a;
  }
  const auto config = find_config(model, known);
  if (!config) return std::unexpected(config.error());
  const std::string& path = config->path;
  if (const Form form = form_of(*config); form != Form::config) {
    if (like.empty()) return load_own(*config, form);
    return fail(fmt::format("{}: --like reads a config.json, and this is a file of its own", show(path)));
  }
  auto a = import(config->text, path, like);
  if (a) a->name = config->has_path() ? name_of(path) : a->family;
  return a;
}

Expected<nlohmann::ordered_json> model_config(const std::string& model) {
  for (const Preset& preset : presets()) {
    if (preset.name == model) return nlohmann::ordered_json::parse(preset.config);
  }
  const auto config = find_config(model, {});
  if (!config) return std::unexpected(config.error());
  if (form_of(*config) == Form::text) return nlohmann::ordered_json{{"schema", carried_schema}, {"architecture", config->text}};
  const std::string text = finite_numbers(config->text);
  if (auto checked = parse_json(text, config->path); !checked) return std::unexpected(checked.error());
  return nlohmann::ordered_json::parse(text);
}

}  // namespace stepzero
