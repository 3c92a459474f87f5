#pragma once
// Adapters in files, as the peft library writes them: adapter_config.json says which modules have one, adapter_model.safetensors holds
// A and B of each.
#include <string>
#include <string_view>

#include "stepzero/graph/graph.hpp"
#include "stepzero/io/checkpoint_files.hpp"
#include "stepzero/models/lora.hpp"

namespace stepzero {

// `path` is the directory or its adapter_model.safetensors. What this program cannot run (DoRA, ranks that differ from module to
// module, ...) is an error.
Expected<Lora> read_adapter_config(const std::string& path);

// The tensors of such a path.
Expected<CheckpointFiles> open_adapter(const std::string& path);

// The text of adapter_config.json for a graph that has adapters.
std::string adapter_config(const Graph& graph, const Lora& lora, const std::string& model);

// The adapters' parameters alone, without nodes: what `init` writes.
Graph adapters_of(const Graph& graph);

}  // namespace stepzero
