#pragma once
// A checkpoint as it lies on disk: one file, or a directory with one file or with shards and their index.
#include <map>
#include <string>
#include <vector>

#include "stepzero/io/safetensors.hpp"

namespace stepzero {

struct CheckpointFiles {
  struct Place {
    std::size_t file;
    const TensorInfo* tensor;
  };
  std::vector<SafetensorsFile> files;
  std::map<std::string, Place> tensors;

  // Every tensor the index names must be in the shard it names, and no shard may hold another.
  static Expected<CheckpointFiles> open(const std::string& path);
};

// A file *.safetensors, or a directory that holds a checkpoint.
bool is_checkpoint(const std::string& path);

}  // namespace stepzero
