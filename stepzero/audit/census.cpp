#include "stepzero/audit/census.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "stepzero/audit/repeated_rows.hpp"
#include "stepzero/audit/tensor_scan.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/random.hpp"
#include "stepzero/kernels/fill.hpp"

namespace stepzero {

namespace {

constexpr std::size_t kSample = 4096;
using Vectors = std::vector<std::vector<float>>;

// ---- W'W by two steps of Lanczos from a random unit vector: alpha_k = v_k' A v_k, beta_k what is left of A v_k

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                               [](float x, float y) { return static_cast<double>(x) * static_cast<double>(y); });
}

void scale(std::vector<float>& v, double by) {
  for (float& x : v) x = static_cast<float>(static_cast<double>(x) * by);
}

void subtract(std::vector<float>& from, const std::vector<float>& v, double by) {
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(static_cast<double>(from[i]) - by * static_cast<double>(v[i]));
}

// Random in the columns the piece has, zero elsewhere.
std::vector<float> start_vector(const TensorLayout& layout, std::size_t piece) {
  std::vector<float> v(static_cast<std::size_t>(layout.cols)), random(v.size());
  fill(Distribution::normal(1), make_stream(0, "census"), 0, std::span<float>(random));
  for (const auto& b : layout.blocks) {
    if (b.piece == piece) std::copy_n(random.begin() + b.col0, b.cols, v.begin() + b.col0);
  }
  const double norm = std::sqrt(dot(v, v));
  if (norm > 0) scale(v, 1 / norm);
  return v;
}

struct Lanczos {
  double alpha1 = 0, beta1 = 0, alpha2 = 0, beta2 = 0;
};

Spectrum spectrum_of(const Lanczos& l, const PieceCensus& p) {
  const double m = static_cast<double>(p.rows), n = static_cast<double>(p.cols);
  const double square = p.summary.std * p.summary.std + p.summary.mean * p.summary.mean;
  const double all = m * n * square;  // sum of the squared singular values
  const double half = (l.alpha1 - l.alpha2) / 2;
  double top = (l.alpha1 + l.alpha2) / 2 + std::sqrt(half * half + l.beta1 * l.beta1);
  // Independent numbers have alpha = (m + n) s^2 and beta = sqrt(m n) s^2 from the second step on, and reach up to
  // alpha + 2 beta; two steps alone stop short of it.
  if (std::abs(l.alpha2 / ((m + n) * square) - 1) < 0.15) top = std::max(top, l.alpha2 + 2 * l.beta2);
  Spectrum s;
  s.top = std::sqrt(std::clamp(top, all / std::min(m, n), all));
  const double fourth = n * (l.alpha1 * l.alpha1 + l.beta1 * l.beta1);
  s.effective_rank = fourth > 0 ? std::min(all * all / fourth, std::min(m, n)) : 0;
  // A v = A^2 v / lambda, lambda = all / min(m, n): whatever v was
  const double ratio = l.alpha1 > 0 ? (l.alpha1 * l.alpha1 + l.beta1 * l.beta1) / l.alpha1 : 0;
  s.orthogonal = std::abs(ratio * std::min(m, n) / all - 1) < 5e-3;
  return s;
}

class Taker {
 public:
  Taker(const CheckpointFiles& files, const CheckpointTensor& tensor, const TensorLayout& layout, const CensusOptions& options)
      : files_(files), layout_(layout), options_(options), scan_(files, tensor, layout, options), tensor_(tensor) {}

  [[nodiscard]] bool large() const { return scan_.large(); }
  Expected<TensorCensus> run(const TensorScan::Progress& progress);

 private:
  void fill_pieces(const std::vector<PieceTally>& tallies);
  Expected<void> fill_matrix(Vectors v, std::vector<PieceTally> tallies, const std::vector<std::uint64_t>& row_keys);
  [[nodiscard]] Summary summary_of(const PieceTally& t) const;

  const CheckpointFiles& files_;
  const TensorLayout& layout_;
  CensusOptions options_;
  TensorScan scan_;
  const CheckpointTensor& tensor_;
  TensorCensus out_;
};

Summary Taker::summary_of(const PieceTally& t) const {
  if (options_.moments_only) return summarise(t.sums);
  return summarise(scan_.patterns(), t.counts, scan_.counted_exactly() ? nullptr : &t.sums);
}

void Taker::fill_pieces(const std::vector<PieceTally>& tallies) {
  PieceTally whole = tallies.front();
  for (std::size_t p = 0; p < tallies.size(); ++p) {
    const PieceTally& t = tallies[p];
    PieceCensus piece;
    piece.role = layout_.pieces[p];
    for (const auto& b : layout_.blocks) {
      if (b.piece != p) continue;
      // blocks lie below each other, or beside each other
      piece.rows = piece.cols == b.cols ? piece.rows + b.rows : b.rows;
      piece.cols = b.cols;
    }
    piece.summary = summary_of(t);
    piece.diagonal = t.diagonal / static_cast<double>(std::max<Index>(1, std::min(piece.rows, piece.cols)));
    out_.pieces.push_back(std::move(piece));
    if (p == 0) continue;
    whole.counts.merge(t.counts);
    whole.sums.merge(t.sums);
  }
  out_.whole = tallies.size() == 1 ? out_.pieces.front().summary : summary_of(whole);
}

Expected<void> Taker::fill_matrix(Vectors v, std::vector<PieceTally> tallies, const std::vector<std::uint64_t>& row_keys) {
  auto rows = find_rows(files_, tensor_, row_keys, layout_.cols);
  if (!rows) return std::unexpected(rows.error());
  out_.rows = *rows;
  std::vector<float> z(static_cast<std::size_t>(layout_.cols));
  for (const PieceTally& t : tallies) {
    for (std::size_t c = 0; c < z.size(); ++c) z[c] += t.z[c];
  }
  auto columns = find_columns(files_, tensor_, z, layout_.rows);
  if (!columns) return std::unexpected(columns.error());
  out_.columns = *columns;
  std::vector<Lanczos> steps(v.size());
  Vectors next(v.size());
  for (std::size_t p = 0; p < v.size(); ++p) {
    next[p] = std::move(tallies[p].z);
    steps[p].alpha1 = dot(v[p], next[p]);
    subtract(next[p], v[p], steps[p].alpha1);
    steps[p].beta1 = std::sqrt(dot(next[p], next[p]));
    if (steps[p].beta1 > 0) scale(next[p], 1 / steps[p].beta1);
  }
  auto second = scan_.again(next);
  if (!second) return std::unexpected(second.error());
  for (std::size_t p = 0; p < v.size(); ++p) {
    std::vector<float>& rest = (*second)[p].z;
    steps[p].alpha2 = dot(next[p], rest);
    subtract(rest, next[p], steps[p].alpha2);
    subtract(rest, v[p], steps[p].beta1);
    steps[p].beta2 = std::sqrt(dot(rest, rest));
    if (std::min(out_.pieces[p].rows, out_.pieces[p].cols) > 1) out_.pieces[p].spectrum = spectrum_of(steps[p], out_.pieces[p]);
  }
  return {};
}

Expected<TensorCensus> Taker::run(const TensorScan::Progress& progress) {
  out_.tensor = &tensor_;
  out_.padding = layout_.padding;
  Vectors v;
  for (std::size_t p = 0; scan_.matrix() && p < layout_.pieces.size(); ++p) v.push_back(start_vector(layout_, p));
  std::vector<std::uint64_t> row_keys;
  auto tallies = scan_.first(v, row_keys, progress);
  if (!tallies) return std::unexpected(tallies.error());
  out_.analysed = true;
  fill_pieces(*tallies);
  if (!options_.moments_only) {
    out_.sample.resize(std::min<std::uint64_t>(tensor_.elements, kSample));
    if (auto done = files_.read_f32(tensor_, 0, out_.sample); !done) return std::unexpected(done.error());
  }
  const Summary& s = out_.whole;
  if (!scan_.matrix() || s.constant() || s.nans + s.infs > 0) return std::move(out_);
  if (auto done = fill_matrix(std::move(v), std::move(*tallies), row_keys); !done) return std::unexpected(done.error());
  return std::move(out_);
}

}  // namespace

TensorLayout TensorLayout::whole(const CheckpointTensor& tensor, Role role) {
  TensorLayout layout;
  layout.cols = tensor.shape.empty() ? 1 : static_cast<Index>(tensor.shape.back());
  layout.rows = layout.cols > 0 ? static_cast<Index>(tensor.elements) / layout.cols : 0;
  layout.blocks = {{0, 0, layout.rows, layout.cols, 0}};
  layout.pieces = {role};
  return layout;
}

TensorLayout TensorLayout::of(const Param& param, bool transposed) {
  TensorLayout layout;
  layout.rows = param.rows();
  layout.cols = param.cols();
  for (const Part& part : param.parts) {
    const auto known = std::ranges::find(layout.pieces, part.role);
    const auto piece = static_cast<std::size_t>(known - layout.pieces.begin());
    if (known == layout.pieces.end()) layout.pieces.push_back(part.role);
    layout.blocks.push_back({part.row0, part.col0, part.rows, part.cols, piece});
  }
  if (layout.blocks.empty()) {
    layout.pieces = {param.role};
    layout.blocks = {{0, 0, layout.rows, layout.cols, 0}};
  }
  if (param.zero_row >= 0 && param.parts.empty()) {
    const Index at = param.zero_row;
    layout.padding = 1;
    layout.pieces.push_back(param.role);
    layout.blocks = {{at, 0, 1, layout.cols, 1}};
    if (at > 0) layout.blocks.push_back({0, 0, at, layout.cols, 0});
    if (at + 1 < layout.rows) layout.blocks.push_back({at + 1, 0, layout.rows - at - 1, layout.cols, 0});
  }
  if (transposed) {
    std::swap(layout.rows, layout.cols);
    for (Block& b : layout.blocks) b = {b.col0, b.row0, b.cols, b.rows, b.piece};
  }
  return layout;
}

TensorLayout TensorLayout::within(const CheckpointTensor& box) const {
  if (pieces.size() == 1) return whole(box, pieces.front());
  const bool column = box.at.size() == 1 && cols == 1;
  const Index row0 = box.at.size() > 1 || column ? static_cast<Index>(box.at.front()) : 0;
  const Index col0 = column ? 0 : static_cast<Index>(box.at.back());
  TensorLayout layout = *this;
  layout.rows = box.at.size() > 1 || column ? static_cast<Index>(box.shape.front()) : 1;
  layout.cols = column ? 1 : static_cast<Index>(box.shape.back());
  layout.blocks.clear();
  for (const Block& b : blocks) {
    const Index top = std::max(b.row0, row0), left = std::max(b.col0, col0);
    const Index bottom = std::min(b.row0 + b.rows, row0 + layout.rows), right = std::min(b.col0 + b.cols, col0 + layout.cols);
    if (top < bottom && left < right) layout.blocks.push_back({top - row0, left - col0, bottom - top, right - left, b.piece});
  }
  return layout;
}

Expected<std::vector<TensorCensus>> take_census(const CheckpointFiles& files, const std::vector<const CheckpointTensor*>& tensors,
                                                const std::vector<TensorLayout>& layouts, const CensusOptions& options,
                                                const std::function<void(std::uint64_t bytes)>& progress) {
  std::vector<TensorCensus> out(tensors.size());
  std::vector<std::size_t> small;
  std::vector<Error> errors(tensors.size());
  std::vector<char> failed(tensors.size(), 0);
  const auto take = [&](std::size_t i) {
    auto census = Taker(files, *tensors[i], layouts[i], options).run(progress);
    if (census) {
      out[i] = std::move(*census);
    } else {
      errors[i] = std::move(census.error());
      failed[i] = 1;
    }
  };
  // Small beside what a thread has to do: one thread takes it whole. Of a large one its slabs are shared. The largest
  // come first, so that all threads end at the same time.
  std::uint64_t all = 0;
  for (const CheckpointTensor* t : tensors) all += t->elements;
  const std::uint64_t large = all / (static_cast<std::uint64_t>(threads()) * 8);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    out[i].tensor = tensors[i];
    if (!tensors[i]->encoding.readable() || tensors[i]->elements == 0) continue;
    if (tensors[i]->elements > large)
      take(i);
    else
      small.push_back(i);
  }
  std::ranges::sort(small, std::greater<>(), [&](std::size_t i) { return std::pair(tensors[i]->elements, i); });
  parallel_for(static_cast<Index>(small.size()), [&](Index i) { take(small[static_cast<std::size_t>(i)]); });
  const auto broken = std::ranges::find(failed, 1);
  if (broken != failed.end()) return std::unexpected(errors[static_cast<std::size_t>(broken - failed.begin())]);
  return out;
}

}  // namespace stepzero
