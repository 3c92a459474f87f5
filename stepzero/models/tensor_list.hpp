#pragma once
// For families whose tensors are known and whose forward pass is not there yet.
#include <string>
#include <utility>

#include "stepzero/graph/graph.hpp"

namespace stepzero {

class TensorList {
 public:
  void matrix(const std::string& stem, Index in, Index out, Role role, int layer = -1, bool bias = false) {
    graph_.add_param({stem + ".weight", {out, in}, role, layer, in, out});
    if (bias) vector(stem + ".bias", out, Role::bias, layer);
  }
  void table(const std::string& name, Index rows, Index width, Role role, Index zero_row = -1) {
    graph_.add_param({name, {rows, width}, role, -1, rows, width, 1, zero_row});
  }
  void vector(const std::string& name, Index n, Role role, int layer = -1) { graph_.add_param({name, {n}, role, layer, 1, n}); }
  void norm(const std::string& stem, Index n, int layer = -1, bool bias = false) {
    vector(stem + ".weight", n, Role::gain, layer);
    if (bias) vector(stem + ".bias", n, Role::bias, layer);
  }
  void add(Param p) { graph_.add_param(std::move(p)); }
  Graph take() { return std::move(graph_); }

 private:
  Graph graph_;
};

}  // namespace stepzero
