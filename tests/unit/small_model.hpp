#pragma once
// A model with its graph and its tokens, as tests of predictions make them.
#include <string>
#include <utility>
#include <vector>

#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"

namespace stepzero {

struct SmallModel {
  Architecture a;
  Graph graph;
  Batch batch;
};

inline SmallModel small_model(const std::string& preset, const std::vector<std::string>& set, const std::string& tokens, Index length,
                              Index sequences = 1) {
  Architecture a = load_model(preset).value();
  for (const std::string& assignment : set) set_field(a, assignment).value();
  resolve(a).value();
  Graph graph = build_graph(a);
  Batch batch =
      make_batch({.source = tokens, .length = length, .sequences = sequences, .vocab = a.vocab, .positions = a.positions}).value();
  return {a, std::move(graph), std::move(batch)};
}

}  // namespace stepzero
