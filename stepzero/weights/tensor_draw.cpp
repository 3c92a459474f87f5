#include "stepzero/weights/tensor_draw.hpp"

#include <algorithm>

#include "stepzero/graph/graph.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/weights/structured_draw.hpp"

namespace stepzero {

namespace {

using Block = Assignment::Block;

struct Stretch {
  const Block* block;
  std::uint64_t length;  // how far the block reaches without a gap
};

// A block as wide as the tensor reaches over many rows, a narrower one to the end of the row.
Stretch stretch_at(const std::vector<Block>& blocks, Index cols, std::uint64_t at) {
  const Index row = static_cast<Index>(at) / cols;
  const Index col = static_cast<Index>(at) % cols;
  for (const Block& b : blocks) {
    if (row < b.row0 || row >= b.row0 + b.rows || col < b.col0 || col >= b.col0 + b.cols) continue;
    const Index end = b.cols == cols ? (b.row0 + b.rows) * cols : row * cols + b.col0 + b.cols;
    return {&b, static_cast<std::uint64_t>(end) - at};
  }
  report_bug("blocks cover the tensor", __FILE__, __LINE__);
}

}  // namespace

std::vector<float> draw_tensor(const Graph& graph, const Assignment& assignment, std::size_t param, std::uint64_t seed) {
  const Param& p = graph.params[param];
  std::vector<float> whole(static_cast<std::size_t>(p.size()));
  if (!assignment.structured(param)) {
    draw_elements(graph, assignment, param, seed, 0, std::span<float>(whole));
    return whole;
  }
  const Stream stream = make_stream(seed, p.name);
  for (const Block& b : assignment.blocks(param)) {
    const bool made = b.distribution.structure != Distribution::Structure::none;
    const std::vector<float> numbers = made ? make_structured(p, b, assignment.heads(), seed) : std::vector<float>();
    for (Index r = 0; r < b.rows; ++r) {
      const Index first = (b.row0 + r) * p.cols() + b.col0;
      const auto row = std::span(whole).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(b.cols));
      if (made)
        std::copy_n(numbers.begin() + r * b.cols, b.cols, row.begin());
      else
        fill(b.distribution, stream, static_cast<std::uint64_t>(first), row);
    }
  }
  return whole;
}

template <class S>
void draw_elements(const Graph& graph, const Assignment& assignment, std::size_t param, std::uint64_t seed, std::uint64_t first,
                   std::span<S> out) {
  const Param& p = graph.params[param];
  const Stream stream = make_stream(seed, p.name);
  if (assignment.structured(param)) {
    const std::vector<float> whole = draw_tensor(graph, assignment, param, seed);
    std::copy_n(whole.begin() + static_cast<Index>(first), out.size(), out.begin());
    return;
  }
  const auto whole = out;
  const auto begin = static_cast<Index>(first);
  while (!out.empty()) {
    const Stretch s = stretch_at(assignment.blocks(param), p.cols(), first);
    const std::size_t n = std::min<std::uint64_t>(s.length, out.size());
    fill(s.block->distribution, stream, first, out.first(n));
    first += n;
    out = out.subspan(n);
  }
  const Index row = assignment.zero_row(param);
  if (row < 0) return;
  const Index from = std::max(row * p.cols(), begin) - begin, to = std::min((row + 1) * p.cols(), begin + std::ssize(whole)) - begin;
  for (Index i = from; i < to; ++i) whole[static_cast<std::size_t>(i)] = 0;
}

template void draw_elements(const Graph&, const Assignment&, std::size_t, std::uint64_t, std::uint64_t, std::span<float>);
template void draw_elements(const Graph&, const Assignment&, std::size_t, std::uint64_t, std::uint64_t, std::span<double>);

}  // namespace stepzero
