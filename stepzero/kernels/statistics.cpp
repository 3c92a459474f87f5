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
  MomentsTree tree;
  double selves = 0;    // sum over rows of |unit|^2: 1 for each nonzero row, up to rounding
  bool defined = true;  // every row has a direction or is zero
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

// The next rows of a block. total: of x.cols, or null when no cosine is wanted.
template <class S>
void scan_rows(View<const S> x, double* total, Part& part, const StatisticsKernels<S>& kernels) {
  Panel<S> panel;
  for (Index r = 0; r < x.rows; ++r) {
    const Row row = scan_row(x.row(r), x.cols, kernels);
    part.tree.push(row.moments);
    const bool zero = row.moments.zeros == static_cast<std::uint64_t>(x.cols);
    part.defined = part.defined && std::isfinite(row.squares) && (zero || row.squares > 0);
    if (total == nullptr || !part.defined) continue;
    take_row(panel, x.row(r), row.squares, x.cols, total, part);
    if (panel.size == panel.capacity || r + 1 == x.rows) add_directions(panel, x.cols, total, kernels);
  }
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
    for (Index b = 0; b < blocks; ++b) sequence.push(parts[static_cast<std::size_t>(b)].tree.finish());
    all.push(sequence.finish());
  }
  return all.finish();
}

double* scratch(Tensor<double>& memory, Index size) {
  if (memory.size() < size) memory = Tensor<double>(1, size);
  return memory.data();
}

// Kept from call to call: fresh pages for the totals of a vocabulary cost as much as the statistics.
std::vector<Tensor<double>>& spare_totals() {
  thread_local std::vector<Tensor<double>> spare;
  return spare;
}

}  // namespace

template <class S>
struct SignalScan<S>::State {
  StatisticsKernels<S> kernels;
  bool paired;
  Index sequences, length, cols;
  Plan plan;
  std::vector<Part> parts;
  std::vector<double> resultants;  // |sum of unit rows|^2 of each sequence
  Tensor<double> totals;           // of the blocks of the sequences under way
  Index seen = 0;                  // rows

  State(Index sequences_, Index length_, Index cols_, const StatisticsKernels<S>& kernels_)
      : kernels(kernels_), paired(length_ > 1), sequences(sequences_), length(length_), cols(cols_) {
    if (!paired) std::swap(sequences, length);  // the same tree over rows, in larger tasks
    plan = make_plan(sequences, length);
    parts.resize(static_cast<std::size_t>(sequences * plan.blocks));
    resultants.resize(static_cast<std::size_t>(sequences));
    if (spare_totals().empty()) return;
    totals = std::move(spare_totals().back());
    spare_totals().pop_back();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { spare_totals().push_back(std::move(totals)); }

  [[nodiscard]] Index block_of(Index row) const { return row / length * plan.blocks + row % length / plan.block; }
  [[nodiscard]] Index row_of(Index block) const { return block / plan.blocks * length + block % plan.blocks * plan.block; }

  void add(View<const S> x) {
    const Index end = seen + x.rows, first = seen / length, whole = end / length;  // sequences: the first here, and those complete
    STEPZERO_CHECK(x.cols == cols && x.rows > 0 && end <= sequences * length);
    STEPZERO_CHECK(!paired || seen % length == 0 || (end - 1) / length == first);
    STEPZERO_CHECK(!paired || seen % length % Panel<S>::capacity == 0);
    const Index base = first * plan.blocks, from = block_of(seen), to = block_of(end - 1) + 1, pitch = padded(cols);
    const bool lone = plan.blocks == 1 && seen % length == 0 && end % length == 0;  // a block is done as soon as it is read
    double* held = paired && !lone ? scratch(totals, std::max(plan.blocks, to - base) * pitch) : nullptr;
    parallel_ranges(to - from, plan.grain, [&](Index begin, Index stop) {
      thread_local Tensor<double> own;
      for (Index p = from + begin; p < from + stop; ++p) {
        const Index top = std::max(row_of(p), seen), bottom = std::min(p + 1 < std::ssize(parts) ? row_of(p + 1) : end, end);
        double* total = held != nullptr ? held + (p - base) * pitch : paired ? scratch(own, cols) : nullptr;
        if (total != nullptr && top == row_of(p)) std::fill_n(total, cols, 0.0);
        scan_rows(x.slice(top - seen, bottom - top), total, parts[static_cast<std::size_t>(p)], kernels);
        if (paired && lone) resultants[static_cast<std::size_t>(p)] = resultant(total, 1, cols);
      }
    });
    for (Index s = first; held != nullptr && s < whole; ++s) {
      resultants[static_cast<std::size_t>(s)] = resultant(held + (s - first) * plan.blocks * pitch, plan.blocks, cols);
    }
    seen = end;
  }

  // sum over s != t of <u_s, u_t> = |sum u|^2 - sum |u|^2, of the unit rows u of each sequence.
  [[nodiscard]] double mean_cosine() const {
    double pairs = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      if (!parts[p].defined) return not_a_number;
      pairs += (plan.blocks == 1 ? resultants[p] : 0.0) - parts[p].selves;
    }
    for (const double r : resultants) pairs += plan.blocks > 1 ? r : 0.0;
    return pairs / (static_cast<double>(sequences * length) * static_cast<double>(length - 1));
  }

  [[nodiscard]] SignalStats finish() const {
    STEPZERO_CHECK(seen == sequences * length);
    return {merge_parts(parts, plan.blocks), paired ? mean_cosine() : not_a_number};
  }
};

template <class S>
SignalScan<S>::SignalScan(Index sequences, Index length, Index cols)
    : state_(std::make_unique<State>(sequences, length, cols, best_kernels<S>())) {}
template <class S>
SignalScan<S>::~SignalScan() = default;
template <class S>
void SignalScan<S>::add(View<const S> rows) {
  state_->add(rows);
}
template <class S>
bool SignalScan<S>::complete() const {
  return state_->seen == state_->sequences * state_->length;
}
template <class S>
SignalStats SignalScan<S>::finish() const {
  return state_->finish();
}

template class SignalScan<float>;
template class SignalScan<double>;

namespace {

template <class S>
SignalStats stats_with(View<const S> x, Index sequences, Index length, const StatisticsKernels<S>& kernels) {
  STEPZERO_CHECK(sequences * length == x.rows);
  if (x.rows <= 0 || x.cols <= 0) return {};
  typename SignalScan<S>::State scan(sequences, length, x.cols, kernels);
  scan.add(x);
  return scan.finish();
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
