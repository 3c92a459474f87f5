#pragma once
// Transfer: every tensor's law, rate, decay and eps, and the scales of the forward pass, carried from a base model to a target.
#include <string>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/schemes/transfer_rules.hpp"

namespace stepzero {

// How an optimizer updates one tensor.
struct BaseUpdate {
  UpdateRule rule = UpdateRule::adam;
  double rate = 0, decay = 0, eps = 0;
  double size = 1;  // of the factor that the optimizer itself puts on the tensor
};

// A model with what its optimizer does to each of its tensors.
struct TransferSide {
  const Architecture* architecture = nullptr;
  const Graph* graph = nullptr;
  std::vector<BaseUpdate> updates = {};  // of the target only rule and size count
};

struct TransferOptions {
  Parametrization parametrization = Parametrization::mup;
  bool zero_output = false;  // a head that is not tied begins at 0
  bool zero_query = false;   // queries begin at 0
};

struct CarriedTensor {
  std::size_t param = 0, base = 0;  // of the target's graph and of the base's
  TensorKind kind = TensorKind::hidden;
  Ratios ratios;
  struct Block {
    std::optional<Role> part = {};  // empty: all of the tensor
    Distribution base, law;
  };
  std::vector<Block> blocks;
  BaseUpdate before, after;
};

struct ChangedScale {
  std::string field;
  std::string base, target;  // values
};

struct Transfer {
  Parametrization parametrization = Parametrization::mup;
  double width = 1, depth = 1, head_dim = 1;  // target over base
  std::vector<std::string> by_scheme;         // what the scheme itself changes in the target, as "field=value"
  std::vector<ChangedScale> scales;           // of the forward pass
  std::vector<CarriedTensor> tensors;
  std::vector<std::string> notes;

  [[nodiscard]] std::vector<std::string> set() const;  // all that changes in the target: "field=value"
};

// Both descriptions are as `scheme` left them.
Expected<Transfer> transfer(const TransferSide& base, const TransferSide& target, const Scheme& scheme, const TransferOptions& options);

}  // namespace stepzero
