#pragma once
// A scheme as a file: the law of each tensor, and what it changes in the forward pass.
//
//   {"schema": "stepzero.scheme/1", "otherwise": "hf", "set": ["logit_scale=0.25"], "tensors": [
//     {"tensor": "*.mlp.c_fc.weight", "law": "normal", "std": 0.01},
//     {"tensor": "*.attn.c_attn.weight", "part": "query", "law": "constant", "mean": 0},
//     {"role": "token_embedding", "layer": -1, "law": "uniform", "std": 0.02} ]}
//
// A row is for the tensors that its `tensor` (a pattern: * and ?), `role` and `layer` all fit, or for one `part` of them; the last that
// fits counts. A row without a law is passed over, and what no row fits is drawn as the scheme `otherwise` says. What `transfer` writes
// (stepzero.transfer/1) is such a file.
#include <optional>
#include <string>
#include <vector>

#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

struct LawRow {
  std::string tensor = {};  // empty: any
  std::optional<Role> role = {};
  std::optional<int> layer = {};
  std::optional<Role> part = {};
  Distribution law = {};

  [[nodiscard]] bool fits(const Param& param) const;
};

struct SchemeFile {
  std::string path, summary;
  std::vector<std::string> set = {};
  std::vector<LawRow> laws = {};
  const Scheme* otherwise = nullptr;

  // Of a tensor, or of a part of it; null: the file says nothing.
  [[nodiscard]] const Distribution* law_of(const Param& param, const Part* part = nullptr) const;
  [[nodiscard]] bool speaks_of_parts(const Param& param) const;
};

// Kept as long as the program runs: schemes are pointed to from everywhere.
const Scheme* keep_scheme(SchemeFile file);
Expected<const Scheme*> read_scheme(const std::string& path);
// Each row must fit a tensor of the model.
Expected<void> check_fits(const SchemeFile& file, const Graph& graph);
// Its `set`, made in a description.
Expected<void> set_fields(Architecture& a, const SchemeFile& file);

// A law in the words of these files: "normal", "uniform", "truncated", "constant", "orthogonal", "diagonal", "mimetic".
std::string law_name(const Distribution& law);

}  // namespace stepzero
