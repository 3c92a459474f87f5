#include "stepzero/io/shard_index.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/json.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {

namespace {

// Only a plain name beside the index: never a path.
bool is_shard_name(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  return name.size() <= 255 && !name.starts_with('.') && name.ends_with(".safetensors") && std::ranges::all_of(name, plain);
}

}  // namespace

Expected<ShardIndex> parse_shard_index(std::string_view text, const std::string& file_name) {
  const auto json = parse_json(text, file_name, {.max_bytes = kMaxIndexBytes});
  if (!json) return std::unexpected(json.error());
  const auto map = json->is_object() ? json->find("weight_map") : json->end();
  if (rejects("index.weight-map", !json->is_object() || map == json->end() || !map->is_object())) {
    return fail(fmt::format("{}: \"weight_map\" is missing", show(file_name)), "an index maps every tensor to its shard there");
  }
  ShardIndex index;
  for (const auto& [tensor, shard] : map->items()) {
    if (rejects("index.shard-name", !shard.is_string() || !is_shard_name(shard.get<std::string>()))) {
      return fail(fmt::format("{}: tensor \"{}\": {} is not the name of a shard", show(file_name), show(tensor), show(shard.dump())),
                  "a name like model-00001-of-00002.safetensors, without a directory");
    }
    index.shard_of[tensor] = shard.get<std::string>();
    index.shards.insert(shard.get<std::string>());
    if (rejects("index.shard-count", index.shards.size() > kMostShards))
      return fail(fmt::format("{}: more than {} shards", show(file_name), kMostShards), "is this the file that was meant?");
  }
  if (rejects("index.empty", index.shards.empty()))
    return fail(fmt::format("{}: \"weight_map\" is empty", show(file_name)), "the file may not have been written completely");
  const auto metadata = json->find("metadata");
  const bool said = metadata != json->end() && metadata->is_object() && metadata->contains("total_size");
  if (said && (*metadata)["total_size"].is_number_unsigned()) index.total_size = (*metadata)["total_size"].get<std::uint64_t>();
  return index;
}

}  // namespace stepzero
