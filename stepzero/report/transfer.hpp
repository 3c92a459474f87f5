#pragma once
// A transfer as it is shown: text, JSON (stepzero.transfer/1), parameter groups of PyTorch, a table of rates (stepzero.rates/1).
#include <string>
#include <vector>

#include "stepzero/models/architecture.hpp"
#include "stepzero/optim/options.hpp"
#include "stepzero/report/terminal_style.hpp"
#include "stepzero/schemes/transfer.hpp"

namespace stepzero {

// What the first update of a kind of tensor does to the output of its nodes, in the base and in the target, and what the parametrization
// wants of their ratio.
struct TransferEffect {
  std::string tensor, base_tensor;
  Role role = Role::gain;
  int layer = -1;
  double base = 0, target = 0, wanted = 1;

  [[nodiscard]] double ratio() const { return target / base / wanted; }
};

struct TransferSubject {
  Architecture base, target;
  Graph base_graph, target_graph;
  const Scheme* scheme = nullptr;
  std::string optimizer;
  OptimizerOptions options;  // of the base, settled
  Transfer transfer;
  std::vector<TransferEffect> effects;  // empty: not looked at
};

std::string transfer_text(const TransferSubject& subject, const Look& look, bool full);
std::string transfer_json(const TransferSubject& subject);
std::string transfer_torch(const TransferSubject& subject, const std::string& command);
std::string transfer_table(const TransferSubject& subject);

}  // namespace stepzero
