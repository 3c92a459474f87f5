#pragma once
// A model that is a file of its own: a text in the language of lang/, or a canonical graph.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "stepzero/core/error.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/lang/value.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

using SizeValues = std::vector<std::pair<std::string, lang::Value>>;

struct OwnFile {
  std::string file;  // as messages call it
  std::string text;
  bool is_graph = false;
  std::shared_ptr<const Graph> built = nullptr;            // of a canonical graph: as it was read
  std::shared_ptr<const nlohmann::json> config = nullptr;  // of a family's file: what its keys read
  std::vector<std::string> keys = {};                      // ... and which they are
  SizeValues sizes = {};                                   // what arch() declares, with its defaults; of a graph positions and init_std
  SizeValues settings = {};                                // of them what --set has changed
  std::vector<std::string> set = {};
  std::vector<std::string> changes = {};  // of what the graph does, as "field=value" (graph_changes.hpp)
};

// What a text builds.
struct Built {
  std::string name;
  SizeValues sizes;
  Graph graph;
};
Expected<Built> build_text(const std::string& text, const std::string& file, const SizeValues& settings = {});
Expected<Built> build_text(const OwnFile& own);

// Not yet resolved.
Expected<Architecture> load_text(std::string text, const std::string& file);
Expected<Architecture> load_graph(std::string text, const std::string& file);
// The file of a family with what a config.json says; `file` is that of the configuration.
Expected<Architecture> load_family(std::string_view model_type, std::string_view text, const nlohmann::json& config,
                                   const std::string& file);

// What set_field and resolve do for such a model. Beside its sizes any change of a graph can be set.
Expected<void> set_own_size(Architecture& a, std::string_view assignment);
void change_own(Architecture& a, const std::string& assignment);
Expected<void> resolve_own(Architecture& a);

// What a size of the file is now, as it would be written there; empty: there is none of this name.
std::string own_size(const OwnFile& own, std::string_view name);

// Sizes, norms and the like, read off a graph.
void describe_graph(Architecture& a, const Graph& graph);

// The words that the program brings (python/stepzero/words.py).
std::string_view words_text();

}  // namespace stepzero
