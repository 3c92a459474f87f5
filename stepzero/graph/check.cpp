#include "stepzero/graph/check.hpp"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/graph/op_fields.hpp"

namespace stepzero {

namespace {

// The channels that an op wants of each wire it reads.
std::vector<Index> channels_wanted(const AnyOp& any) {
  return std::visit(
      []<class T>(const T& op) -> std::vector<Index> {
        if constexpr (std::is_same_v<T, Linear>) {
          return {op.in};
        } else if constexpr (std::is_same_v<T, LoraLinear>) {
          return {op.base.in};
        } else if constexpr (std::is_same_v<T, Attention>) {
          return {op.heads * op.key_dim, op.kv_heads * op.key_dim, op.kv_heads * op.value_dim};
        } else if constexpr (std::is_same_v<T, Join>) {
          return {op.heads * op.own, op.shared};
        } else if constexpr (std::is_same_v<T, Repeat>) {
          return {op.width};
        } else if constexpr (std::is_same_v<T, Experts>) {
          return {op.width, op.routing.experts};
        } else if constexpr (std::is_same_v<T, CrossEntropy>) {
          return {op.vocab};
        } else if constexpr (std::is_same_v<T, TimeConv>) {
          return {op.in};
        } else if constexpr (std::is_same_v<T, Concat>) {
          return {op.n, op.m};
        } else if constexpr (std::is_same_v<T, Take>) {
          return {op.from};
        } else if constexpr (std::is_same_v<T, Scan>) {
          return {op.heads * op.head_dim, op.heads, op.groups * op.states, op.groups * op.states};
        } else {
          return std::vector<Index>(static_cast<std::size_t>(op.inputs()), op.channels());
        }
      },
      any);
}

// Every size of an op is at least 1, but for those where 0 means none. Empty: fine.
std::string wrong_size(const AnyOp& any) {
  std::string wrong;
  const auto look = [&]<class F>(const char* field, const F& value) {
    const std::string_view name = field;
    const bool may_be_none = name == "padding" || name == "offset" || name == "window" || name == "buckets" || name == "first" ||
                             name == "turned" || name == "node" || name == "around" || name == "chunk" || name == "count" ||
                             name == "before" || name == "after" || name == "id";
    if constexpr (std::is_same_v<F, Index>) {
      if (value < (may_be_none ? (name == "padding" || name == "id" ? -1 : 0) : 1)) wrong = fmt::format("{} = {}", field, value);
    }
  };
  std::visit([&](const auto& op) { visit_fields(op, look); }, any);
  return wrong;
}

template <class N>
std::string wrong_norm(const N& op) {
  if (!(op.eps >= 0)) return "eps must not be negative";
  if (std::is_same_v<N, RmsNorm> && op.bias) return "an RMSNorm has no bias";
  return op.gain_per_group && !op.gain && !op.bias ? "gain_per_group without a gain" : "";
}

std::string wrong(const Attention& op) {
  if (op.heads % op.kv_heads != 0) return fmt::format("kv_heads = {} does not divide heads = {}", op.kv_heads, op.heads);
  if (!op.alibi.empty() && std::ssize(op.alibi) != op.heads)
    return fmt::format("alibi has {} slopes for {} heads", op.alibi.size(), op.heads);
  if (!(op.softcap >= 0)) return "softcap must not be negative";
  if (op.buckets > 0 && (op.buckets < 4 || 2 * op.farthest <= op.buckets)) return "buckets must be at least 4 and less than twice farthest";
  if (op.chunk > 0 && op.window > 0) return "keys are seen in a window or in chunks, not both";
  return "";
}

std::string wrong(const Rotary& op) {
  if (op.turned % 2 != 0 || op.turned < 2) return fmt::format("turned = {} must be even", op.turned);
  if (op.first + op.turned > op.head_dim)
    return fmt::format("{} turned channels from {} on do not fit a head of {}", op.turned, op.first, op.head_dim);
  if (!op.frequencies.empty() && 2 * std::ssize(op.frequencies) != op.turned) return "one frequency a pair of turned channels";
  return op.base > 0 ? "" : "base must be positive";
}

std::string wrong(const Experts& op) {
  const Routing& r = op.routing;
  if (r.experts > 65536) return "at most 65536 experts";
  if ((op.bias || op.interleaved) && !op.fused) return "biases and interleaved channels are of fused experts";
  if (!(op.most >= 0)) return "most must not be negative";
  if (r.experts % r.groups != 0 || r.kept_groups > r.groups) return "groups must divide experts, and kept_groups be at most groups";
  const Index members = r.experts / r.groups;
  if (r.group_best > members) return fmt::format("group_best = {}, and a group has {} experts", r.group_best, members);
  return r.chosen <= r.kept_groups * members ? ""
                                             : fmt::format("a token cannot choose {} of {} experts", r.chosen, r.kept_groups * members);
}

std::string wrong(const Scan& op) {
  if (op.heads % op.groups != 0) return fmt::format("groups = {} does not divide heads = {}", op.groups, op.heads);
  return op.least >= 0 && op.most > op.least ? "" : "the limits of a step must be positive, the least first";
}

std::string wrong(const TimeConv& op) {
  if (op.depthwise && op.in != op.out) return "a depthwise convolution has as many channels as it reads";
  return op.before < op.size && op.after < op.size ? "" : "the window must reach a token: before and after are less than size";
}

std::string wrong(const Take& op) {
  return op.first + op.width <= op.from ? "" : fmt::format("no {} channels from {} on of {}", op.width, op.first, op.from);
}
std::string wrong(const Temperature& op) { return op.every > 0 ? "" : "every must be positive"; }

// What is wrong with the numbers of an op beyond their signs; empty: nothing.
std::string wrong_numbers(const AnyOp& any) {
  return std::visit(
      []<class T>(const T& op) -> std::string {
        if constexpr (std::is_same_v<T, LayerNorm> || std::is_same_v<T, RmsNorm>) {
          return wrong_norm(op);
        } else if constexpr (requires { wrong(op); }) {
          return wrong(op);
        } else if constexpr (std::is_same_v<T, LoraLinear>) {
          return "adapters are added to a graph (--lora), not read with it";
        } else if constexpr (std::is_same_v<T, Linear>) {
          if (op.out % op.pieces != 0) return fmt::format("{} pieces do not divide {} channels", op.pieces, op.out);
          return op.pieces > 1 && op.storage == Storage::in_out ? "pieces are stored out_in" : "";
        } else if constexpr (std::is_same_v<T, Dropout>) {
          return op.p >= 0 && op.p <= 0.99 ? "" : "p must be from 0 to 0.99";
        } else if constexpr (std::is_same_v<T, Softcap>) {
          return op.cap > 0 ? "" : "cap must be positive";
        } else if constexpr (std::is_same_v<T, Clip>) {
          return op.most > 0 ? "" : "most must be positive";
        } else if constexpr (std::is_same_v<T, TokenEmbedding>) {
          return op.padding < op.vocab ? "" : "padding lies outside the vocabulary";
        } else if constexpr (std::is_same_v<T, PatchEmbedding>) {
          return op.patch <= op.side && op.side <= 65536 ? "" : "patch must be at most side";
        } else if constexpr (requires { op.places(); } && !std::is_same_v<T, TokenPool> && !std::is_same_v<T, Probe> &&
                             !std::is_same_v<T, Features>) {
          return "convolutional networks are not read from a graph yet";
        }
        return "";
      },
      any);
}

bool inside(const ParamUse& u, const Param& p) {
  return u.rows >= 1 && u.cols >= 1 && u.row0 <= p.rows() - u.rows && u.col0 <= p.cols() - u.cols;
}

Expected<void> check_uses(const Graph& graph, const AnyOp& op, const std::vector<ParamUse>& uses) {
  const auto expected = std::visit([](const auto& o) { return o.params(); }, op);
  if (expected.size() != uses.size())
    return fail(fmt::format("{} takes {} tensors, {} are given", kind_of(op), expected.size(), uses.size()));
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].param < 0 || std::cmp_greater_equal(uses[i].param, graph.params.size()))
      return fail(fmt::format("no tensor {}", uses[i].param));
    const Param& p = graph.params[static_cast<std::size_t>(uses[i].param)];
    if (uses[i].rows != expected[i].rows || uses[i].cols != expected[i].cols || !inside(uses[i], p)) {
      return fail(fmt::format("{} wants {} x {} of \"{}\", which is {} x {}", kind_of(op), expected[i].rows, expected[i].cols, show(p.name),
                              p.rows(), p.cols()));
    }
  }
  return {};
}

bool overlap(const ParamUse& a, const ParamUse& b) {
  return a.row0 < b.row0 + b.rows && b.row0 < a.row0 + a.rows && a.col0 < b.col0 + b.cols && b.col0 < a.col0 + a.cols;
}

// Two uses of a tensor are the same block or have nothing in common, and every tensor is used.
Expected<void> check_blocks(const Graph& graph) {
  std::vector<std::vector<ParamUse>> blocks(graph.params.size());
  for (const Node& node : graph.nodes) {
    for (const ParamUse& use : node.params) {
      auto& list = blocks[static_cast<std::size_t>(use.param)];
      if (std::ranges::find(list, use) != list.end()) continue;
      const std::string name = show(graph.params[static_cast<std::size_t>(use.param)].name);
      if (list.size() > 4096) return fail(fmt::format("\"{}\" is used in more than 4096 pieces", name));
      for (const ParamUse& other : list) {
        if (overlap(use, other)) return fail(fmt::format("two uses of \"{}\" overlap without being the same", name));
      }
      list.push_back(use);
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].empty() && !graph.params[i].frozen)
      return fail(fmt::format("nothing uses the tensor \"{}\"", show(graph.params[i].name)));
  }
  return {};
}

}  // namespace

Expected<void> add_checked(Graph& graph, Param p) {
  if (graph.params.size() >= most_params) return fail(fmt::format("more than {} tensors", most_params));
  if (p.name.empty() || p.name.size() > 512) return fail("a tensor has a name, of at most 512 bytes");
  if (p.shape.size() > 4) return fail(fmt::format("\"{}\" has {} dimensions", show(p.name), p.shape.size()), "at most 4");
  Index size = 1;
  for (const Index n : p.shape) {
    if (n < 1 || n > most_size / size)
      return fail(fmt::format("\"{}\": the shape {} is no size that can be held", show(p.name), fmt::join(p.shape, " x ")));
    size *= n;
  }
  if (p.fan_in < 1 || p.fan_out < 1) return fail(fmt::format("\"{}\": fans are at least 1", show(p.name)));
  if (p.zero_row >= p.rows()) return fail(fmt::format("\"{}\" has no row {}", show(p.name), p.zero_row));
  for (const Part& part : p.parts) {
    if (!inside({0, part.row0, part.col0, part.rows, part.cols}, p) || part.fan_out < 1)
      return fail(fmt::format("a part of \"{}\" does not fit it", show(p.name)));
  }
  graph.add_param(std::move(p));
  return {};
}

Expected<void> add_checked(Graph& graph, std::string name, AnyOp op, std::vector<int> inputs, std::vector<ParamUse> uses) {
  if (graph.nodes.size() >= most_nodes) return fail(fmt::format("more than {} nodes", most_nodes), "fewer layers?");
  if (std::string w = wrong_size(op); !w.empty()) return fail(fmt::format("{}: {}", kind_of(op), w));
  if (std::string w = wrong_numbers(op); !w.empty()) return fail(fmt::format("{}: {}", kind_of(op), w));
  const std::vector<Index> wanted = channels_wanted(op);
  if (wanted.size() != inputs.size())
    return fail(fmt::format("{} reads {} wires, {} are given", kind_of(op), wanted.size(), inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] < 0 || std::cmp_greater_equal(inputs[i], graph.nodes.size())) return fail(fmt::format("no wire {}", inputs[i]));
    const Node& from = graph.nodes[static_cast<std::size_t>(inputs[i])];
    if (channels_of(from.op) != wanted[i]) {
      return fail(
          fmt::format("{} reads a wire of {} channels here, and {} has {}", kind_of(op), wanted[i], show(from.name), channels_of(from.op)));
    }
  }
  if (auto done = check_uses(graph, op, uses); !done) return done;
  graph.add_node(std::move(name), std::move(op), std::move(inputs), std::move(uses));
  return {};
}

Expected<void> check_whole(const Graph& graph) {
  if (graph.nodes.empty() || std::get_if<CrossEntropy>(&graph.nodes.back().op) == nullptr)
    return fail("the last node is no loss", "loss(head(x, vocab, ...)) ends a file");
  std::vector<bool> used(graph.nodes.size());
  std::unordered_set<std::string_view> names, tensors;
  bool stream = false, pooled = false;
  Index vocab = 0;
  double numbers = 0;
  for (const Param& p : graph.params) {
    numbers += static_cast<double>(p.size());
    if (!tensors.insert(p.name).second)
      return fail(fmt::format("two tensors are called \"{}\"", show(p.name)), "every tensor has a name of its own");
  }
  if (!(numbers <= 1e13)) return fail(fmt::format("{:.1e} parameters, {:.0f} TB in float32; the limit is 1e13", numbers, numbers * 4e-12));
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (const int input : node.inputs) used[static_cast<std::size_t>(input)] = true;
    stream = stream || node.is_stream();
    if (!names.insert(node.name).second) return fail(fmt::format("two nodes are called {}", show(node.name)));
    const auto* loss = std::get_if<CrossEntropy>(&node.op);
    const auto* tokens = std::get_if<TokenEmbedding>(&node.op);
    pooled = pooled || std::holds_alternative<TokenPool>(node.op) || std::holds_alternative<Probe>(node.op);
    if (loss != nullptr && i + 1 < graph.nodes.size()) return fail("there is more than one loss, or something behind it");
    for (const Index n : {loss != nullptr && !pooled ? loss->vocab : 0, tokens != nullptr ? tokens->vocab : 0}) {
      if (n > 0 && vocab > 0 && n != vocab) return fail(fmt::format("one vocabulary has {} words, another {}", vocab, n));
      if (n > 0) vocab = n;
    }
  }
  if (!stream) return fail("no wire is marked as the stream", "stream(x) before the first block and after each");
  for (std::size_t i = 0; i + 1 < used.size(); ++i) {
    if (!used[i]) return fail(fmt::format("nothing reads the wire {}", show(graph.nodes[i].name)), "leave it out, or use it");
  }
  return check_blocks(graph);
}

}  // namespace stepzero
