#pragma once
// A run as it lies on disk: one safetensors file with the weights under their own names, what the optimizer remembers, and the record.
// It appears whole or not at all, so that a run that is killed goes on from its last one, to the bit.
//
//   NAME                     a weight
//   optimizer.K.NAME         the K-th memory of the optimizer for it
//   __metadata__             "stepzero.train": {"settings": {...}, "updates": n, "counts": [...], "record": {...}}
#include <string>

#include <nlohmann/json.hpp>

#include "stepzero/train/record.hpp"

namespace stepzero {

// What a run depends on, key by key: a state whose settings differ belongs to another run.
using RunSettings = nlohmann::ordered_json;

Expected<void> save_state(const std::string& path, const Graph& graph, TrainRun<float>& run, const RunRecord& record,
                          const RunSettings& settings);
// Puts the run and its record where they stood.
Expected<void> load_state(const std::string& path, const Graph& graph, TrainRun<float>& run, RunRecord& record,
                          const RunSettings& settings);

}  // namespace stepzero
