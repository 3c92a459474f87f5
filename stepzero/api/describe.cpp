#include "stepzero/api/describe.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/graph/graph_json.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/family_file.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

namespace {

// The first thing in which two graphs differ; empty: nothing. Laws are compared as the scheme hf assigns them.
std::string difference(const Architecture& a, const Graph& graph, const Architecture& b, const Graph& other) {
  Graph plain = other;
  for (Param& p : plain.params) p.law.reset();
  const auto one = graph_json(graph), two = graph_json(plain);
  for (const char* list : {"tensors", "nodes"}) {
    if (one[list].size() != two[list].size()) return fmt::format("{} {} against {}", one[list].size(), list, two[list].size());
    for (std::size_t i = 0; i < one[list].size(); ++i) {
      if (one[list][i] != two[list][i]) return one[list][i]["name"].get<std::string>();
    }
  }
  const Scheme& hf = **find_scheme("hf");
  const Assignment laws(graph, a, hf), laws_of_file(other, b, hf);
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    if (laws.blocks(i).front().distribution != laws_of_file.blocks(i).front().distribution) return graph.params[i].name;
  }
  return {};
}

// A size that the file declares; null: it does not.
nlohmann::ordered_json declared(const SizeValues& sizes, std::string_view name) {
  for (const auto& [size, value] : sizes) {
    if (size != name || !value.is_number()) continue;
    return value.is_whole() ? nlohmann::ordered_json(value.whole()) : nlohmann::ordered_json(value.number());
  }
  return nullptr;
}

// Where the class of the family differs from what hf makes of a file that says nothing.
void add_laws(const Architecture& a, Graph& graph) {
  const Scheme& hf = **find_scheme("hf");
  Architecture plain = a;
  plain.family = "file";
  for (Param& p : graph.params) {
    const Distribution law = hf.assign(a, p);
    if (law != hf.assign(plain, p)) p.law = law;
  }
}

}  // namespace

nlohmann::ordered_json describe_as_graph(const Architecture& a) {
  Graph graph = build_graph(a);
  if (!a.own) add_laws(a, graph);
  SizeValues sizes = a.own ? a.own->sizes : SizeValues{{"positions", a.positions}, {"init_std", a.init_std}};
  for (const auto& [name, value] : a.own ? a.own->settings : SizeValues{}) {
    for (auto& [size, now] : sizes) now = size == name ? value : now;
  }
  nlohmann::ordered_json out = {
      {"schema", graph_schema}, {"name", a.name}, {"positions", declared(sizes, "positions")}, {"init_std", declared(sizes, "init_std")}};
  out.update(graph_json(graph));
  return out;
}

Expected<std::string> describe_as_file(const Architecture& a) {
  if (a.own && a.own->is_graph) return fail(fmt::format("{}: a canonical graph is not turned back into a text", show(a.own->file)));
  if (a.own && !a.own->changes.empty()) {
    return fail(fmt::format("{}: {} changes the graph, and no size of the file says so", show(a.name), a.own->changes.front()),
                "write it into the file; describe --json shows the graph");
  }
  if (a.own) {
    const auto built = build_text(*a.own);
    if (!built) return std::unexpected(built.error());
    return a.own->set.empty() && !a.own->config ? a.own->text : with_sizes(a.own->text, a.own->config ? a.name : built->name, built->sizes);
  }
  auto text = fill_family_file(a);
  if (!text) return text;
  auto read = load_text(*text, a.name);
  auto done = read ? resolve(*read) : Expected<void>(std::unexpected(read.error()));
  if (!done) return std::unexpected(done.error());
  const std::string differs = difference(a, build_graph(a), *read, *read->graph);
  if (differs.empty()) return text;
  return fail(
      fmt::format("{}: the file of family {} does not say all that is asked: it differs at {}", show(a.name), show(a.family), differs),
      "describe without --set, and edit the file; or describe --json");
}

}  // namespace stepzero
