#include "stepzero/graph/sources.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

// Numbers of sources, as bits.
class Sources {
 public:
  void add(std::size_t source) {
    words_.resize(std::max(words_.size(), source / 64 + 1));
    words_[source / 64] |= std::uint64_t{1} << (source % 64);
  }
  void add(const Sources& other) {
    words_.resize(std::max(words_.size(), other.words_.size()));
    for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  }
  // The first that both hold; -1: none.
  [[nodiscard]] std::ptrdiff_t shared_with(const Sources& other) const {
    for (std::size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i) {
      const std::uint64_t both = words_[i] & other.words_[i];
      if (both != 0) return static_cast<std::ptrdiff_t>(64 * i) + __builtin_ctzll(both);
    }
    return -1;
  }

 private:
  std::vector<std::uint64_t> words_;
};

// The weights of an op that begin afresh: a matrix of zero mean makes its output uncorrelated with its input.
bool begins_afresh(const AnyOp& any) {
  return std::visit(
      []<class T>(const T&) {
        return std::is_same_v<T, TokenEmbedding> || std::is_same_v<T, Linear> || std::is_same_v<T, LoraLinear> ||
               std::is_same_v<T, Experts> || std::is_same_v<T, PatchEmbedding> || std::is_same_v<T, Conv> || std::is_same_v<T, Pixels> ||
               std::is_same_v<T, TimeConv> || std::is_same_v<T, Probe> || std::is_same_v<T, Features>;
      },
      any);
}

// Which of its wires an op wants to be uncorrelated with each other: all, or none.
const char* what_meets(const AnyOp& op) {
  if (std::holds_alternative<Residual>(op)) return "adds";
  if (std::holds_alternative<Multiply>(op)) return "multiplies";
  if (std::holds_alternative<Attention>(op)) return "attends with";
  if (std::holds_alternative<Scan>(op)) return "scans";
  return nullptr;
}

// What a wire holds: sources that it is a sum of, and those that came through something that is not linear.
struct Held {
  Sources linear, bent;

  void add(const Held& other) {
    linear.add(other.linear);
    bent.add(other.bent);
  }
  void bend(const Held& other) {
    bent.add(other.linear);
    bent.add(other.bent);
  }
};

class Walk {
 public:
  explicit Walk(const Graph& graph) : graph_(graph), of_(graph.nodes.size()), maps_(find_maps(graph)), last_reader_(graph.nodes.size()) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const int input : graph.nodes[i].inputs) last_reader_[static_cast<std::size_t>(input)] = i;
    }
  }

  Expected<bool> run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (auto done = check_op(node); !done) return std::unexpected(done.error());
      if (auto done = check(node); !done) return std::unexpected(done.error());
      fill(i, node);
      for (const int input : node.inputs) {
        if (last_reader_[static_cast<std::size_t>(input)] == i) of_[static_cast<std::size_t>(input)] = {};
      }
    }
    return coherent_;
  }

 private:
  [[nodiscard]] const Held& of(int wire) const { return of_[static_cast<std::size_t>(wire)]; }

  // A source that both hold, and not both linearly; of ops other than sums any; -1: none.
  [[nodiscard]] static std::ptrdiff_t uncovered(const Held& x, const Held& y, bool sum) {
    std::ptrdiff_t shared = x.bent.shared_with(y.bent);
    if (shared < 0) shared = x.bent.shared_with(y.linear);
    if (shared < 0) shared = x.linear.shared_with(y.bent);
    return shared < 0 && !sum ? x.linear.shared_with(y.linear) : shared;
  }

  // An op that has no rule at all, or weights that another has used already.
  Expected<void> check_op(const Node& node) {
    const char* why = std::visit(
        []<class T>(const T& op) -> const char* {
          if constexpr (requires { op.not_predicted(); }) return op.not_predicted();
          return nullptr;
        },
        node.op);
    const auto* attention = std::get_if<Attention>(&node.op);
    if (attention != nullptr && attention->cross && given_) why = "attention to a sequence of another length";
    if (why != nullptr) return fail(fmt::format("{}: no rule of the theory covers {}", show(node.name), why), hint_);
    if (!std::holds_alternative<Linear>(node.op)) return {};
    const ParamUse& use = node.params[0];
    const auto [it, fresh] = matrices_.emplace(std::tuple(use.param, use.row0, use.col0), &node);
    if (fresh) return {};
    return fail(fmt::format("{} uses the weights of {} again: no rule of the theory covers that", show(node.name), show(it->second->name)),
                hint_);
  }

  // Maps over one wire of values are alike in nothing else: their queries and keys are made by matrices of their own.
  [[nodiscard]] bool covered_maps(const Node& node) const {
    const auto at = [](int i) { return static_cast<std::size_t>(i); };
    const Maps &a = maps_[at(node.inputs[0])], &b = maps_[at(node.inputs[1])];
    if (!over_same_values(graph_, a, b)) return false;
    return std::ranges::all_of(a, [&](const Map& one) {
      return std::ranges::all_of(b, [&](const Map& other) {
        const Node &x = graph_.nodes[at(one.attention)], &y = graph_.nodes[at(other.attention)];
        return scores_[at(one.attention)].shared_with(scores_[at(other.attention)]) < 0 && x.op.index() == y.op.index();
      });
    });
  }

  Expected<void> check(const Node& node) {
    const char* meets = what_meets(node.op);
    const bool sum = std::holds_alternative<Residual>(node.op);
    if (sum && covered_maps(node)) return {};
    for (std::size_t a = 0; meets != nullptr && a < node.inputs.size(); ++a) {
      for (std::size_t b = a + 1; b < node.inputs.size(); ++b) {
        const Held &x = of(node.inputs[a]), &y = of(node.inputs[b]);
        const std::ptrdiff_t shared = uncovered(x, y, sum);
        if (shared >= 0) return refuse(node, meets, node.inputs[a], node.inputs[b], names_[static_cast<std::size_t>(shared)]);
        coherent_ = coherent_ || x.linear.shared_with(y.linear) >= 0;
      }
    }
    return {};
  }

  [[nodiscard]] Expected<void> refuse(const Node& node, const char* meets, int a, int b, const std::string& source) const {
    const auto name = [&](int wire) { return show(graph_.nodes[static_cast<std::size_t>(wire)].name); };
    const std::string pair = a == b ? fmt::format("{} and itself", name(a))
                                    : fmt::format("{} and {}, which both hold what {} makes", name(a), name(b), show(source));
    return fail(fmt::format("{} {} {}: no rule of the theory covers wires that are correlated so", show(node.name), meets, pair), hint_);
  }

  // Two uses of one block of weights are one source.
  std::size_t source(const Node& node, const ParamUse& use) {
    const auto [it, fresh] = ids_.emplace(std::tuple(use.param, use.row0, use.col0), names_.size());
    if (fresh) names_.push_back(node.name);
    return it->second;
  }

  void fill(std::size_t i, const Node& node) {
    Held& to = of_[i];
    given_ = given_ || std::holds_alternative<Features>(node.op) || std::holds_alternative<Probe>(node.op);
    if (std::holds_alternative<Pixels>(node.op) || std::holds_alternative<Features>(node.op)) {
      to.linear.add(names_.size());
      names_.push_back(node.name);
    } else if (begins_afresh(node.op)) {
      to.linear.add(source(node, node.params[0]));
    } else if (std::holds_alternative<Attention>(node.op)) {
      to.bend(of(node.inputs[2]));  // a mean of the values
      for (int k = 0; k < 2; ++k) {
        const Held& side = of(node.inputs[static_cast<std::size_t>(k)]);
        scores_[i].add(side.linear), scores_[i].add(side.bent);
      }
    } else {
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        if (passes_on(node, k).linear)
          to.add(of(node.inputs[k]));
        else
          to.bend(of(node.inputs[k]));
      }
      if (std::holds_alternative<LearnedPosition>(node.op)) to.linear.add(source(node, node.params[0]));
    }
  }

  static constexpr const char* hint_ = "stepzero measure runs the model";
  const Graph& graph_;
  std::vector<Held> of_;
  std::vector<Maps> maps_;
  std::vector<Sources> scores_ = std::vector<Sources>(of_.size());  // of attentions: what their queries and keys hold
  std::vector<std::size_t> last_reader_;
  std::map<std::tuple<int, Index, Index>, std::size_t> ids_;
  std::vector<std::string> names_;  // of the node where each source begins
  bool coherent_ = false;
  bool given_ = false;                                             // a wire whose rows are not the batch's tokens
  std::map<std::tuple<int, Index, Index>, const Node*> matrices_;  // which node uses a block first
};

}  // namespace

PassesOn passes_on(const Node& node, std::size_t k, std::span<const Law> theta) {
  if (const auto* sum = std::get_if<Residual>(&node.op)) return {.linear = true, .times = k == 0 ? sum->skip_scale : sum->branch_scale};
  if (const auto* scale = std::get_if<Scale>(&node.op)) return {.linear = true, .times = scale->factor};
  if (const auto* gain = std::get_if<Gain>(&node.op))
    return {.linear = true, .learned = gain->one, .times = theta.empty() ? 1 : theta[0].mean};
  if (std::holds_alternative<RmsNorm>(node.op) || std::holds_alternative<LayerNorm>(node.op)) return {.linear = true, .by_token = true};
  const bool adds = std::holds_alternative<LearnedPosition>(node.op) || std::holds_alternative<SinusoidalPosition>(node.op);
  return {.linear = adds || std::holds_alternative<Dropout>(node.op)};
}

std::vector<Maps> find_maps(const Graph& graph, std::span<const std::vector<Law>> theta) {
  std::vector<Maps> maps(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (const auto* op = std::get_if<Attention>(&node.op)) {
      if (!op->cross) maps[i] = {{static_cast<int>(i), 1, -1}};
      continue;
    }
    const bool sum = std::holds_alternative<Residual>(node.op);
    if (!sum && !std::holds_alternative<Scale>(node.op) && !std::holds_alternative<Gain>(node.op)) continue;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const Maps& from = maps[static_cast<std::size_t>(node.inputs[k])];
      if (from.empty() || (sum && !maps[i].empty() && !over_same_values(graph, maps[i], from))) {
        maps[i].clear();
        break;
      }
      const PassesOn how = passes_on(node, k, theta.empty() ? std::span<const Law>() : theta[i]);
      for (Map map : from) {
        map.times *= how.times;
        if (how.learned) map.scalar = node.params[0].param;
        maps[i].push_back(map);
      }
    }
  }
  return maps;
}

bool over_same_values(const Graph& graph, const Maps& a, const Maps& b) {
  const auto values = [&](const Map& map) { return graph.nodes[static_cast<std::size_t>(map.attention)].inputs[2]; };
  return !a.empty() && !b.empty() && std::ranges::all_of(a, [&](const Map& one) {
    return std::ranges::all_of(b, [&](const Map& other) { return one.attention != other.attention && values(one) == values(other); });
  });
}

bool shares_values(const Graph& graph) {
  return std::ranges::any_of(find_maps(graph), [](const Maps& maps) { return maps.size() > 1; });
}

Expected<bool> check_sources(const Graph& graph) { return Walk(graph).run(); }

}  // namespace stepzero
