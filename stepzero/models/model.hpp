#pragma once
// MODEL on the command line: a preset's name, a config.json, a directory that holds one, or a file of its own (own_file.hpp).
// A model that begins with { or has more than one line is the text of such a file.
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "stepzero/models/architecture.hpp"

namespace stepzero {

struct Preset {
  std::string_view name;
  std::string_view config;  // what its config.json would say
};
std::span<const Preset> presets();

// Not yet resolved, so that fields can still be set. `like` names the family to read it as, whatever it says itself.
Expected<Architecture> load_model(const std::string& model, std::string_view like = {});

// The text of a config.json; `file` is for messages.
Expected<Architecture> import_config(std::string_view text, const std::string& file);

// Its configuration as it stands.
Expected<nlohmann::ordered_json> model_config(const std::string& model);

}  // namespace stepzero
