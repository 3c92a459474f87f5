#include "stepzero/pass/pass_plan.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "stepzero/graph/questions.hpp"

namespace stepzero {

Index kept_by(const AnyOp& op) {
  return std::visit([](const auto& o) { return o.keep(); }, op);
}

Index HeadPlan::most() const {
  Index most = 0;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) most = std::max(most, cuts[i + 1] - cuts[i]);
  return most;
}

namespace {

// The first node of the head: a matrix, behind which each node reads only the one before it, row by row. `count`: there is no head.
std::size_t find_head(const Graph& graph) {
  const std::size_t count = graph.nodes.size();
  for (std::size_t i = count; i-- > 1;) {
    const Node& node = graph.nodes[i];
    if (is_matrix(node.op)) return i + 1 < count ? i : count;
    if (!is_row_wise(node.op) || node.inputs[0] != static_cast<int>(i) - 1) break;
  }
  return count;
}

// Equal parts of a sequence, or sequences together. Statistics want parts to begin at multiples of 8 rows.
std::vector<Index> cut_rows(Index sequences, Index length, Index most) {
  constexpr Index unit = 32;
  const auto share = [](Index n, Index parts) { return (n + parts - 1) / parts; };
  std::vector<Index> cuts = {0};
  if (length > most) {
    const Index part = share(share(length, share(length, most)), unit) * unit;
    for (Index s = 0; s < sequences; ++s) {
      for (Index t = part; t < length; t += part) cuts.push_back(s * length + t);
      cuts.push_back((s + 1) * length);
    }
  } else {
    const Index together = share(sequences, share(sequences, most / length));
    for (Index s = together; s < sequences; s += together) cuts.push_back(s * length);
    cuts.push_back(sequences * length);
  }
  return cuts;
}

}  // namespace

HeadPlan plan_head(const Graph& graph, const Batch& batch, const PassOptions& options) {
  HeadPlan none{.begin = graph.nodes.size()};
  if (options.head_rows <= 0 || options.weightless != nullptr || find_head(graph) == none.begin) return none;
  const Index rows = graph.rows(batch).back();
  HeadPlan head{find_head(graph), cut_rows(batch.sequences, rows / batch.sequences, options.head_rows)};
  return head.cuts.size() > 2 ? head : none;
}

std::vector<Index> rows_held(const Graph& graph, const Batch& batch, const HeadPlan& head) {
  std::vector<Index> rows = graph.rows(batch);
  std::fill(rows.begin() + static_cast<std::ptrdiff_t>(head.begin), rows.end(), head.most());
  return rows;
}

std::vector<bool> find_cuts(const Graph& graph, std::size_t end) {
  const std::size_t count = graph.nodes.size();
  std::vector<std::size_t> last_use(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    for (const int wire : graph.nodes[i].inputs) last_use[static_cast<std::size_t>(wire)] = i;
  }
  std::vector<bool> cuts(count, false);
  std::size_t reach = 0;  // the last node that reads a wire from before i
  Index since = 0;        // channels since the last cut
  for (std::size_t i = 0; i < std::min(end, count - 1); ++i) {
    const Index own = channels_of(graph.nodes[i].op);
    cuts[i] = reach <= i && since >= 8 * own;
    since = cuts[i] ? 0 : since + own;
    reach = std::max(reach, last_use[i]);
  }
  return cuts;
}

namespace {

// Numbers that a node leaves on the way down.
double left_by(const Node& node, Index rows) {
  return static_cast<double>(rows) * static_cast<double>(channels_of(node.op) + kept_by(node.op));
}

}  // namespace

std::vector<bool> find_repeats(const Graph& graph, const std::vector<bool>& cuts, const std::vector<Index>& rows, double numbers) {
  std::vector<bool> again = cuts;
  std::size_t end = cuts.size();  // the cut whose segment is being counted
  double segment = 0;
  for (std::size_t i = cuts.size(); i-- > 0;) {
    segment += end < cuts.size() && !cuts[i] ? left_by(graph.nodes[i], rows[i]) : 0;
    if (!cuts[i] && i > 0) continue;
    if (end < cuts.size()) {
      if (segment > numbers) break;
      numbers -= segment;
      again[end] = false;
    }
    end = i;
    segment = 0;
  }
  return again;
}

Index place_weights(const Graph& graph, const Node& node, const std::function<void(int param, Index at)>& place) {
  constexpr Index line = 16;  // each begins on a cache line of its own
  Index at = 0;
  for (std::size_t u = 0; u < node.params.size(); ++u) {
    const int param = node.params[u].param;
    const auto before = std::span(node.params).first(u);  // a node may use several blocks of one tensor
    if (std::ranges::find(before, param, &ParamUse::param) != before.end()) continue;
    place(param, at);
    at += (graph.params[static_cast<std::size_t>(param)].size() + line - 1) / line * line;
  }
  return at;
}

Index largest_weights(const Graph& graph) {
  Index largest = 0;
  for (const Node& node : graph.nodes) largest = std::max(largest, place_weights(graph, node, [](int, Index) {}));
  return largest;
}

bool is_made(const PassOptions& options, std::size_t param) {
  return options.weightless == nullptr || options.weightless->params[param].made;
}

Index rows_made(const PassOptions& options, const Graph& graph, std::size_t param) {
  return is_made(options, param) ? graph.params[param].rows() : static_cast<Index>(options.weightless->params[param].rows.size());
}

namespace {

// Parameters whose gradient is not made, because its norm is cheaper: all their uses are blocks of matrices, each block used once. A
// table of tokens may be one such matrix as well (a tied head), if it is used whole.
std::vector<bool> find_norms(const Graph& graph, const std::vector<Index>& rows, const HeadPlan& head) {
  const std::size_t count = graph.params.size();
  std::vector<bool> cheaper(count, false), other(count, false), table(count, false);
  std::vector<std::vector<ParamUse>> uses(count);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const Index matrices = i < head.begin ? matrices_by_norm_of(node.op, rows[i]) : 0;
    for (std::size_t u = 0; u < node.params.size(); ++u) {
      const ParamUse& use = node.params[u];
      const auto k = static_cast<std::size_t>(use.param);
      // of a matrix in pieces the squares go to the tensor of the first
      const bool product = std::cmp_less(u, matrices) && use.param == node.params[0].param;
      const bool lookup = looks_up(node.op);
      if (lookup) table[k] = true;
      if (product) cheaper[k] = true;
      if (!(product || lookup) || (product && std::ranges::find(uses[k], use) != uses[k].end())) other[k] = true;
      if (product) uses[k].push_back(use);
    }
  }
  for (std::size_t k = 0; k < count; ++k) {
    const bool by_rows = uses[k].size() == 1 && uses[k][0] == graph.whole(static_cast<int>(k)) && !graph.params[k].in_out;
    cheaper[k] = cheaper[k] && !other[k] && (!table[k] || by_rows);
  }
  return cheaper;
}

}  // namespace

std::vector<GradientPlan> plan_gradients(const Graph& graph, const Batch& batch, const PassOptions& options, const HeadPlan& head) {
  std::vector<GradientPlan> plan(graph.params.size());
  for (std::size_t k = 0; options.weightless != nullptr && k < plan.size(); ++k) {
    plan[k] = {options.weightless->params[k].made, options.weightless->params[k].rows};
  }
  for (std::size_t k = 0; k < plan.size(); ++k) plan[k] = graph.params[k].frozen ? GradientPlan() : plan[k];
  if (!options.norms || options.weightless != nullptr) return plan;
  const std::vector<bool> norms = find_norms(graph, graph.rows(batch), head);
  for (std::size_t k = 0; k < plan.size(); ++k) plan[k].whole = !norms[k] || graph.params[k].frozen;
  for (const Node& node : graph.nodes) {
    if (!looks_up(node.op)) continue;
    GradientPlan& table = plan[static_cast<std::size_t>(node.params[0].param)];
    if (!table.whole) table.rows = ids_that_occur(batch);
  }
  return plan;
}

bool is_stand_in(const PassOptions& options, std::size_t node) {
  return options.weightless != nullptr && !std::holds_alternative<std::monostate>(options.weightless->nodes[node]);
}

namespace {

// The most numbers of parameter gradients that are held at a time: a gradient is held from the last use of its tensor up to the first.
double largest_gradients(const Graph& graph, const std::vector<GradientPlan>& plan) {
  std::vector<std::size_t> last_use(graph.params.size(), 0), first_use(graph.params.size(), graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ParamUse& use : graph.nodes[i].params) {
      const auto k = static_cast<std::size_t>(use.param);
      last_use[k] = i;
      first_use[k] = std::min(first_use[k], i);
    }
  }
  double held = 0, largest = 0;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const auto change = [&](const std::vector<std::size_t>& when, double sign) {
      place_weights(graph, graph.nodes[i], [&](int param, Index) {
        const auto k = static_cast<std::size_t>(param);
        if (when[k] == i) held += sign * static_cast<double>(plan[k].rows_made(graph.params[k]) * graph.params[k].cols());
      });
    };
    change(last_use, 1);
    largest = std::max(largest, held);
    change(first_use, -1);
  }
  return largest;
}

}  // namespace

template <class S>
double Pass<S>::memory_needed(const Graph& graph, const Batch& batch, PassOptions options) {
  double numbers = options.stream ? static_cast<double>(largest_weights(graph)) : 0, largest_wire = 0, segment = 0, largest_segment = 0;
  for (std::size_t k = 0; !options.stream && k < graph.params.size(); ++k) {
    numbers += static_cast<double>(rows_made(options, graph, k) * graph.params[k].cols());
  }
  const HeadPlan head = plan_head(graph, batch, options);
  const std::vector<Index> rows = rows_held(graph, batch, head);
  const std::vector<bool> cuts = options.checkpoint ? find_cuts(graph, head.begin) : std::vector<bool>(graph.nodes.size(), true);
  const std::vector<bool> again = find_repeats(graph, cuts, rows, options.keep_bytes / sizeof(S));
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const double size = left_by(graph.nodes[i], rows[i]), tokens = static_cast<double>(rows[i]);
    (cuts[i] ? numbers : segment) += size;
    // a row space is two (T, T) matrices of doubles; sums over pieces take up to 32 more while they are made
    if (is_stand_in(options, i)) segment += 4 * tokens * tokens;
    largest_segment = std::max(largest_segment, segment);
    if (cuts[i] && !again[i]) numbers += segment;
    if (cuts[i]) segment = 0;
    largest_wire = std::max(largest_wire, tokens * static_cast<double>(channels_of(graph.nodes[i].op)));
  }
  const auto tokens = static_cast<double>(batch.tokens());
  const std::vector<GradientPlan> gradients = plan_gradients(graph, batch, options, head);
  // sums of (T, T) doubles, one a piece of work
  const double scratch = std::ranges::all_of(gradients, &GradientPlan::whole) ? 0 : 64 * tokens * tokens;
  return (numbers + largest_segment + largest_gradients(graph, gradients) + 2 * largest_wire + scratch) * sizeof(S);
}

template double Pass<float>::memory_needed(const Graph&, const Batch&, PassOptions);
template double Pass<double>::memory_needed(const Graph&, const Batch&, PassOptions);

}  // namespace stepzero
