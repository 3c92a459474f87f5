#pragma once
// model.safetensors.index.json: which shard holds which tensor.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "stepzero/core/error.hpp"

namespace stepzero {

constexpr std::size_t kMostShards = 10'000;
constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{64} << 20;

struct ShardIndex {
  std::map<std::string, std::string> shard_of;
  std::set<std::string> shards;
  std::optional<std::uint64_t> total_size;
};

Expected<ShardIndex> parse_shard_index(std::string_view text, const std::string& file_name);

}  // namespace stepzero
