#include "stepzero/audit/tensor_scan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "stepzero/core/half.hpp"
#include "stepzero/core/parallel.hpp"

namespace stepzero {

namespace {

using kernels::kPatterns;
using kernels::Stored;

constexpr Index kLine = 4096;              // numbers of a stretch of what is no matrix
constexpr Index kChunk = 32768;            // numbers read, counted and multiplied while they are in the cache
constexpr Index kSlab = Index{1} << 22;    // numbers a thread takes at a time
constexpr Index kMostSlabs = 64;           // each keeps W'W v until all are done
constexpr Index kWidest = Index{1} << 20;  // of a row
constexpr Index kMostRows = Index{1} << 22;
constexpr Index kLeast = 8;  // rows and columns of what is looked at as a matrix

Stored stored_as(Encoding::Kind kind) {
  return kind == Encoding::Kind::bf16 ? Stored::bf16 : kind == Encoding::Kind::f16 ? Stored::f16 : Stored::f32;
}

// Two tables of counts for each piece, kept for the thread's next slab.
std::vector<std::uint32_t>& tables(std::size_t pieces) {
  static thread_local std::vector<std::uint32_t> counts;
  if (counts.size() < 2 * kPatterns * pieces) counts.resize(2 * kPatterns * pieces);
  return counts;
}

void merge(std::vector<PieceTally>& into, const std::vector<PieceTally>& from) {
  for (std::size_t p = 0; p < into.size(); ++p) {
    into[p].sums.merge(from[p].sums);
    into[p].diagonal += from[p].diagonal;
    for (std::size_t c = 0; c < into[p].z.size(); ++c) into[p].z[c] += from[p].z[c];
  }
}

std::uint64_t mix(std::uint64_t key, std::uint64_t word) { return (std::rotl(key, 21) ^ word) * 0x9E3779B97F4A7C15U; }

}  // namespace

TensorScan::TensorScan(const CheckpointFiles& files, const CheckpointTensor& tensor, const TensorLayout& layout,
                       const CensusOptions& options)
    : files_(files),
      tensor_(tensor),
      moments_only_(options.moments_only),
      stored_(stored_as(tensor.encoding.kind)),
      decoded_(tensor.encoding.kind == Encoding::Kind::f64 || tensor.encoding.quantised()),
      pieces_(layout.pieces.size()) {
  const bool fits = layout.cols <= kWidest && layout.rows <= kMostRows;
  matrix_ = fits && layout.rows >= kLeast && layout.cols >= kLeast && tensor.shape.size() >= 2 && !moments_only_;
  const bool whole = !fits || (!matrix_ && pieces_ == 1);
  const auto elements = static_cast<Index>(tensor.elements);
  line_ = whole ? kLine : layout.cols;
  lines_ = whole ? (elements + kLine - 1) / kLine : layout.rows;
  if (whole) {
    bands_ = {{0, lines_, {{0, line_, 0}}}};
    first_rows_.assign(pieces_, 0);
    first_cols_.assign(pieces_, 0);
  } else {
    cut_bands(layout);
  }
  std::vector<float> head(std::min<std::uint64_t>(tensor.elements, kLine));
  if (!head.empty() && files.read_f32(tensor, 0, head)) {
    const auto sums = kernels::power_sums(Stored::f32, head.data(), {1, head.size(), head.size()}, 0);
    const double n = static_cast<double>(std::max<std::uint64_t>(1, sums.count)), mean = sums.sums[0] / n;
    // about 0 when the mean is small beside the spread: nothing is lost, and a subtraction saved; else of few bits, so that
    // differences are exact
    const auto coarse = static_cast<double>(bfloat16_to_float(float_to_bfloat16(static_cast<float>(mean))));
    pivot_ = 5 * mean * mean > sums.sums[1] / n && std::isfinite(coarse) ? coarse : 0;
  }
}

void TensorScan::cut_bands(const TensorLayout& layout) {
  std::vector<Index> edges = {0, layout.rows};
  for (const auto& b : layout.blocks) edges.insert(edges.end(), {b.row0, b.row0 + b.rows});
  std::ranges::sort(edges);
  edges.erase(std::ranges::unique(edges).begin(), edges.end());
  first_rows_.assign(pieces_, layout.rows);
  first_cols_.assign(pieces_, layout.cols);
  for (std::size_t e = 0; e + 1 < edges.size(); ++e) {
    Band band{edges[e], edges[e + 1], {}};
    for (const auto& b : layout.blocks) {
      if (b.row0 <= band.row0 && band.row1 <= b.row0 + b.rows) band.segments.push_back({b.col0, b.cols, b.piece});
    }
    std::ranges::sort(band.segments, {}, &Segment::col0);
    bands_.push_back(std::move(band));
  }
  for (const auto& b : layout.blocks) {
    first_rows_[b.piece] = std::min(first_rows_[b.piece], b.row0);
    first_cols_[b.piece] = std::min(first_cols_[b.piece], b.col0);
  }
}

Patterns TensorScan::patterns() const {
  return stored_ == Stored::bf16 ? Patterns::bf16 : stored_ == Stored::f16 ? Patterns::f16 : Patterns::upper_halves;
}

Index TensorScan::slabs() const {
  const Index rows = std::max<Index>(1, std::max(kSlab, static_cast<Index>(tensor_.elements) / kMostSlabs) / line_);
  return (lines_ + rows - 1) / rows;
}

float TensorScan::number(const std::byte* at) const {
  std::uint32_t word = 0;
  std::memcpy(&word, at, width());
  return stored_ == Stored::f32    ? std::bit_cast<float>(word)
         : stored_ == Stored::bf16 ? bfloat16_to_float(static_cast<std::uint16_t>(word))
                                   : half_to_float(static_cast<std::uint16_t>(word));
}

void TensorScan::tally_segment(const std::byte* at, const kernels::Rows& rows, std::size_t piece, Slab& slab) const {
  if (moments_only_ || stored_ == Stored::f32) slab.pieces[piece].sums.merge(kernels::power_sums(stored_, at, rows, pivot_));
  if (moments_only_) return;
  kernels::count_patterns(stored_, at, rows, tables(pieces_).data() + 2 * kPatterns * piece, slab.ranges[piece]);
}

void TensorScan::tally(const Chunk& chunk, const Band& band, Slab& slab) const {
  if (band.segments.size() == 1) return tally_segment(chunk.data, {1, chunk.numbers, chunk.numbers}, band.segments[0].piece, slab);
  for (const Segment& s : band.segments) {
    const kernels::Rows rows{static_cast<std::size_t>(chunk.rows), static_cast<std::size_t>(s.cols), static_cast<std::size_t>(line_)};
    tally_segment(chunk.data + static_cast<std::size_t>(s.col0) * width(), rows, s.piece, slab);
  }
}

void TensorScan::tally_diagonal(const Chunk& chunk, const Band& band, Slab& slab) const {
  for (const Segment& s : band.segments) {
    for (Index r = chunk.row0; r < chunk.row0 + chunk.rows; ++r) {
      const Index col = r - first_rows_[s.piece] + first_cols_[s.piece];
      if (col < s.col0 || col >= s.col0 + s.cols) continue;
      slab.pieces[s.piece].diagonal +=
          static_cast<double>(number(chunk.data + static_cast<std::size_t>((r - chunk.row0) * line_ + col) * width()));
    }
  }
}

void TensorScan::step(const Chunk& chunk, const Band& band, const Reading& reading, Slab& slab) const {
  const auto rows = static_cast<std::size_t>(chunk.rows), stride = static_cast<std::size_t>(line_);
  std::vector<float> y(rows);
  std::vector<std::uint64_t> keys(rows);
  for (const Segment& s : band.segments) {
    const auto at = static_cast<std::size_t>(s.col0);
    kernels::gram_steps(stored_, chunk.data + at * width(), {rows, static_cast<std::size_t>(s.cols), stride},
                        (*reading.v)[s.piece].data() + at, slab.pieces[s.piece].z.data() + at, y.data());
    for (std::size_t r = 0; r < rows; ++r) keys[r] = mix(keys[r], std::bit_cast<std::uint32_t>(y[r]));
  }
  if (reading.row_keys == nullptr) return;
  for (std::size_t r = 0; r < rows; ++r) {
    std::uint64_t head = 0;
    std::memcpy(&head, chunk.data + r * stride * width(), sizeof head);
    (*reading.row_keys)[static_cast<std::size_t>(chunk.row0) + r] = mix(keys[r], head);
  }
}

TensorScan::Slab TensorScan::start_slab(const Reading& reading) const {
  Slab slab;
  slab.pieces.resize(pieces_);
  slab.ranges.resize(pieces_);
  for (PieceTally& p : slab.pieces) {
    p.sums.pivot = pivot_;
    if (reading.step) p.z.assign(static_cast<std::size_t>(line_), 0);
  }
  return slab;
}

Expected<void> TensorScan::read_slab(Index row0, Index row1, const Reading& reading, Slab& slab) const {
  const Encoding& e = tensor_.encoding;
  const auto elements = tensor_.elements;
  const auto begin = static_cast<std::uint64_t>(row0 * line_), end = std::min(elements, static_cast<std::uint64_t>(row1 * line_));
  std::optional<CheckpointFiles::Bytes> own;
  std::optional<CheckpointFiles::Bytes>& bytes = begin == 0 && end == elements ? held_ : own;
  if (!bytes) {
    auto mapped = files_.map(tensor_, e.bytes_of(begin), e.bytes_of(end - begin));
    if (!mapped) return std::unexpected(mapped.error());
    bytes = std::move(*mapped);
  }
  const std::byte* const base = bytes->get().data();
  const bool copied = !decoded_ && reinterpret_cast<std::uintptr_t>(base) % width() != 0;
  std::vector<float> buffer(decoded_ || copied ? static_cast<std::size_t>(std::max(kChunk, line_)) : 0);
  auto band = std::ranges::find_if(bands_, [&](const Band& b) { return row0 < b.row1; });
  for (Index row = row0; row < row1;) {
    if (row >= band->row1) ++band;
    const Index rows = std::min({std::max<Index>(1, kChunk / line_), row1 - row, band->row1 - row});
    const std::uint64_t from = static_cast<std::uint64_t>(row * line_),
                        to = std::min(elements, static_cast<std::uint64_t>((row + rows) * line_));
    const std::byte* at = base + e.bytes_of(from - begin);
    if (decoded_) decode(e, at, std::span(buffer).first(to - from));
    if (copied) std::memcpy(buffer.data(), at, e.bytes_of(to - from));
    if (decoded_ || copied) at = reinterpret_cast<const std::byte*>(buffer.data());
    const Chunk chunk{at, row, rows, to - from};
    if (reading.count) tally(chunk, *band, slab);
    if (reading.count && matrix_) tally_diagonal(chunk, *band, slab);
    if (reading.step) step(chunk, *band, reading, slab);
    row += rows;
  }
  return bytes->intact();
}

Expected<std::vector<PieceTally>> TensorScan::read(const Reading& reading, const Progress& progress) const {
  const Index count = slabs();
  const Index rows = count > 0 ? (lines_ + count - 1) / count : 0;
  std::vector<Slab> done(static_cast<std::size_t>(count));
  std::vector<PieceTally> total = start_slab(reading).pieces;
  const bool counts = reading.count && !moments_only_;
  std::mutex merging;
  parallel_for(count, [&](Index i) {
    Slab& slab = done[static_cast<std::size_t>(i)];
    slab = start_slab(reading);
    const Index row0 = std::min(lines_, i * rows), row1 = std::min(lines_, row0 + rows);
    slab.done = read_slab(row0, row1, reading, slab);
    const std::lock_guard lock(merging);  // whole numbers: the order is free
    for (std::size_t p = 0; counts && p < pieces_; ++p) total[p].counts.take(tables(pieces_).data() + 2 * kPatterns * p, slab.ranges[p]);
    if (progress)
      progress(tensor_.encoding.bytes_of(std::min(tensor_.elements, static_cast<std::uint64_t>(row1 * line_))) -
               tensor_.encoding.bytes_of(std::min(tensor_.elements, static_cast<std::uint64_t>(row0 * line_))));
  });
  for (const Slab& slab : done) {
    if (!slab.done) return std::unexpected(slab.done.error());
    merge(total, slab.pieces);
  }
  return total;
}

Expected<std::vector<PieceTally>> TensorScan::first(const std::vector<std::vector<float>>& v, std::vector<std::uint64_t>& row_keys,
                                                    const Progress& progress) const {
  if (matrix_) row_keys.assign(static_cast<std::size_t>(lines_), 0);
  return read({true, matrix_, &v, matrix_ ? &row_keys : nullptr}, progress);
}

Expected<std::vector<PieceTally>> TensorScan::again(const std::vector<std::vector<float>>& v) const {
  return read({false, true, &v, nullptr}, {});
}

}  // namespace stepzero
