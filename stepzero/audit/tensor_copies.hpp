#pragma once
// Tensors that are not independent: copies, and matrices made from one stream of random numbers.
#include <vector>

#include "stepzero/audit/census.hpp"

namespace stepzero {

struct Similar {
  std::size_t first = 0, second = 0;  // of the list given
  double correlation = 0;             // of their first numbers, as many as both have, at most 4096
  bool same_bits = false;
};

// Pairs whose correlation is at least 1/2 in size. Independent numbers of this many come nowhere near.
Expected<std::vector<Similar>> find_similar(const CheckpointFiles& files, const std::vector<TensorCensus>& list);

// Whether two tensors hold the same bytes.
Expected<bool> same_bytes(const CheckpointFiles& files, const CheckpointTensor& a, const CheckpointFiles& other_files,
                          const CheckpointTensor& b);

double correlation(const std::vector<float>& a, const std::vector<float>& b, std::size_t most);

}  // namespace stepzero
