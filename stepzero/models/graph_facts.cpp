// What a report, a scheme or an input wants to know of a model, read off its graph.
#include <algorithm>

#include "stepzero/models/own_file.hpp"

namespace stepzero {

namespace {

bool is_norm(const AnyOp& op) { return std::holds_alternative<LayerNorm>(op) || std::holds_alternative<RmsNorm>(op); }

bool is_function(const AnyOp& any) {
  return std::visit([]<class T>(const T&) { return requires { typename T::phi; }; }, any);
}

void read_op(Architecture& a, const TokenEmbedding& op) {
  a.padding = op.padding;
  a.token_vocab = op.vocab;
  a.embedding_width = op.width;
}
void read_op(Architecture& a, const LearnedPosition& op) {
  if (op.constant) return void(a.token_types = op.positions);
  a.position = PositionKind::learned;
  a.positions = std::min(a.positions, op.positions);
}
void read_op(Architecture& a, const SinusoidalPosition&) { a.position = PositionKind::sinusoidal; }
void read_op(Architecture& a, const PatchEmbedding& op) {
  a.image = op.side;
  a.patch = op.patch;
  a.colours = op.colours;
  a.positions = op.tokens();
}
void read_op(Architecture& a, const TokenPool& op) {
  a.pooled = true;
  if (op.id >= 0 || op.largest) a.end_id = op.largest ? a.token_vocab - 1 : op.id;
}
void read_op(Architecture& a, const Probe&) { a.pooled = true; }
void read_op(Architecture& a, const Features& op) {
  a.frames = op.frames;
  a.bands = op.width;
}
void read_op(Architecture& a, const Rotary& op) { a.rotary = op.turned; }
void read_op(Architecture& a, const Dropout& op) { a.dropout = op.p; }
void read_op(Architecture& a, const CrossEntropy& op) { a.vocab = op.vocab; }
void read_op(Architecture& a, const Experts& op) {
  const Routing& r = op.routing;
  a.experts = r.experts;
  a.experts_per_token = r.chosen;
  a.expert_ffn = op.ffn;
  a.router_groups = r.groups;
  a.router_kept_groups = r.kept_groups;
  a.router_group_best = r.group_best;
  a.gated = true;
  if (a.ffn == 0) a.ffn = op.ffn;
  if (a.activation == Activation::identity) {
    a.activation = std::visit([&](const auto& f) { return parse_activation(f.kind).value_or(a.activation); }, op.act);
  }
}
template <class T>
void read_op(Architecture& /*a*/, const T& /*op*/) {}

// Where norms stand, as far as the names of the first block tell.
void read_placement(Architecture& a, const Graph& graph, const Node& node) {
  const Place place = place_of(node.name);
  if (place.layer > 0 && place.is_stream() && is_norm(node.op)) a.norm_placement = NormPlacement::post;
  if (place.layer != 0 || place.part != "attn.post_norm") return;
  a.norm_placement = graph.find_node("blocks.0.attn.norm") >= 0 ? NormPlacement::sandwich : NormPlacement::branch;
}

// The first of a kind speaks for all.
struct First {
  bool attention = false, norm = false, activation = false, ffn = false;
};

void read_first(Architecture& a, First& seen, const Graph& graph, const Node& node) {
  if (const auto* op = std::get_if<Attention>(&node.op)) {
    if (!seen.attention) a.heads = op->heads, a.kv_heads = op->kv_heads, a.head_dim = op->key_dim, a.attention_scale = op->scale;
    seen.attention = true;
    const Place place = place_of(node.name);
    if (place.stack != "encoder" && !op->cross) a.causal = a.causal && op->causal;
    if (op->window > 0) a.window = a.window > 0 ? std::min(a.window, op->window) : op->window;
  }
  if (is_norm(node.op) && !seen.norm) {
    a.norm = std::holds_alternative<LayerNorm>(node.op) ? NormKind::layernorm : NormKind::rmsnorm;
    seen.norm = true;
  }
  const bool in_ffn = node.name.contains(".ffn.");
  if (is_function(node.op) && in_ffn && !seen.activation) {
    a.activation = parse_activation(kind_of(node.op)).value_or(a.activation);
    seen.activation = true;
  }
  if (std::holds_alternative<Multiply>(node.op) && in_ffn) a.gated = true;
  if (const auto* scale = std::get_if<Scale>(&node.op)) {
    const Node& before = graph.nodes[static_cast<std::size_t>(node.inputs[0])];
    if (std::holds_alternative<TokenEmbedding>(before.op)) a.embedding_scale = scale->factor;
    if (before.name == "logits") a.logit_scale = scale->factor;
  }
  const auto* matrix = std::get_if<Linear>(&node.op);
  if (matrix != nullptr && !seen.ffn && graph.params[static_cast<std::size_t>(node.params[0].param)].role == Role::ffn_in) {
    a.ffn = matrix->out;
    seen.ffn = true;
  }
}

// Scales where branches are added, two for each layer; none where all are 1 or a block adds in other ways.
void read_scales(Architecture& a, const Graph& graph) {
  std::vector<double> skip(2 * static_cast<std::size_t>(a.layers), 1), branch = skip;
  for (const Node& node : graph.nodes) {
    const auto* op = std::get_if<Residual>(&node.op);
    const Place place = place_of(node.name);
    const bool second = place.is_stream();
    const Index layer = second ? place.layer - 1 : place.layer;
    if (op == nullptr || layer < 0 || layer >= a.layers || !(second || place.part == "mid" || place.part == "attn.sum")) continue;
    skip[static_cast<std::size_t>(2 * layer + (second ? 1 : 0))] = op->skip_scale;
    branch[static_cast<std::size_t>(2 * layer + (second ? 1 : 0))] = op->branch_scale;
  }
  const auto plain = [](const std::vector<double>& list) { return std::ranges::all_of(list, [](double x) { return x == 1; }); };
  if (!plain(skip)) a.skip_scales = std::move(skip);
  if (!plain(branch)) a.residual_scales = std::move(branch);
}

}  // namespace

void describe_graph(Architecture& a, const Graph& graph) {
  a.position = PositionKind::none;
  a.heads = a.kv_heads = a.head_dim = 1;
  a.ffn = 0;
  a.norm = NormKind::none;
  a.norm_placement = NormPlacement::pre;
  a.activation = Activation::identity;
  a.causal = true;
  a.layers = a.decoder_layers = 0;
  a.pooled = false;
  a.end_id = -1;
  a.frames = a.bands = a.token_vocab = 0;
  a.skip_scale = a.residual_scale = a.embedding_scale = a.logit_scale = a.attention_scale = 1;
  a.skip_scales.clear();
  a.residual_scales.clear();
  a.branch_gain = BranchGain::none;
  a.sub_norm = a.norm_scale_by_layer = a.unit_linear = false;
  a.qk_norm = QkNorm::none;
  First seen;
  for (const Node& node : graph.nodes) {
    const bool heard = a.frames > 0 && std::holds_alternative<LearnedPosition>(node.op) && node.name.starts_with("encoder.");
    if (!heard) std::visit([&](const auto& op) { read_op(a, op); }, node.op);  // frames have places of their own
    read_first(a, seen, graph, node);
    read_placement(a, graph, node);
    const Place place = place_of(node.name);
    if (!place.is_stream()) continue;
    if (place.layer == 0) a.width = channels_of(node.op);
    Index& layers = place.stack == "decoder" ? a.decoder_layers : a.layers;
    layers = std::max(layers, place.layer);
  }
  if (a.image > 0) a.causal = false;
  if (!a.pooled) a.token_vocab = 0;
  if (a.window > 0) {
    a.layer_types.assign(static_cast<std::size_t>(std::max<Index>(a.layers, 1)), 'f');
    for (const Node& node : graph.nodes) {
      const auto* op = std::get_if<Attention>(&node.op);
      const Index layer = place_of(node.name).layer;
      if (op != nullptr && op->window > 0 && layer >= 0 && layer < a.layers) a.layer_types[static_cast<std::size_t>(layer)] = 's';
    }
  }
  const Node& logits = graph.nodes[static_cast<std::size_t>(std::max(graph.find_node("logits"), 0))];
  a.tied = !logits.params.empty() && graph.params[static_cast<std::size_t>(logits.params[0].param)].role == Role::token_embedding;
  read_scales(a, graph);
}

}  // namespace stepzero
