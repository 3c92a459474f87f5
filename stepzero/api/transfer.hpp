#pragma once
// From a request to a transfer: two models, what an optimizer does to each tensor of both, and a look at the effects.
#include <string>

#include "stepzero/optim/rates.hpp"
#include "stepzero/report/transfer.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero {

// Of the request its rules: what the two models are is told apart.
Expected<TransferSubject> run_transfer(const ModelRequest& base, const ModelRequest& target, const TransferRequest& request);

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
