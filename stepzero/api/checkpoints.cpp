#include "stepzero/api/checkpoints.hpp"

#include <filesystem>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "stepzero/api/setup.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/models/config_export.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/models/own_file.hpp"
#include "stepzero/weights/adapter.hpp"

namespace stepzero {

namespace {

std::map<std::string, std::string> metadata_of(const ModelRequest& model, const Architecture& a, const InitRequest& request) {
  std::map<std::string, std::string> m = {{"format", "pt"},
                                          {"stepzero.version", version()},
                                          {"stepzero.model", a.name},
                                          {"stepzero.scheme", model.scheme},
                                          {"stepzero.seed", fmt::format("{}", request.seed)}};
  if (!model.set.empty()) m["stepzero.set"] = fmt::format("{}", fmt::join(model.set, " "));
  if (!model.lora.empty()) m["stepzero.lora"] = model.lora;
  if (!a.changes.empty()) m["stepzero.changes"] = fmt::format("{}", fmt::join(a.changes, " "));
  return m;
}

const char* torch_name(DType dtype) { return dtype == DType::F32 ? "float32" : dtype == DType::BF16 ? "bfloat16" : "float16"; }

Expected<std::string> config_of(const ModelRequest& model, const Architecture& a, const InitRequest& request, DType dtype) {
  auto config = model_config(model.model);
  if (!config) return std::unexpected(config.error());
  nlohmann::ordered_json& c = *config;
  std::vector<std::string> set;
  if (a.own && !a.own->config) {  // a file of its own has no keys for what --set says
    for (const std::string& assignment : a.own->set) set.push_back(assignment);
    if (!a.own->is_graph) c["set"] = set;
    c["torch_dtype"] = torch_name(dtype);
    c["stepzero"] = {{"version", version()}, {"scheme", model.scheme}, {"seed", request.seed}};
    return c.dump(2) + "\n";
  }
  if (!model.like.empty()) c["model_type"] = a.family;
  c["torch_dtype"] = torch_name(dtype);
  if (c.contains("stepzero") && c["stepzero"].contains("set")) set = c["stepzero"]["set"].get<std::vector<std::string>>();
  c.erase("stepzero");
  set.insert(set.end(), model.set.begin(), model.set.end());
  set.insert(set.end(), a.changes.begin(), a.changes.end());
  set = express(c, set);
  c["stepzero"] = {{"version", version()}, {"scheme", model.scheme}, {"seed", request.seed}, {"set", set}};
  return c.dump(2) + "\n";
}

Expected<std::string> adapter_config_of(const ModelRequest& model, const Architecture& a) {
  const auto lora = parse_lora(model.lora);
  if (!lora) return std::unexpected(lora.error());
  const auto graph = graph_of(a, {.lora = model.lora});
  if (!graph) return std::unexpected(graph.error());
  return adapter_config(*graph, *lora, model.model);
}

constexpr std::uint64_t all_in_one = std::numeric_limits<std::uint64_t>::max();  // bytes: readers of adapters know one file

}  // namespace

Expected<DType> dtype_of(const std::string& name) {
  if (name == "f32") return DType::F32;
  if (name == "bf16") return DType::BF16;
  if (name == "f16") return DType::F16;
  return fail(fmt::format("\"{}\" is no type of numbers", show(name)), "one of f32, bf16, f16");
}

Expected<Graph> graph_to_write(const ModelRequest& model, const Architecture& a) {
  auto graph = graph_of(a, {.lora = model.lora});
  if (graph && !model.lora.empty()) return adapters_of(*graph);
  return graph;
}

Expected<CheckpointOptions> checkpoint_options(const ModelRequest& model, const Architecture& a, const InitRequest& request) {
  const auto dtype = dtype_of(request.dtype);
  if (!dtype) return std::unexpected(dtype.error());
  const bool adapters = !model.lora.empty();
  auto config = adapters ? adapter_config_of(model, a) : config_of(model, a, request, *dtype);
  if (!config) return std::unexpected(config.error());
  return CheckpointOptions{.path = request.path,
                           .dtype = *dtype,
                           .seed = request.seed,
                           .max_shard_bytes = adapters ? all_in_one : request.max_shard_bytes,
                           .maker = request.maker,
                           .makers = request.makers,
                           .only = request.only,
                           .replace = request.replace,
                           .metadata = metadata_of(model, a, request),
                           .stem = adapters ? "adapter_model" : "model",
                           .config = std::move(*config),
                           .config_name = adapters ? "adapter_config.json" : "config.json"};
}

Expected<std::optional<Architecture>> model_of_weights(const AuditRequest& request) {
  namespace fs = std::filesystem;
  std::string config = request.config;
  if (config.empty()) {
    std::error_code ignored;
    const bool folder = fs::is_directory(request.path, ignored);
    const fs::path beside = (folder ? fs::path(request.path) : fs::path(request.path).parent_path()) / "config.json";
    const bool own = folder || fs::path(request.path).filename() == "model.safetensors";
    if (!own || !fs::is_regular_file(beside, ignored)) return std::nullopt;
    config = beside.string();
    if (!load_model(config, request.like)) return std::nullopt;  // a file beside the weights that is of no use
  }
  auto a = find_architecture(config, request.set, request.like);
  if (!a) return std::unexpected(a.error());
  return std::move(*a);
}

}  // namespace stepzero
