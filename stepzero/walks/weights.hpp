#pragma once
// The weights of a pass: drawn under a scheme, or read from a checkpoint; all at once, or one tensor at a time.
#include <functional>
#include <string>
#include <vector>

#include "stepzero/io/checkpoint_files.hpp"
#include "stepzero/io/safetensors.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/walks/pass.hpp"

namespace stepzero {

// What the scheme says of each parameter.
Assignment distributions_of(const Graph& graph, const Architecture& a, const Scheme& scheme);

// Bits depend on (seed, tensor name, element index, distribution) alone. Of a tensor that `weightless` leaves unmade,
// the explicit rows are drawn: the same bits as in the whole.
template <class S>
void draw_weights(Pass<S>& pass, const Graph& graph, const Architecture& a, const Scheme& scheme, std::uint64_t seed,
                  const Weightless* weightless = nullptr);

// The same for tensors with laws of their own.
template <class S>
void draw_weights(Pass<S>& pass, const Graph& graph, const Assignment& laws, std::uint64_t seed, const Weightless* weightless = nullptr);

// Makes all the numbers of one parameter, the same at every call: what a streamed pass asks for, and a whole one once.
using WeightMaker = std::function<Expected<void>(std::size_t param, View<float> w)>;

// Drawn, and rounded to what a file of this type would hold. The graph and the laws must outlive it.
WeightMaker drawn_weights(const Graph& graph, const Assignment& laws, std::uint64_t seed, DType dtype = DType::F32);

// Read from a checkpoint, which must outlive it. Every tensor of the graph must be there, in its shape; warns of tensors that
// are not used.
Expected<WeightMaker> stored_weights(const Graph& graph, const Architecture& a, const CheckpointFiles& file,
                                     std::vector<std::string>& warnings);

// The tensor under this name, or under another that files give it. Null: none.
const CheckpointTensor* find_tensor(const CheckpointFiles& file, const std::string& name, std::string_view optional_prefix);

bool expected_extra(const std::string& name, bool tied);

// Every tensor of the graph must be there, in its shape. Returns warnings about tensors that were not used.
template <class S>
Expected<std::vector<std::string>> load_weights(Pass<S>& pass, const Graph& graph, const Architecture& a, const CheckpointFiles& file);

extern template void draw_weights(Pass<float>&, const Graph&, const Architecture&, const Scheme&, std::uint64_t, const Weightless*);
extern template void draw_weights(Pass<double>&, const Graph&, const Architecture&, const Scheme&, std::uint64_t, const Weightless*);
extern template void draw_weights(Pass<float>&, const Graph&, const Assignment&, std::uint64_t, const Weightless*);
extern template void draw_weights(Pass<double>&, const Graph&, const Assignment&, std::uint64_t, const Weightless*);
extern template Expected<std::vector<std::string>> load_weights(Pass<float>&, const Graph&, const Architecture&, const CheckpointFiles&);
extern template Expected<std::vector<std::string>> load_weights(Pass<double>&, const Graph&, const Architecture&, const CheckpointFiles&);

}  // namespace stepzero
