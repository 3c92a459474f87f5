#pragma once
// A model that is a file of its own: a text in the language of lang/, or a canonical graph.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  SizeValues sizes = {};     // what arch() declares, with its defaults; of a graph positions and init_std
  SizeValues settings = {};  // of them what --set has changed
  std::vector<std::string> set = {};
};

// What a text builds.
struct Built {
  std::string name;
  SizeValues sizes;
  Graph graph;
};
Expected<Built> build_text(const std::string& text, const std::string& file, const SizeValues& settings = {});

// Not yet resolved.
Expected<Architecture> load_text(std::string text, const std::string& file);
Expected<Architecture> load_graph(std::string text, const std::string& file);

// What set_field and resolve do for such a model.
Expected<void> set_own_size(Architecture& a, std::string_view assignment);
Expected<void> resolve_own(Architecture& a);

// Sizes, norms and the like, read off a graph.
void describe_graph(Architecture& a, const Graph& graph);

// The words that the program brings (python/stepzero/words.py).
std::string_view words_text();

}  // namespace stepzero
