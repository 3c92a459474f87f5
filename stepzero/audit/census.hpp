#pragma once
// One tensor of a checkpoint, read at the speed of memory: what its numbers are like, as a whole and in its parts, and
// what it is like as a matrix.
#include <optional>
#include <string>
#include <vector>

#include "stepzero/audit/tensor_summary.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/io/checkpoint_files.hpp"

namespace stepzero {

// How a tensor falls into pieces that are looked at one by one: query, key and value of a fused projection; the row of
// padding. Blocks do not overlap, and together they are the tensor.
struct TensorLayout {
  struct Block {
    Index row0, col0, rows, cols;
    std::size_t piece;
  };
  Index rows = 0, cols = 0;
  std::vector<Block> blocks;
  std::vector<Role> pieces;                 // what each of them is
  std::optional<std::size_t> padding = {};  // the piece that is the row of padding

  static TensorLayout whole(const CheckpointTensor& tensor, Role role);
  // `transposed`: the file holds the tensor the other way round.
  static TensorLayout of(const Param& param, bool transposed);
  // What a box of the tensor has of it; a piece may have nothing there.
  [[nodiscard]] TensorLayout within(const CheckpointTensor& box) const;
};

// Of W'W, from a random vector: the largest singular value, and by how many of their size the sum of squares could be
// made ((sum s^2)^2 / sum s^4).
struct Spectrum {
  double top = 0;
  double effective_rank = 0;
  bool orthogonal = false;  // all singular values are equal
};

struct PieceCensus {
  Role role = Role::gain;
  Index rows = 0, cols = 0;
  Summary summary;
  double diagonal = 0;     // mean of the entries (i, i)
  bool scattered = false;  // it lies in several blocks, each drawn by itself
  std::optional<Spectrum> spectrum;
};

// Rows or columns that are all zero, or equal to another.
struct Lines {
  Index dead = 0, first_dead = -1;
  Index repeated = 0, first_repeated = -1, first_original = -1;
};

struct TensorCensus {
  const CheckpointTensor* tensor = nullptr;
  bool analysed = false;  // its type can be read
  Summary whole;
  std::vector<PieceCensus> pieces;
  std::optional<std::size_t> padding;
  Lines rows, columns;
  std::vector<float> sample;  // its first numbers
};

struct CensusOptions {
  bool moments_only = false;
};

// Tensors in the order of `layouts`; `progress` is told the bytes done, from any thread.
Expected<std::vector<TensorCensus>> take_census(const CheckpointFiles& files, const std::vector<const CheckpointTensor*>& tensors,
                                                const std::vector<TensorLayout>& layouts, const CensusOptions& options,
                                                const std::function<void(std::uint64_t bytes)>& progress = {});

}  // namespace stepzero
