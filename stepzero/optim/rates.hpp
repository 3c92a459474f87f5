#pragma once
// Rates, decay and eps of single tensors, as a table: what muP, CompleteP or layer-wise decay ask for needs no code.
//
//   {"schema": "stepzero.rates/1", "rates": [
//     {"tensor": "*.mlp.*.weight", "times": 0.25},
//     {"role": "token_embedding", "rate": 0.01, "decay": 0, "eps": 1e-12},
//     {"layer": 3, "times": 0.5} ]}
//
// A row is for the tensors that its `tensor` (a pattern: * and ?), `role` and `layer` all fit. Rows come one after the other: `times`
// multiplies what the rows before it left, the others replace it.
#include <optional>
#include <string>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/graph/param.hpp"
#include "stepzero/optim/turn.hpp"

namespace stepzero {

struct RateRow {
  std::string tensor = {};  // empty: any
  std::optional<Role> role = {};
  std::optional<int> layer = {};
  std::optional<double> rate = {}, times = {}, decay = {}, eps = {};

  [[nodiscard]] bool fits(const Param& param) const;
};

struct RateTable {
  std::vector<RateRow> rows = {};

  [[nodiscard]] TensorRate apply(const Param& param, TensorRate rate) const;
};

// From a file, or from what `transfer` writes (stepzero.transfer/1); every row must fit a tensor of the model.
Expected<RateTable> read_rates(const std::string& path, const std::vector<Param>& params);

}  // namespace stepzero
