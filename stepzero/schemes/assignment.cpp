#include <algorithm>
#include <cmath>

#include "stepzero/graph/graph.hpp"
#include "stepzero/schemes/scheme_file.hpp"

namespace stepzero {

namespace {

// The part as a parameter of its own.
Param as_param(const Param& p, const Part& part) {
  Param one = p;
  one.role = part.role;
  one.shape = {part.rows, part.cols};
  one.fan_out = part.fan_out;
  one.parts.clear();
  return one;
}

}  // namespace

namespace {

// What the model's own file says of a tensor is what hf asks for. Other schemes speak of matrices: of vectors the file's word stands,
// and of adapters what they were added with.
const Distribution* own_law(const Param& p, const Scheme& scheme) {
  if (scheme.file != nullptr && !p.is_adapter()) {
    if (const Distribution* told = scheme.file->law_of(p)) return told;
    return scheme.file->speaks_of_parts(p) ? nullptr : own_law(p, *scheme.file->otherwise);
  }
  const bool vector = p.role == Role::gain || p.role == Role::bias || p.role == Role::branch_gain || p.is_adapter();
  return p.law && (vector || scheme.name == "hf") ? &*p.law : nullptr;
}

}  // namespace

Assignment::Assignment(const Graph& graph, const Architecture& a, const Scheme& scheme) {
  heads_ = {a.heads, a.kv_heads, a.head_dim, a.width};
  for (const Param& p : graph.params) {
    auto& list = blocks_.emplace_back();
    zero_rows_.push_back(scheme.zeroes_padding ? p.zero_row : -1);
    const Distribution* own = own_law(p, scheme);
    if (own != nullptr || !scheme.by_part || p.parts.empty()) {
      list.push_back({0, 0, p.rows(), p.cols(), own != nullptr ? *own : scheme.assign(a, p), p.role, p.layer, p.in_out});
      continue;
    }
    for (const Part& part : p.parts) {
      const Distribution* told = scheme.file == nullptr ? nullptr : scheme.file->law_of(p, &part);
      const Distribution d = told != nullptr ? *told : scheme.assign(a, as_param(p, part));
      list.push_back({part.row0, part.col0, part.rows, part.cols, d, part.role, p.layer, p.in_out});
    }
  }
}

void Assignment::set(std::size_t param, const Distribution& distribution) {
  auto& list = blocks_[param];
  Block whole = list.front();
  for (const Block& b : list) {
    whole.rows = std::max(whole.rows, b.row0 + b.rows);
    whole.cols = std::max(whole.cols, b.col0 + b.cols);
  }
  whole.row0 = whole.col0 = 0;
  whole.distribution = distribution;
  list = {whole};
}

Assignment::Assignment(const Graph& graph, const Architecture& a, const FoundLaws& laws) {
  heads_ = {a.heads, a.kv_heads, a.head_dim, a.width};
  zero_rows_.assign(graph.params.size(), -1);
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    const Param& p = graph.params[i];
    auto& list = blocks_.emplace_back();
    for (const Part& part : p.parts)
      list.push_back({part.row0, part.col0, part.rows, part.cols, laws(i, &part), part.role, p.layer, p.in_out});
    if (list.empty()) list.push_back({0, 0, p.rows(), p.cols(), laws(i, nullptr), p.role, p.layer, p.in_out});
  }
}

const Distribution& Assignment::of(const ParamUse& use) const {
  for (const Block& b : blocks_[static_cast<std::size_t>(use.param)]) {
    if (use.row0 >= b.row0 && use.row0 < b.row0 + b.rows && use.col0 >= b.col0 && use.col0 < b.col0 + b.cols) return b.distribution;
  }
  report_bug("a block of the tensor holds the use", __FILE__, __LINE__);
}

bool Assignment::structured(std::size_t param) const {
  return std::ranges::any_of(blocks_[param], [](const Block& b) { return b.distribution.structure != Distribution::Structure::none; });
}

double Assignment::mean(std::size_t param) const {
  double count = 0, sum = 0;
  for (const Block& b : blocks_[param]) {
    const double n = static_cast<double>(b.rows * b.cols);
    count += n;
    sum += n * b.distribution.mean;
  }
  return sum / count;
}

double Assignment::std(std::size_t param) const {
  const auto& list = blocks_[param];
  if (list.size() == 1) return list[0].distribution.std();
  double count = 0, squares = 0;
  for (const Block& b : list) {
    const double n = static_cast<double>(b.rows * b.cols);
    count += n;
    squares += n * b.distribution.second_moment();
  }
  return std::sqrt(squares / count - mean(param) * mean(param));
}

}  // namespace stepzero
