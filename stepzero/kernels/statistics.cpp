#include "stepzero/kernels/statistics.hpp"

#include <algorithm>
#include <vector>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/statistics_kernels.hpp"

namespace stepzero {

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// What one block of rows of one sequence leaves behind.
struct Part {
  Moments moments;
  double selves = 0;     // sum over rows of |unit|^2: 1 for each nonzero row, up to rounding
  double resultant = 0;  // |sum of unit rows|^2, when the block is the whole sequence
  bool defined = true;   // every row has a direction or is zero
};

struct Row {
  Moments moments;
  double squares = 0;
};

template <class S>
Row scan_row(const S* x, Index cols, const StatisticsKernels<S>& kernels) {
  Row row;
  if (cols <= moment_run) {
    const RunSums sums = kernels.run.sums(x, cols);
    return {run_moments(x, cols, sums, kernels.run), sums.squares};
  }
  MomentsTree tree;
  for (Index c = 0; c < cols; c += moment_run) {
    const Index n = std::min(moment_run, cols - c);
    const RunSums sums = kernels.run.sums(x + c, n);
    tree.push(run_moments(x + c, n, sums, kernels.run));
    row.squares += sums.squares;
  }
  row.moments = tree.finish();
  return row;
}

// Rows whose norms are known and whose directions are not yet added: a few, still in a near cache.
template <class S>
struct Panel {
  static constexpr Index capacity = 8;
  const S* rows[capacity];
  S scales[capacity];
  Index size = 0;
};

// A row whose norm float cannot invert is added at once, in double.
template <class S>
void take_row(Panel<S>& panel, const S* row, double squares, Index cols, double* total, Part& part) {
  constexpr double largest = 0x1p100;
  const double inverse = 1 / std::sqrt(squares);
  S scale = 0;
  if (inverse < largest && inverse > 1 / largest) {
    scale = static_cast<S>(inverse);
    part.selves += squares * (static_cast<double>(scale) * static_cast<double>(scale));
  } else if (squares > 0) {
    for (Index c = 0; c < cols; ++c) total[c] += static_cast<double>(row[c]) * inverse;
    part.selves += 1;
  }
  panel.rows[panel.size] = row;
  panel.scales[panel.size] = scale;
  ++panel.size;
}

// Column by column of the panel, so that the totals are fetched once.
template <class S>
void add_directions(Panel<S>& panel, Index cols, double* total, const StatisticsKernels<S>& kernels) {
  constexpr Index chunk = 1024;
  for (; panel.size % group_rows != 0; ++panel.size) {
    panel.rows[panel.size] = panel.rows[0];
    panel.scales[panel.size] = 0;
  }
  for (Index c = 0; c < cols; c += chunk) {
    for (Index g = 0; g < panel.size; g += group_rows) {
      const S* rows[group_rows];
      for (Index r = 0; r < group_rows; ++r) rows[r] = panel.rows[g + r] + c;
      kernels.add_units(total + c, rows, panel.scales + g, std::min(chunk, cols - c));
    }
  }
  panel.size = 0;
}

// total: of x.cols, or null when no cosine is wanted.
template <class S>
Part scan_block(View<const S> x, double* total, const StatisticsKernels<S>& kernels) {
  Part part;
  MomentsTree tree;
  Panel<S> panel;
  if (total != nullptr) std::fill_n(total, x.cols, 0.0);
  for (Index r = 0; r < x.rows; ++r) {
    const Row row = scan_row(x.row(r), x.cols, kernels);
    tree.push(row.moments);
    const bool zero = row.moments.zeros == static_cast<std::uint64_t>(x.cols);
    part.defined = part.defined && std::isfinite(row.squares) && (zero || row.squares > 0);
    if (total == nullptr || !part.defined) continue;
    take_row(panel, x.row(r), row.squares, x.cols, total, part);
    if (panel.size == panel.capacity || r + 1 == x.rows) add_directions(panel, x.cols, total, kernels);
  }
  part.moments = tree.finish();
  return part;
}

struct Plan {
  Index block = 32;  // rows; a power of two, so that blocks are subtrees of the sequence's tree
  Index blocks = 1;  // of a sequence
  Index grain = 1;   // blocks that one task takes
};

// Depends on the shape only. At most about 64 tasks: each of a cut sequence keeps a vector of x.cols totals.
Plan make_plan(Index sequences, Index length) {
  Plan plan;
  const auto blocks = [&] { return (length + plan.block - 1) / plan.block; };
  while (plan.block < length && blocks() * sequences > 64) plan.block *= 2;
  plan.blocks = blocks();
  plan.grain = std::max<Index>(1, 32 / std::min(length, plan.block));
  return plan;
}

// Rows of totals start on a cache line.
Index padded(Index cols) { return (cols + 7) / 8 * 8; }

// |sum over blocks of their totals|^2 for one sequence.
double resultant(const double* totals, Index blocks, Index cols) {
  constexpr Index chunk = 2048;
  const auto squares = plain_kernels<double>().squares;
  std::vector<double> parts(static_cast<std::size_t>((cols + chunk - 1) / chunk));
  parallel_ranges(cols, chunk, [&](Index begin, Index end) {
    double sum[chunk] = {};
    for (Index b = 0; b < blocks; ++b) {
      for (Index c = begin; c < end; ++c) sum[c - begin] += totals[b * padded(cols) + c];
    }
    parts[static_cast<std::size_t>(begin / chunk)] = squares(sum, end - begin);
  });
  double out = 0;
  for (const double part : parts) out += part;
  return out;
}

Moments merge_parts(std::span<const Part> parts, Index blocks) {
  MomentsTree all;
  for (; !parts.empty(); parts = parts.subspan(static_cast<std::size_t>(blocks))) {
    MomentsTree sequence;
    for (Index b = 0; b < blocks; ++b) sequence.push(parts[static_cast<std::size_t>(b)].moments);
    all.push(sequence.finish());
  }
  return all.finish();
}

// sum over s != t of <u_s, u_t> = |sum u|^2 - sum |u|^2, of the unit rows u of each sequence.
double mean_cosine(const std::vector<Part>& parts, const double* totals, Index blocks, Index length, Index cols) {
  double pairs = 0;
  for (const Part& part : parts) {
    if (!part.defined) return not_a_number;
    pairs += part.resultant - part.selves;
  }
  const Index sequences = static_cast<Index>(parts.size()) / blocks;
  if (blocks > 1) {
    for (Index s = 0; s < sequences; ++s) pairs += resultant(totals + s * blocks * padded(cols), blocks, cols);
  }
  return pairs / (static_cast<double>(sequences * length) * static_cast<double>(length - 1));
}

double* scratch(Tensor<double>& memory, Index size) {
  if (memory.size() < size) memory = Tensor<double>(1, size);
  return memory.data();
}

template <class S>
SignalStats stats_with(View<const S> x, Index sequences, Index length, const StatisticsKernels<S>& kernels) {
  STEPZERO_CHECK(sequences * length == x.rows);
  if (x.rows <= 0 || x.cols <= 0) return {};
  const bool paired = length > 1;
  if (!paired) std::swap(sequences, length);  // the same tree over rows, in larger tasks
  const Plan plan = make_plan(sequences, length);
  const Index count = sequences * plan.blocks;
  const Index pitch = padded(x.cols);
  std::vector<Part> parts(static_cast<std::size_t>(count));
  // Kept from call to call: fresh pages for the totals of a vocabulary cost as much as the statistics.
  thread_local Tensor<double> kept;
  double* totals = paired && plan.blocks > 1 ? scratch(kept, count * pitch) : nullptr;
  parallel_ranges(count, plan.grain, [&](Index begin, Index end) {
    thread_local Tensor<double> own;
    for (Index p = begin; p < end; ++p) {
      const Index first = p % plan.blocks * plan.block;
      const View<const S> rows = x.slice(p / plan.blocks * length + first, std::min(plan.block, length - first));
      double* total = totals != nullptr ? totals + p * pitch : paired ? scratch(own, x.cols) : nullptr;
      Part& part = parts[static_cast<std::size_t>(p)];
      part = scan_block(rows, total, kernels);
      if (paired && totals == nullptr) part.resultant = resultant(total, 1, x.cols);
    }
  });
  const Moments all = merge_parts(parts, plan.blocks);
  return {all, paired ? mean_cosine(parts, totals, plan.blocks, length, x.cols) : not_a_number};
}

template <class S>
double squares_with(View<const S> x, const StatisticsKernels<S>& kernels) {
  if (x.rows <= 0 || x.cols <= 0) return 0;
  const Index runs = (x.cols + moment_run - 1) / moment_run;
  const Index grain = std::max<Index>(1, 65536 / std::min(x.cols, moment_run));
  std::vector<double> parts(static_cast<std::size_t>((x.rows * runs + grain - 1) / grain));
  parallel_ranges(x.rows * runs, grain, [&](Index begin, Index end) {
    double sum = 0;
    for (Index p = begin; p < end; ++p) {
      const Index column = p % runs * moment_run;
      sum += kernels.squares(x.row(p / runs) + column, std::min(moment_run, x.cols - column));
    }
    parts[static_cast<std::size_t>(begin / grain)] = sum;
  });
  double out = 0;
  for (const double part : parts) out += part;
  return out;
}

}  // namespace

template <class S>
SignalStats signal_stats(View<const S> x, Index sequences, Index length) {
  return stats_with(x, sequences, length, best_kernels<S>());
}

template <class S>
SignalStats signal_stats_reference(View<const S> x, Index sequences, Index length) {
  return stats_with(x, sequences, length, plain_kernels<S>());
}

template <class S>
double sum_squares(View<const S> x) {
  return squares_with(x, best_kernels<S>());
}

template <class S>
double sum_squares_reference(View<const S> x) {
  return squares_with(x, plain_kernels<S>());
}

template SignalStats signal_stats(View<const float>, Index, Index);
template SignalStats signal_stats(View<const double>, Index, Index);
template SignalStats signal_stats_reference(View<const float>, Index, Index);
template SignalStats signal_stats_reference(View<const double>, Index, Index);
template double sum_squares(View<const float>);
template double sum_squares(View<const double>);
template double sum_squares_reference(View<const float>);
template double sum_squares_reference(View<const double>);

}  // namespace stepzero
