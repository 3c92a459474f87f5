#pragma once
// What a fuzzer's bytes must do to the language and to what is built with it: end soon, and mean the same when read again.
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/graph/graph_json.hpp"
#include "stepzero/graph/sources.hpp"
#include "stepzero/lang/evaluator.hpp"
#include "stepzero/models/own_file.hpp"

namespace stepzero::fuzz {

// Whatever a message quotes can be shown on a terminal.
inline std::string shown(const Error& e) {
  for (std::size_t begin = 0; begin <= e.message.size();) {
    const std::size_t end = std::min(e.message.find('\n', begin), e.message.size());
    if (!printable(std::string_view(e.message).substr(begin, end - begin))) return "a message that no terminal should get";
    begin = end + 1;
  }
  return e.message.empty() ? "an error without a message" : "";
}

inline std::string language(std::string_view text) {
  lang::Evaluator evaluator({.steps = 20'000});
  const auto done = evaluator.run({"f", std::string(text)});
  return done ? "" : shown(done.error());
}

// A graph that is accepted is written and read again as it was, and can be asked about.
inline std::string again(const Graph& graph) {
  const std::string written = graph_json(graph).dump();
  const auto read = read_graph(nlohmann::json::parse(written), "f");
  if (!read) return "refused when read again: " + read.error().message;
  if (graph_json(*read).dump() != written) return "another graph when read again";
  static_cast<void>(check_sources(graph));
  Architecture a;
  describe_graph(a, graph);
  return a.vocab < 1 || a.width < 1 ? "a model without size" : "";
}

inline std::string architecture(std::string_view text) {
  const auto built = build_text(std::string(text), "f");
  return built ? again(built->graph) : shown(built.error());
}

inline std::string graph(std::string_view text) {
  const auto tree = nlohmann::json::parse(text, nullptr, false);
  if (tree.is_discarded()) return "";
  const auto read = read_graph(tree, "f");
  return read ? again(*read) : shown(read.error());
}

}  // namespace stepzero::fuzz
