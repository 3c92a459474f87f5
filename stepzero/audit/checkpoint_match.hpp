#pragma once
// A checkpoint and the model it belongs to: which tensor is which parameter.
#include <optional>
#include <string>
#include <vector>

#include "stepzero/audit/census.hpp"
#include "stepzero/io/checkpoint_files.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

struct Subject {
  Architecture architecture;
  bool known = false;                              // from a configuration; else guessed from names and shapes
  Graph graph;                                     // its parameters are those of the model; without nodes where it is guessed or cannot run
  std::vector<const CheckpointTensor*> tensor_of;  // of each parameter; null: missing
  std::vector<char> transposed;                    // the file holds it the other way round
  std::vector<const CheckpointTensor*> others;     // tensors that are no parameters
  std::vector<std::string> missing;                // parameters
  struct Misfit {
    std::string name, found, wanted;  // shapes
  };
  std::vector<Misfit> misfits;

  // Of parameters that have a tensor, in their order, then the other tensors.
  [[nodiscard]] std::vector<const CheckpointTensor*> tensors() const;
  [[nodiscard]] std::vector<TensorLayout> layouts() const;
};

// `model` has been resolved.
Subject make_subject(const CheckpointFiles& files, const std::optional<Architecture>& model);

}  // namespace stepzero
