#pragma once
// How a model, its scheme and its input are found: what every verb begins with.
#include <string>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/models/architecture.hpp"
#include "stepzero/models/make_input.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

struct Setup {
  Architecture architecture;
  const Scheme* scheme = nullptr;
  Graph graph;
  Batch batch;
};

// The model with the fields of `set` and with derived sizes filled in; `like` names the family to read it as.
Expected<Architecture> find_architecture(const std::string& model, const std::vector<std::string>& set, const std::string& like = {});

// The same with what the scheme changes; ready for a graph.
Expected<Architecture> describe_model(const std::string& model, const std::vector<std::string>& set, const Scheme& scheme,
                                      const std::string& like = {});

// Adapters as they are asked for: in words (models/lora.hpp), or by the files that hold them.
struct AdapterRequest {
  std::string lora = {}, files = {};
};

// The graph and the input of a described model, checked against each other.
Expected<Setup> prepare(Architecture architecture, const Scheme& scheme, const InputOptions& input, const AdapterRequest& adapter = {});

// The graph of a described model, with adapters where they are asked for.
Expected<Graph> graph_of(const Architecture& a, const AdapterRequest& adapter);

// What a pass runs on, in words: how tokens or pixels are drawn, or their file.
std::string input_name(const InputOptions& input, const Batch& batch);

}  // namespace stepzero
