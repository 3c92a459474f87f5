#pragma once
// From a request to a transfer: two models, what an optimizer does to each tensor of both, and a look at the effects.
#include <memory>

#include "stepzero/optim/optimizer.hpp"
#include "stepzero/report/transfer.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero {

struct TransferRequest {
  ModelRequest base, target;
  std::string parametrization = "mup";
  std::string optimizer = "adamw";  // sgd, adamw, lion, muon, sophia, shampoo, soap, sso
  OptimizerOptions options = {};    // of the base; its name is not read
  std::string rates = {};           // a table of the base's single tensors
  bool zero_output = false, zero_query = false;
};

Expected<TransferSubject> run_transfer(const TransferRequest& request);

// The target as it is run: with its scales, drawn by its laws, updated by its rates.
struct CarriedModel {
  Architecture architecture;
  const Scheme* scheme = nullptr;
  RateTable rates;
};
Expected<CarriedModel> target_of(const TransferSubject& subject);

// A step of the base and of the target, each as drawn under its own laws: subject.effects.
Expected<void> look_at_effects(TransferSubject& subject, const InputOptions& input, std::uint64_t seed, int seeds, const Watch& watch);

// What a rule of stepzero's optimizers does to each tensor, in the words of transfers.
std::vector<BaseUpdate> updates_of(const Graph& graph, const OptimizerOptions& settled, const RateTable& rates = {});

// The rates of the target, as a table of --rates.
RateTable rates_of(const Transfer& transfer, const Graph& target);

}  // namespace stepzero
