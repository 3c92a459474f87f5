#pragma once
// Small checkpoints made as a scheme says, then spoiled in one way; and what the audit says of them.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stepzero/audit/audit.hpp"
#include "stepzero/io/checkpoint_files.hpp"
#include "stepzero/io/safetensors.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/theory/scheme_profile.hpp"
#include "stepzero/weights/tensor_draw.hpp"
#include "tests/hostile/scratch.hpp"

namespace stepzero::testing {

using Weights = std::map<std::string, std::vector<float>>;

struct Small {
  Architecture a;  // what a config.json would say
  Graph graph;
  Assignment assignment;
  const Scheme* scheme = nullptr;

  [[nodiscard]] Weights draw(std::uint64_t seed) const {
    Weights w;
    for (std::size_t i = 0; i < graph.params.size(); ++i) w[graph.params[i].name] = draw_tensor(graph, assignment, i, seed);
    for (std::size_t i = 0; i < graph.params.size(); ++i) {
      for (Index c = 0; assignment.zero_row(i) >= 0 && c < graph.params[i].cols(); ++c)
        w[graph.params[i].name][static_cast<std::size_t>(assignment.zero_row(i) * graph.params[i].cols() + c)] = 0;
    }
    return w;
  }
  [[nodiscard]] std::string write(const Scratch& scratch, const Weights& w) const {
    std::vector<TensorData> list;
    for (const Param& p : graph.params) list.push_back({p.name, {p.shape.begin(), p.shape.end()}, w.at(p.name)});
    const std::string path = scratch.path("model.safetensors");
    const auto done = write_safetensors(path, list, {}, true);
    EXPECT_TRUE(done) << done.error().message;
    return path;
  }
};

inline Small small_model(const std::string& preset, const std::vector<std::string>& set, const std::string& scheme, bool by_part = false) {
  Small m;
  m.a = *load_model(preset);
  for (const std::string& s : set) EXPECT_TRUE(set_field(m.a, s).has_value()) << s;
  EXPECT_TRUE(resolve(m.a).has_value());
  m.scheme = *find_scheme(scheme);
  const auto done = adapt(m.a, *m.scheme, profile);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  m.a.changes.clear();
  m.graph = build_graph(m.a);
  Scheme asked = *m.scheme;
  asked.by_part = asked.by_part || by_part;
  m.assignment = Assignment(m.graph, m.a, asked);
  return m;
}

inline Small small_gpt2(const std::string& scheme, bool by_part = false) {
  return small_model("gpt2", {"layers=3", "width=64", "heads=4", "vocab=97", "positions=48"}, scheme, by_part);
}
inline Small small_llama(const std::string& scheme) {
  return small_model("llama-2-7b", {"layers=3", "width=64", "heads=4", "kv_heads=4", "ffn=160", "vocab=97", "positions=48"}, scheme);
}
inline Small small_roberta(const std::string& scheme) {
  return small_model("roberta-base", {"layers=2", "width=64", "heads=4", "ffn=128", "vocab=97", "positions=48"}, scheme);
}

inline Audit audit_file(const std::string& path, const std::optional<Architecture>& model, const Scheme* scheme) {
  const auto files = CheckpointFiles::open(path);
  EXPECT_TRUE(files) << files.error().message;
  AuditOptions options;
  options.model = model;
  options.scheme = scheme;
  options.consequences = false;
  auto result = audit(*files, options);
  EXPECT_TRUE(result) << result.error().message;
  for (TensorVerdict& v : result->tensors) v.census.tensor = nullptr;  // the file is closed
  return std::move(*result);
}

inline std::string told(const Audit& a) {
  std::string out = "scheme " + a.scheme + "\n";
  for (const Finding& f : a.findings) out += std::string(to_string(f.severity)) + " " + f.id + " " + f.where + ": " + f.evidence + "\n";
  return out;
}

}  // namespace stepzero::testing
