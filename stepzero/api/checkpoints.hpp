#pragma once
// Checkpoints and the models they belong to: what init writes beside the weights, and how audit finds the model of a file.
#include <optional>
#include <string>
#include <vector>

#include "stepzero/stepzero.hpp"
#include "stepzero/weights/checkpoint.hpp"

namespace stepzero {

// The options of write_checkpoint(): with metadata from which the file can be made again, and the model's own configuration with what
// `set` and the scheme changed: read again, it gives the same model `a`.
// Of a model with adapters: the adapters' own files.
Expected<CheckpointOptions> checkpoint_options(const ModelRequest& model, const Architecture& a, const InitRequest& request);

// The parameters that are written: those of the model, or of its adapters where it has some.
Expected<Graph> graph_to_write(const ModelRequest& model, const Architecture& a);

// The model that weights belong to: what the request names, else the config.json beside them. None where there is none that is of use.
Expected<std::optional<Architecture>> model_of_weights(const AuditRequest& request);

// "f32", "bf16", "f16"
Expected<DType> dtype_of(const std::string& name);

}  // namespace stepzero
