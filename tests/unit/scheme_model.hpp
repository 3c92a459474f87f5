#pragma once
// Two small models without a square matrix, under any scheme.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero::testing {

struct Model {
  Architecture a;
  Graph graph;
  Assignment assignment;

  [[nodiscard]] std::size_t index(const std::string& name) const {
    for (std::size_t i = 0; i < graph.params.size(); ++i) {
      if (graph.params[i].name == name) return i;
    }
    ADD_FAILURE() << "no tensor " << name;
    return 0;
  }
  [[nodiscard]] const Distribution& of(const std::string& name, std::size_t block = 0) const {
    return assignment.blocks(index(name)).at(block).distribution;
  }
};

// A profile with simple numbers: variances 1, 2, 3, ... and attention that leaves a quarter.
inline Expected<Profile> simple_profile(const Architecture& a, const Scheme&) {
  Profile p;
  for (Index i = 0; i < 2 * a.layers; ++i) p.branch_variances.push_back(static_cast<double>(i + 1));
  p.mixing.assign(static_cast<std::size_t>(a.layers), 0.25);
  return p;
}

inline Model model(const std::string& preset, const std::vector<std::string>& set, const std::string& scheme) {
  Model m;
  m.a = *load_model(preset);
  for (const std::string& s : set) EXPECT_TRUE(set_field(m.a, s).has_value()) << s;
  EXPECT_TRUE(resolve(m.a).has_value());
  const Scheme* found = *find_scheme(scheme);
  const auto done = adapt(m.a, *found, simple_profile);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  m.graph = build_graph(m.a);
  m.assignment = Assignment(m.graph, m.a, *found);
  return m;
}

// Nothing is square: q (60, 48), k and v (30, 48), o (48, 60), up and gate (112, 48), down (48, 112); 5 layers.
inline Model llama(const std::string& scheme, const std::vector<std::string>& more = {}) {
  std::vector<std::string> set = {"layers=5", "width=48", "heads=6",      "kv_heads=3",   "head_dim=10",
                                  "ffn=112",  "vocab=97", "positions=64", "init_std=0.02"};
  set.insert(set.end(), more.begin(), more.end());
  return model("llama-2-7b", set, scheme);
}

// One tensor for q, k and v, stored (in, out): (40, 120); fc (40, 96), proj (96, 40); 3 layers, tied.
inline Model gpt2(const std::string& scheme) {
  return model("gpt2", {"layers=3", "width=40", "heads=4", "ffn=96", "vocab=97", "positions=64", "init_std=0.02"}, scheme);
}

}  // namespace stepzero::testing
