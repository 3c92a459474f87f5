#pragma once
// The weights of a model: drawn under a scheme, or read from a checkpoint; all at once, or one tensor at a time.
#include <functional>
#include <string>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/io/checkpoint_files.hpp"
#include "stepzero/io/safetensors.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

// What the scheme says of each parameter.
Assignment distributions_of(const Graph& graph, const Architecture& a, const Scheme& scheme);

// Makes all the numbers of one parameter, the same at every call: what a streamed pass asks for, and a whole one once.
template <class S>
using WeightMakerOf = std::function<Expected<void>(std::size_t param, View<S> w)>;
using WeightMaker = WeightMakerOf<float>;

// Drawn, and rounded to what a file of this type would hold. The graph and the laws must outlive it.
WeightMaker drawn_weights(const Graph& graph, const Assignment& laws, std::uint64_t seed, DType dtype = DType::F32);

// Read from a checkpoint, which must outlive it: the parameters of the model, but not those of adapters. Every tensor must be there, in
// its shape; warns of tensors that are not used.
template <class S = float>
Expected<WeightMakerOf<S>> stored_weights(const Graph& graph, const Architecture& a, const CheckpointFiles& file,
                                          std::vector<std::string>& warnings);

// The same for the parameters of adapters, and only those.
template <class S = float>
Expected<WeightMakerOf<S>> adapter_weights(const Graph& graph, const Architecture& a, const CheckpointFiles& file,
                                           std::vector<std::string>& warnings);

// The tensor under this name, or under another that files give it. Null: none.
const CheckpointTensor* find_tensor(const CheckpointFiles& file, const std::string& name, std::string_view optional_prefix);

// That of an adapter's parameter.
const CheckpointTensor* find_adapter(const CheckpointFiles& file, const std::string& name, std::string_view optional_prefix);

bool expected_extra(const std::string& name, bool tied);

}  // namespace stepzero
