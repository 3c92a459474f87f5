#include "stepzero/api/setup.hpp"

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/lora.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/models/rope.hpp"
#include "stepzero/schemes/scheme_file.hpp"
#include "stepzero/theory/scheme_profile.hpp"
#include "stepzero/weights/adapter.hpp"

namespace stepzero {

namespace {

std::unexpected<Error> about(const Architecture& a, const Error& error) {
  return fail(fmt::format("{}: {}", show(a.name), error.message), error.hint);
}

}  // namespace

Expected<Architecture> find_architecture(const std::string& model, const std::vector<std::string>& set, const std::string& like) {
  auto a = load_model(model, like);
  if (!a) return std::unexpected(a.error());
  for (const std::string& assignment : set) {
    if (auto done = set_field(*a, assignment); !done) return std::unexpected(done.error());
  }
  if (auto done = resolve(*a); !done) return a->own ? std::unexpected(done.error()) : about(*a, done.error());
  return a;
}

Expected<Architecture> describe_model(const std::string& model, const std::vector<std::string>& set, const Scheme& scheme,
                                      const std::string& like) {
  auto a = find_architecture(model, set, like);
  if (!a) return a;
  if (auto done = adapt(*a, scheme, profile); !done) return about(*a, done.error());
  if (scheme.file != nullptr) {
    if (auto done = check_fits(*scheme.file, build_graph(*a)); !done) return std::unexpected(done.error());
  }
  return a;
}

Expected<Graph> graph_of(const Architecture& a, const AdapterRequest& adapter) {
  Graph graph = build_graph(a);
  if (adapter.lora.empty() && adapter.files.empty()) return graph;
  const auto lora = adapter.lora.empty() ? read_adapter_config(adapter.files) : parse_lora(adapter.lora);
  if (!lora) return std::unexpected(lora.error());
  if (auto done = add_adapters(graph, *lora); !done) return about(a, done.error());
  return graph;
}

Expected<Setup> prepare(Architecture architecture, const Scheme& scheme, const InputOptions& input, const AdapterRequest& adapter) {
  auto batch = make_input(architecture, input);
  if (!batch) return std::unexpected(batch.error());
  choose_rope(architecture, batch->length);
  auto graph = graph_of(architecture, adapter);
  if (!graph) return std::unexpected(graph.error());
  return Setup{std::move(architecture), &scheme, std::move(*graph), std::move(*batch)};
}

std::string input_name(const InputOptions& input, const Batch& batch) {
  if (batch.pixels.empty()) return input.tokens;
  return input.pixels.empty() ? "normal" : input.pixels;
}

}  // namespace stepzero
