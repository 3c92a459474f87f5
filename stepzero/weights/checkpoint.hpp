#pragma once
// Writes the weights of a model: one file, or a directory of shards with an index. Numbers are made and written in
// pieces by all threads at once, so memory does not grow with the model. One that is stopped (core/stop.hpp) leaves nothing half-done.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stepzero/io/safetensors.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

struct CheckpointOptions {
  std::string path = {};     // a file *.safetensors, or a directory
  DType dtype = DType::F32;  // or BF16, F16
  std::uint64_t seed = 0;
  std::uint64_t max_shard_bytes = 5'000'000'000;
  int maker = 1;  // of `makers` processes that share the shards of one directory
  int makers = 1;
  std::string only = {};  // a pattern of tensor names: * and ? ; empty: all
  bool replace = false;
  std::map<std::string, std::string> metadata = {};
  std::string stem = "model";               // of a directory's files: model.safetensors, model-00001-of-00002.safetensors
  std::string config = {};                  // the text of the configuration; empty: none is written
  std::string config_name = "config.json";  // ... of its file
  std::function<void(double share, double bytes)> progress = {};  // of the work, and what is written
};

struct CheckpointFile {
  std::string path;
  std::uint64_t bytes = 0;
  bool kept = false;  // it was there already, whole
};

struct CheckpointReport {
  std::vector<CheckpointFile> files;  // of this maker
  std::uint64_t tensors = 0;
  std::size_t shards_missing = 0;  // that other makers have yet to write
};

Expected<CheckpointReport> write_checkpoint(const Graph& graph, const Assignment& assignment, const CheckpointOptions& options);

}  // namespace stepzero
