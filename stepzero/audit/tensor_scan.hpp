#pragma once
// Readings of one tensor, cut into slabs that threads share. Internal to the census.
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "stepzero/audit/census.hpp"
#include "stepzero/kernels/census.hpp"

namespace stepzero {

// What a reading leaves of a piece.
struct PieceTally {
  PatternCounts counts;
  kernels::PowerSums sums;  // of floats, and of all when only moments are wanted
  double diagonal = 0;      // sum over (i, i)
  std::vector<float> z;     // W'W v, over the columns
};

class TensorScan {
 public:
  TensorScan(const CheckpointFiles& files, const CheckpointTensor& tensor, const TensorLayout& layout, const CensusOptions& options);

  [[nodiscard]] bool matrix() const { return matrix_; }
  [[nodiscard]] bool large() const { return slabs() > 1; }
  [[nodiscard]] Patterns patterns() const;
  [[nodiscard]] bool counted_exactly() const { return patterns() != Patterns::upper_halves; }

  using Progress = std::function<void(std::uint64_t bytes)>;
  // Everything at once; of a matrix also W'W v for each piece's v, and a key for each row.
  Expected<std::vector<PieceTally>> first(const std::vector<std::vector<float>>& v, std::vector<std::uint64_t>& row_keys,
                                          const Progress& progress) const;
  // W'W v alone.
  Expected<std::vector<PieceTally>> again(const std::vector<std::vector<float>>& v) const;

 private:
  struct Segment {
    Index col0, cols;
    std::size_t piece;
  };
  struct Band {  // rows that are cut alike
    Index row0, row1;
    std::vector<Segment> segments;
  };
  struct Chunk {  // neighbouring rows, in memory as they are stored
    const std::byte* data;
    Index row0, rows;
    std::size_t numbers;
  };
  struct Reading {
    bool count, step;
    const std::vector<std::vector<float>>* v;
    std::vector<std::uint64_t>* row_keys;
  };
  struct Slab {
    std::vector<PieceTally> pieces;
    std::vector<kernels::PatternRange> ranges;  // of what the thread's tables hold of each piece
    Expected<void> done;
  };

  [[nodiscard]] Index slabs() const;
  void cut_bands(const TensorLayout& layout);
  [[nodiscard]] Slab start_slab(const Reading& reading) const;
  Expected<void> read_slab(Index row0, Index row1, const Reading& reading, Slab& slab) const;
  void tally(const Chunk& chunk, const Band& band, Slab& slab) const;
  void tally_segment(const std::byte* at, const kernels::Rows& rows, std::size_t piece, Slab& slab) const;
  void tally_diagonal(const Chunk& chunk, const Band& band, Slab& slab) const;
  void step(const Chunk& chunk, const Band& band, const Reading& reading, Slab& slab) const;
  Expected<std::vector<PieceTally>> read(const Reading& reading, const Progress& progress) const;
  [[nodiscard]] std::size_t width() const { return stored_ == kernels::Stored::f32 ? 4 : 2; }
  [[nodiscard]] float number(const std::byte* at) const;

  const CheckpointFiles& files_;
  const CheckpointTensor& tensor_;
  bool moments_only_;
  bool matrix_ = false;
  kernels::Stored stored_;  // as the kernels see it, after decoding where that is needed
  bool decoded_;            // f64 and quantised numbers become floats first
  std::size_t pieces_;
  Index line_ = 0;   // numbers in a row; of what is no matrix, in a convenient stretch
  Index lines_ = 0;  // the last may be shorter
  std::vector<Band> bands_;
  std::vector<Index> first_rows_;  // of each piece, where its diagonal begins
  std::vector<Index> first_cols_;
  double pivot_ = 0;
  mutable std::optional<CheckpointFiles::Bytes> held_;  // of a tensor in one slab: mapped once for all its readings
};

}  // namespace stepzero
