#include "stepzero/train/state.hpp"

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/json.hpp"
#include "stepzero/io/safetensors.hpp"

namespace stepzero {

namespace {

using Json = nlohmann::ordered_json;
constexpr const char* key = "stepzero.train";

std::string memory_name(std::size_t k, const std::string& name) { return fmt::format("optimizer.{}.{}", k, name); }
std::vector<std::uint64_t> shape_of(const Param& p) { return {p.shape.begin(), p.shape.end()}; }

Json text_of(TrainRun<float>& run, const Graph& graph, const RunRecord& record, const RunSettings& settings) {
  Json out = {{"settings", settings}, {"updates", run.updates()}, {"counts", Json::array()}, {"record", to_json(record)}};
  for (std::size_t i = 0; i < graph.params.size(); ++i) out["counts"].push_back(run.optimizer().updates(static_cast<int>(i)));
  return out;
}

// Every tensor of a state, in the order of the model: visit(name, param, view). What is frozen is made again.
template <class Visit>
Expected<void> each_tensor(const Graph& graph, TrainRun<float>& run, const Visit& visit) {
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    const Param& p = graph.params[i];
    const int param = static_cast<int>(i);
    if (p.frozen) continue;
    if (auto done = visit(p.name, p, run.pass().weight(param)); !done) return done;
    std::size_t k = 0;
    for (Tensor<float>& memory : run.optimizer().memory(param)) {
      if (auto done = visit(memory_name(k++, p.name), p, memory.view()); !done) return done;
    }
  }
  return {};
}

Expected<void> compare(const std::string& path, const nlohmann::json& there, const RunSettings& here) {
  for (const auto& [name, value] : here.items()) {
    const nlohmann::json wanted = nlohmann::json::parse(value.dump());
    if (there.is_object() && there.contains(name) && there[name] == wanted) continue;
    const std::string found = there.is_object() && there.contains(name) ? there[name].dump() : "nothing";
    return fail(
        fmt::format("{}: it belongs to another run: its {} is {}, this one's {}", show(path), name, show(found), show(wanted.dump())),
        "resume with the flags it was begun with, or --save another directory");
  }
  return {};
}

}  // namespace

Expected<void> save_state(const std::string& path, const Graph& graph, TrainRun<float>& run, const RunRecord& record,
                          const RunSettings& settings) {
  std::vector<TensorData> tensors;
  const auto add = [&](const std::string& name, const Param& p, View<float> x) -> Expected<void> {
    tensors.push_back({name, shape_of(p), std::span<const float>(x.data, static_cast<std::size_t>(x.size()))});
    return {};
  };
  if (auto done = each_tensor(graph, run, add); !done) return done;
  return write_safetensors(path, tensors, {{"format", "pt"}, {key, text_of(run, graph, record, settings).dump()}}, true);
}

Expected<void> load_state(const std::string& path, const Graph& graph, TrainRun<float>& run, RunRecord& record,
                          const RunSettings& settings) {
  auto file = SafetensorsFile::open(path);
  if (!file) return std::unexpected(file.error());
  const auto none = [&](const std::string& what) {
    return fail(fmt::format("{}: {}", show(path), what), "--resume takes a directory that train --save has written");
  };
  const auto entry = file->metadata().find(key);
  if (entry == file->metadata().end()) return none("this is no state of a training run");
  const auto text = parse_json(entry->second, path, {.max_bytes = std::size_t{1} << 30, .max_values = 100'000'000});
  if (!text) return std::unexpected(text.error());
  const nlohmann::json& state = *text;
  for (const char* part : {"settings", "updates", "counts", "record"}) {
    if (!state.is_object() || !state.contains(part)) return none(fmt::format("the state of the run has no \"{}\"", part));
  }
  if (auto done = compare(path, state["settings"], settings); !done) return done;
  const auto read = [&](const std::string& name, const Param& p, View<float> x) -> Expected<void> {
    const TensorInfo* tensor = file->find(name);
    if (tensor == nullptr || tensor->shape != shape_of(p) || tensor->dtype != DType::F32) {
      return none(fmt::format("tensor \"{}\" is not there in the model's shape", show(name)));
    }
    return file->read_f32(*tensor, 0, std::span<float>(x.data, static_cast<std::size_t>(x.size())));
  };
  if (auto done = each_tensor(graph, run, read); !done) return done;
  if (!state["updates"].is_number_unsigned() || state["counts"].size() != graph.params.size())
    return none("its counts are not those of the model");
  for (std::size_t i = 0; i < graph.params.size(); ++i) run.optimizer().updates(static_cast<int>(i)) = state["counts"][i].get<Index>();
  run.set_updates(state["updates"].get<int>());
  auto there = record_from(state["record"], path);
  if (!there) return std::unexpected(there.error());
  record = std::move(*there);
  return {};
}

}  // namespace stepzero
