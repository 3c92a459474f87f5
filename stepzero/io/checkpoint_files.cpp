#include "stepzero/io/checkpoint_files.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/json.hpp"

namespace stepzero {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostShards = 512;  // each keeps a file open
constexpr const char* kIndex = "model.safetensors.index.json";

// Only a plain name beside the index: never a path.
bool is_shard_name(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  return name.size() <= 255 && !name.starts_with('.') && name.ends_with(".safetensors") && std::ranges::all_of(name, plain);
}

Expected<std::map<std::string, std::string>> read_index(const std::string& path) {
  constexpr std::uint64_t limit = 64 << 20;
  const auto text = read_text(path, limit);
  if (!text) return std::unexpected(text.error());
  const auto json = parse_json(*text, path, {.max_bytes = limit});
  if (!json) return std::unexpected(json.error());
  const auto map = json->is_object() ? json->find("weight_map") : json->end();
  if (!json->is_object() || map == json->end() || !map->is_object()) {
    return fail(fmt::format("{}: \"weight_map\" is missing", show(path)), "an index maps every tensor to its shard there");
  }
  std::map<std::string, std::string> shards;
  std::set<std::string> names;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !is_shard_name(shard.get<std::string>())) {
      return fail(fmt::format("{}: tensor \"{}\": {} is not the name of a shard", show(path), show(tensor), show(shard.dump())),
                  "a name like model-00001-of-00002.safetensors, without a directory");
    }
    shards[tensor] = shard.get<std::string>();
    names.insert(shard.get<std::string>());
  }
  if (names.size() > kMostShards) return fail(fmt::format("{}: {} shards, at most {} are read", show(path), names.size(), kMostShards));
  return shards;
}

Expected<CheckpointFiles> open_files(const std::vector<std::string>& paths) {
  CheckpointFiles found;
  for (const std::string& path : paths) {
    auto file = SafetensorsFile::open(path);
    if (!file) return std::unexpected(file.error());
    found.files.push_back(std::move(*file));
  }
  for (std::size_t f = 0; f < found.files.size(); ++f) {
    for (const TensorInfo& tensor : found.files[f].tensors()) {
      const auto [at, fresh] = found.tensors.emplace(tensor.name, CheckpointFiles::Place{f, &tensor});
      if (!fresh) {
        return fail(fmt::format("{}: tensor \"{}\" is in {} too", show(paths[f]), show(tensor.name), show(paths[at->second.file])));
      }
    }
  }
  return found;
}

Expected<CheckpointFiles> open_shards(const fs::path& directory) {
  const std::string index = (directory / kIndex).string();
  const auto map = read_index(index);
  if (!map) return std::unexpected(map.error());
  std::vector<std::string> paths;
  for (const auto& [tensor, shard] : *map) paths.push_back((directory / shard).string());
  std::ranges::sort(paths);
  const auto rest = std::ranges::unique(paths);
  paths.erase(rest.begin(), rest.end());
  auto found = open_files(paths);
  if (!found) return found;
  for (const auto& [tensor, shard] : *map) {
    const auto at = found->tensors.find(tensor);
    const bool there = at != found->tensors.end() && fs::path(paths[at->second.file]).filename() == shard;
    if (!there)
      return fail(fmt::format("{}: tensor \"{}\" is not in {}", show(index), show(tensor), show(shard)),
                  "the shards belong to another index");
  }
  for (const auto& [tensor, place] : found->tensors) {
    if (!map->contains(tensor)) {
      return fail(fmt::format("{}: tensor \"{}\" is not in the index", show(paths[place.file]), show(tensor)),
                  "the shards belong to another index");
    }
  }
  return found;
}

}  // namespace

Expected<CheckpointFiles> CheckpointFiles::open(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return open_files({path});
  if (fs::exists(fs::path(path) / kIndex, ignored)) return open_shards(path);
  return open_files({(fs::path(path) / "model.safetensors").string()});
}

bool is_checkpoint(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path.ends_with(".safetensors");
  return fs::exists(fs::path(path) / kIndex, ignored) || fs::exists(fs::path(path) / "model.safetensors", ignored);
}

}  // namespace stepzero
