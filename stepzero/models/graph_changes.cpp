#include "stepzero/models/graph_changes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

constexpr auto changes =
    std::to_array<std::string_view>({"norm", "norm_placement", "attention_scale", "position", "skip_scale", "skip_scales", "residual_scale",
                                     "residual_scales", "branch_gain", "sub_norm", "norm_scale_by_layer", "unit_linear", "qk_norm",
                                     "embedding_scale", "logit_scale", "base_width", "base_layers"});

bool is_norm_op(const AnyOp& op) { return std::holds_alternative<LayerNorm>(op) || std::holds_alternative<RmsNorm>(op); }

// A sum of the stream and a branch.
struct Branch {
  Place place;
  std::string kind;  // attn, ffn, cross
  std::size_t number = 0;

  [[nodiscard]] std::string at() const { return fmt::format("{}blocks.{}.", place.stack.empty() ? "" : place.stack + ".", place.layer); }
};

std::optional<Branch> branch_of(const Node& node) {
  if (!std::holds_alternative<Residual>(node.op)) return {};
  Branch b{.place = place_of(node.name), .kind = {}};
  if (b.place.is_stream())
    b.kind = "ffn", --b.place.layer;
  else if (b.place.part == "ffn.sum")
    b.kind = "ffn";
  else if (b.place.part == "mid" || b.place.part == "attn.sum")
    b.kind = "attn";
  else if (b.place.part == "crossed" || b.place.part == "cross.sum")
    b.kind = "cross";
  else
    return {};
  b.number = 2 * static_cast<std::size_t>(b.place.layer) + (b.kind == "ffn" ? 1 : 0);
  return b;
}

// What stands in front of the layer's number in names of its tensors, with the number: "model.layers.3."
std::string prefix_of(const Graph& graph, const Place& place) {
  const std::string number = fmt::format(".{}.", place.layer);
  for (const Node& node : graph.nodes) {
    const Place here = place_of(node.name);
    if (here.stack != place.stack || here.layer != place.layer) continue;
    for (const ParamUse& use : node.params) {
      const std::string& name = graph.params[static_cast<std::size_t>(use.param)].name;
      if (const std::size_t at = name.find(number); at != std::string::npos) return name.substr(0, at + number.size());
    }
  }
  return fmt::format("blocks.{}.", place.layer);
}

// Copies a graph node by node.
class Changer {
 public:
  Changer(const Graph& from, const Architecture& before, const Architecture& after) : from_(from), before_(before), after_(after) {
    to_.params = from.params;
    for (const Node& node : from.nodes) {
      if (is_norm_op(node.op) && !a_norm_) a_norm_ = node.op;
    }
  }

  Expected<Graph> run() {
    if (auto fits = check(); !fits) return std::unexpected(fits.error());
    for (std::size_t i = 0; i < from_.nodes.size(); ++i) {
      if (auto done = copy(from_.nodes[i]); !done) return std::unexpected(done.error());
    }
    order_tensors();
    return std::move(to_);
  }

 private:
  [[nodiscard]] bool no_norms() const { return after_.norm == NormKind::none && before_.norm != NormKind::none; }
  [[nodiscard]] bool to_post() const {
    return after_.norm_placement == NormPlacement::post && before_.norm_placement == NormPlacement::pre && !no_norms();
  }

  [[nodiscard]] Expected<void> check() const {
    if (after_.norm_placement != before_.norm_placement && !to_post() && !no_norms()) {
      return fail(
          fmt::format("norms of placement {} are not moved to {}", to_string(before_.norm_placement), to_string(after_.norm_placement)),
          "norms in front of branches can be moved behind the sums, and no others");
    }
    if (after_.unit_linear && before_.experts > 0) return fail("unit_linear has no place inside experts");
    if (after_.sub_norm && (before_.experts > 0 || !a_norm_)) return fail("sub_norm needs a norm to copy, and has no place inside experts");
    const auto sums = static_cast<std::size_t>(std::ranges::count_if(from_.nodes, [](const Node& n) { return branch_of(n).has_value(); }));
    const auto crossed = static_cast<std::size_t>(std::ranges::count_if(from_.nodes, [](const Node& n) {
      const auto b = branch_of(n);
      return b && b->kind == "cross";
    }));
    const auto blocks = static_cast<std::size_t>(before_.layers + before_.decoder_layers);
    const bool of_branches = scales_differ() || after_.branch_gain != BranchGain::none || to_post();
    if (of_branches && sums - crossed != 2 * blocks) {
      return fail(fmt::format("{} sums of a branch and the stream in {} layers, where two a layer are expected", sums - crossed, blocks),
                  "stream(x) stands behind every layer; x + f is a sum where x is the stream");
    }
    return {};
  }

  [[nodiscard]] bool scales_differ() const {
    return after_.skip_scale != before_.skip_scale || after_.residual_scale != before_.residual_scale ||
           after_.skip_scales != before_.skip_scales || after_.residual_scales != before_.residual_scales;
  }

  int add(std::string name, AnyOp op, std::vector<int> inputs, std::vector<ParamUse> uses = {}) {
    return to_.add_node(std::move(name), std::move(op), std::move(inputs), std::move(uses));
  }

  Expected<void> copy(const Node& node) {
    std::vector<int> inputs;
    for (const int wire : node.inputs) inputs.push_back(at_[static_cast<std::size_t>(wire)]);
    if (is_norm_op(node.op) && leave_out(node, inputs)) return {};
    AnyOp op = node.op;
    std::string name = node.name;
    std::vector<ParamUse> uses = node.params;
    if (auto* scale = std::get_if<Scale>(&op)) scale->factor *= scaled_by(node.inputs[0]);
    if (auto* attention = std::get_if<Attention>(&op)) attention->scale *= after_.attention_scale / before_.attention_scale;
    const auto* p = std::get_if<LearnedPosition>(&op);
    // places of patches stay what they are
    if (p != nullptr && !p->constant && after_.position != before_.position && before_.image == 0) {
      if (after_.position != PositionKind::sinusoidal) return fail("learned positions can become sinusoidal ones, and nothing else");
      op = SinusoidalPosition{p->width};
      uses.clear();
    }
    if (std::holds_alternative<Linear>(op)) before_matrix(node, inputs);
    const auto branch = branch_of(node);
    if (branch) name = before_sum(*branch, name, std::get<Residual>(op), inputs);
    at_.push_back(add(name, std::move(op), std::move(inputs), std::move(uses)));
    if (branch && to_post()) return behind_sum(*branch, node.name);
    behind(node);
    return {};
  }

  // By how much the scale of embeddings or logits changes where this node is their scale, or where they have none.
  [[nodiscard]] double scaled_by(int wire) const {
    const Node& node = from_.nodes[static_cast<std::size_t>(wire)];
    if (std::holds_alternative<TokenEmbedding>(node.op)) return after_.embedding_scale / before_.embedding_scale;
    return node.name == "logits" ? after_.logit_scale / before_.logit_scale : 1;
  }
  [[nodiscard]] bool has_scale(std::size_t wire) const {
    return std::ranges::any_of(from_.nodes,
                               [&](const Node& n) { return std::holds_alternative<Scale>(n.op) && n.inputs[0] == static_cast<int>(wire); });
  }

  // Norms that are to go, or that wait for the sum of their branch.
  bool leave_out(const Node& node, const std::vector<int>& inputs) {
    const Place place = place_of(node.name);
    const bool moves =
        to_post() && place.layer >= 0 && (place.part == "attn.norm" || place.part == "ffn.norm" || place.part == "cross.norm");
    const bool last = to_post() && node.name.ends_with("final.norm");
    const bool of_latent = place.part.ends_with("latent_norm");  // inside a matrix of two factors
    if ((!no_norms() || of_latent) && !moves && !last) return false;
    if (moves) waiting_[place.stack + place.part + std::to_string(place.layer)] = &node;
    at_.push_back(inputs[0]);
    if (no_norms() && (place.is_stream() || place.part == "mid" || place.part == "crossed")) {
      to_.nodes[static_cast<std::size_t>(inputs[0])].name = node.name;  // the sum is what the norm behind it was
    }
    return true;
  }

  [[nodiscard]] Role role_of(const Node& node) const {
    const ParamUse& use = node.params[0];
    const Param& p = from_.params[static_cast<std::size_t>(use.param)];
    for (const Part& part : p.parts) {
      if (part.row0 == use.row0 && part.col0 == use.col0) return part.role;
    }
    return p.role;
  }

  // What enters a matrix of a block: a norm inside the branch, a product of unit size.
  void before_matrix(const Node& node, std::vector<int>& inputs) {
    const Place place = place_of(node.name);
    if (place.layer < 0) return;
    const Index in = std::get<Linear>(node.op).in;
    const std::string& tensor = from_.params[static_cast<std::size_t>(node.params[0].param)].name;
    const std::string kind = place.part.substr(0, place.part.find('.'));
    const std::string branch = node.name.substr(0, node.name.size() - place.part.size()) + kind + ".";
    const Role role = role_of(node);
    const bool last = role == Role::attention_out || role == Role::ffn_out;
    if (after_.sub_norm && !before_.sub_norm && last) {
      const std::string stem = tensor.substr(0, tensor.find_last_of('.'));
      inputs[0] =
          norm_like(branch + "sub_norm", stem.substr(0, stem.find_last_of('.') + 1) + (kind == "ffn" ? "ffn_sub_norm" : "attn_sub_norm"),
                    inputs[0], static_cast<int>(place.layer), in);
    }
    if (!after_.unit_linear || before_.unit_linear) return;
    const auto [it, fresh] = scaled_.emplace(std::pair(inputs[0], branch), 0);
    const bool memory = kind == "cross" && (role == Role::key || role == Role::value);
    if (fresh)
      it->second = add(branch + (last     ? "out.input"
                                 : memory ? "memory"
                                          : "input"),
                       Scale{in, 1 / std::sqrt(static_cast<double>(in))}, {inputs[0]});
    inputs[0] = it->second;
  }

  // A norm such as the model has, over all channels.
  int norm_like(const std::string& name, const std::string& stem, int x, int layer, Index width) {
    return std::visit(
        [&]<class N>(N norm) -> int {
          if constexpr (std::is_same_v<N, LayerNorm> || std::is_same_v<N, RmsNorm>) {
            norm.width = width;
            norm.groups = 1;
            norm.gain_per_group = false;
            std::vector<ParamUse> uses;
            const double neutral = norm.unit_offset ? 0 : 1;
            if (norm.gain) uses.push_back(to_.whole(to_.add_param({stem + ".weight", {width}, Role::gain, layer, 1, width, neutral})));
            if (norm.bias) uses.push_back(to_.whole(to_.add_param({stem + ".bias", {width}, Role::bias, layer, 1, width, neutral})));
            return add(name, norm, {x}, uses);
          }
          return x;
        },
        *a_norm_);
  }

  std::string before_sum(const Branch& b, std::string name, Residual& sum, std::vector<int>& inputs) {
    const auto scale = [&](const std::vector<double>& each, double all) { return each.empty() ? all : each[b.number]; };
    if (scales_differ()) {
      sum.skip_scale = scale(after_.skip_scales, after_.skip_scale);
      sum.branch_scale = scale(after_.residual_scales, after_.residual_scale);
    }
    if (after_.branch_gain != BranchGain::none && before_.branch_gain == BranchGain::none) {
      const bool one = after_.branch_gain == BranchGain::scalar;
      const Index n = one ? 1 : sum.width;
      const int layer = static_cast<int>(b.place.layer);
      const int g = to_.add_param({prefix_of(from_, b.place) + b.kind + "_gain", {n}, Role::branch_gain, layer, 1, n});
      inputs[1] = add(b.at() + b.kind + ".gain", Gain{sum.width, one}, {inputs[1]}, {to_.whole(g)});
    }
    return to_post() ? b.at() + b.kind + ".sum" : name;
  }

  // The norm that stood in front of the branch.
  Expected<void> behind_sum(const Branch& b, const std::string& name) {
    const auto norm = waiting_.find(b.place.stack + b.kind + ".norm" + std::to_string(b.place.layer));
    if (norm == waiting_.end())
      return fail(fmt::format("{} has no norm in front of the branch that could stand behind the sum", show(name)));
    at_.back() = add(name, norm->second->op, {at_.back()}, norm->second->params);
    return {};
  }

  void behind(const Node& node) {
    const Place place = place_of(node.name);
    const auto insert = [&](const std::string& name, Index width, double factor) {
      at_.back() = add(name, Scale{width, factor}, {at_.back()});
    };
    if (after_.norm_scale_by_layer && !before_.norm_scale_by_layer && is_norm_op(node.op) && place.part.ends_with(".norm")) {
      insert(node.name + "_scaled", channels_of(node.op), 1 / std::sqrt(static_cast<double>(place.layer + 1)));
    }
    const std::size_t wire = at_.size() - 1;
    const double factor = scaled_by(static_cast<int>(wire));
    if (factor == 1 || has_scale(wire)) return;
    const bool logits = node.name == "logits";
    insert(logits ? "logits.scaled" : "embed.scale", channels_of(node.op), factor);
    if (!place.is_stream()) return;
    to_.nodes[to_.nodes.size() - 2].name = (place.stack.empty() ? "" : place.stack + ".") + "embed.tokens";
    to_.nodes.back().name = node.name;
  }

  // In the order in which the nodes use them; without those that none uses.
  void order_tensors() {
    std::vector<int> number(to_.params.size(), -1);
    std::vector<Param> ordered;
    for (Node& node : to_.nodes) {
      for (ParamUse& use : node.params) {
        int& place = number[static_cast<std::size_t>(use.param)];
        if (place < 0) {
          place = static_cast<int>(ordered.size());
          ordered.push_back(std::move(to_.params[static_cast<std::size_t>(use.param)]));
        }
        use.param = place;
      }
    }
    to_.params = std::move(ordered);
  }

  const Graph& from_;
  const Architecture& before_;
  const Architecture& after_;
  Graph to_;
  std::vector<int> at_;  // of each node, its output in the new graph
  std::optional<AnyOp> a_norm_;
  std::map<std::string, const Node*> waiting_;
  std::map<std::pair<int, std::string>, int> scaled_;
};

}  // namespace

bool is_graph_change(std::string_view field) { return std::ranges::find(changes, field) != changes.end(); }

Expected<Graph> change_graph(const Graph& graph, const Architecture& before, const Architecture& after) {
  return Changer(graph, before, after).run();
}

}  // namespace stepzero
