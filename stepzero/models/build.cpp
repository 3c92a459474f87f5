#include "stepzero/models/build.hpp"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/models/elementwise.hpp"
#include "stepzero/models/family.hpp"
#include "stepzero/models/rope.hpp"

namespace stepzero {

namespace {

class Builder {
 public:
  explicit Builder(const Architecture& a) : a_(a), names_(tensor_names(a)) {}

  Graph build() {
    int x = embed();
    for (int l = 0; l < static_cast<int>(a_.layers); ++l) x = a_.parallel_block ? parallel(x, l) : serial(x, l);
    if (a_.final_norm && a_.norm_placement != NormPlacement::post) x = norm("final.norm", std::string(names_.final_norm), x, -1);
    head(x);
    return std::move(graph_);
  }

 private:
  // ---- parameters

  int vector_param(const std::string& name, Index n, Role role, int layer) { return graph_.add_param({name, {n}, role, layer, 1, n}); }

  // A bias has the fan-in of its matrix; that of a norm has none (1).
  int bias_param(const std::string& stem, Index in, Index n, int layer) {
    return graph_.add_param({stem + ".bias", {n}, Role::bias, layer, in, n});
  }

  // A matrix of a block, stored as the family stores it.
  int matrix_param(const std::string& stem, Index in, Index out, Role role, int layer) {
    const auto shape = names_.in_out ? std::vector<Index>{in, out} : std::vector<Index>{out, in};
    const int param = graph_.add_param({stem + ".weight", shape, role, layer, in, out});
    graph_.params.back().in_out = names_.in_out;
    return param;
  }

  std::string block_name(std::string_view stem, int l) const { return fmt::format(fmt::runtime(names_.block), l) + std::string(stem); }

  // ---- pieces

  int linear(const std::string& node, const std::string& stem, int x, Index in, Index out, bool bias, Role role, int layer) {
    const int weight = matrix_param(stem, in, out, role, layer);
    std::vector<ParamUse> uses = {graph_.whole(weight)};
    if (bias) uses.push_back(graph_.whole(bias_param(stem, in, out, layer)));
    return graph_.add_node(node, Linear{in, out, bias, storage()}, {x}, uses);
  }

  Storage storage() const { return names_.in_out ? Storage::in_out : Storage::out_in; }

  // The tensors of a norm: one, or one for each group, as rows of one tensor or under names of their own.
  template <class N>
  std::vector<ParamUse> norm_params(const std::string& stem, const char* kind, const N& op, Role role, int layer) {
    const double neutral = a_.norm_offset ? 0 : 1;
    const Index width = op.width;
    const Index sets = op.gain_per_group ? op.groups : 1;
    std::vector<ParamUse> uses;
    const bool named = stem.find("{}") != std::string::npos;
    if (op.gain_per_group && !named) {
      const int param = graph_.add_param({stem + kind, {sets, width}, role, layer, 1, width, neutral});
      for (Index k = 0; k < sets; ++k) uses.push_back({param, k, 0, 1, width});
      return uses;
    }
    for (Index k = 0; k < sets; ++k) {
      const std::string name = named ? fmt::format(fmt::runtime(stem), k) : stem;
      uses.push_back(graph_.whole(graph_.add_param({name + kind, {width}, role, layer, 1, width, neutral})));
    }
    return uses;
  }

  template <class N>
  int norm_node(const std::string& node, const std::string& stem, int x, int layer, N op) {
    op.eps = a_.norm_eps;
    op.unit_offset = a_.norm_offset;
    std::vector<ParamUse> uses;
    if (op.gain) uses = norm_params(stem, ".weight", op, Role::gain, layer);
    if (op.bias) {
      const auto biases = norm_params(stem, ".bias", op, Role::bias, layer);
      uses.insert(uses.end(), biases.begin(), biases.end());
    }
    return graph_.add_node(node, op, {x}, uses);
  }

  int norm(const std::string& node, const std::string& stem, int x, int layer) { return norm(node, stem, x, layer, a_.width); }

  int norm(const std::string& node, const std::string& stem, int x, int layer, Index width) {
    switch (a_.norm) {
      case NormKind::layernorm:
        return norm_node(node, stem, x, layer, LayerNorm{.width = width, .gain = a_.norm_gain, .bias = a_.norm_bias});
      case NormKind::rmsnorm:
        return norm_node(node, stem, x, layer, RmsNorm{.width = width, .gain = a_.norm_gain});
      case NormKind::none:
        break;
    }
    return x;
  }

  // The norm that a branch reads the stream through.
  int norm_before(const std::string& at, std::string_view stem, int x, int l) {
    const int y = norm(at + "norm", block_name(stem, l), x, l);
    if (!a_.norm_scale_by_layer || y == x) return y;
    return graph_.add_node(at + "norm_scaled", Scale{a_.width, 1 / std::sqrt(static_cast<double>(l + 1))}, {y});
  }

  // The norm before the last matrix of a branch, called after its neighbour: "mlp.down_proj" -> "mlp.ffn_sub_norm".
  int norm_inside(const std::string& at, std::string_view beside, const char* name, int x, int l, Index width) {
    if (!a_.sub_norm) return x;
    const std::string folder(beside.substr(0, beside.rfind('.') + 1));
    return norm(at + "sub_norm", block_name(folder + name, l), x, l, width);
  }

  int unit(const std::string& node, int x, Index fan_in) {
    if (!a_.unit_linear) return x;
    return graph_.add_node(node, Scale{fan_in, 1 / std::sqrt(static_cast<double>(fan_in))}, {x});
  }

  int drop(const std::string& node, int x) {
    if (a_.dropout == 0) return x;
    return graph_.add_node(node, Dropout{a_.width, a_.dropout, static_cast<std::uint32_t>(graph_.nodes.size())}, {x});
  }

  int embed() {
    const Index width = a_.embedding_width;
    token_ = table_param(names_.token, a_.vocab, width, Role::token_embedding, a_.padding);
    int x = graph_.add_node("embed.tokens", TokenEmbedding{a_.vocab, width, a_.padding}, {}, {graph_.whole(token_)});
    if (a_.embedding_scale != 1) x = graph_.add_node("embed.scale", Scale{width, a_.embedding_scale}, {x});
    if (width != a_.width) x = projection("embed.in", names_.project_in, x, width, a_.width);
    if (a_.token_types > 0) {
      const int p = table_param(names_.token_type, a_.token_types, a_.width, Role::position_embedding);
      x = graph_.add_node("embed.types", LearnedPosition{.positions = a_.token_types, .width = a_.width, .constant = true}, {x},
                          {graph_.whole(p)});
    }
    x = drop("embed.dropout", embedding_norm(positions(x)));
    graph_.nodes.back().name = "stream.0";
    return x;
  }

  int positions(int x) {
    if (a_.position == PositionKind::sinusoidal) return graph_.add_node("embed.positions", SinusoidalPosition{a_.width}, {x});
    if (a_.position == PositionKind::none) return x;
    const Index padding = a_.position_skips_padding ? a_.padding : Architecture::no_padding;
    const int p = table_param(names_.position, a_.positions + a_.position_offset, a_.width, Role::position_embedding, padding);
    const LearnedPosition op{.positions = a_.positions, .width = a_.width, .offset = a_.position_offset, .padding = padding};
    return graph_.add_node("embed.positions", op, {x}, {graph_.whole(p)});
  }

  int embedding_norm(int x) { return a_.embedding_norm ? norm("embed.norm", std::string(names_.embedding_norm), x, -1) : x; }

  int table_param(std::string_view stem, Index rows, Index width, Role role, Index zero_row = -1) {
    return graph_.add_param({std::string(stem) + ".weight", {rows, width}, role, -1, rows, width, 1, zero_row});
  }

  // A matrix outside the blocks: (out, in) in every family.
  int projection(const std::string& node, std::string_view stem, int x, Index in, Index out, bool bias = false) {
    const int weight = graph_.add_param({std::string(stem) + ".weight", {out, in}, Role::projection, -1, in, out});
    std::vector<ParamUse> uses = {graph_.whole(weight)};
    if (bias) uses.push_back(graph_.whole(vector_param(std::string(stem) + ".bias", out, Role::bias, -1)));
    return graph_.add_node(node, Linear{in, out, bias}, {x}, uses);
  }

  struct Heads {
    int q, k, v;
  };

  // q, k, v as three products; in a fused tensor each is a block of it, or one block for each group of heads.
  Heads project(const std::string& at, int x, int l) {
    const Index nq = a_.heads * a_.head_dim;
    const Index nk = a_.kv_heads * a_.head_dim;
    const bool bias = a_.attention_bias;
    if (names_.fused_qkv == FusedQkv::none) {
      return {linear(at + "q", block_name(names_.q, l), x, a_.width, nq, bias, Role::query, l),
              linear(at + "k", block_name(names_.k, l), x, a_.width, nk, bias, Role::key, l),
              linear(at + "v", block_name(names_.v, l), x, a_.width, nk, bias, Role::value, l)};
    }
    const std::string stem = block_name(names_.qkv, l);
    const int weight = matrix_param(stem, a_.width, nq + 2 * nk, Role::query_key_value, l);
    const int b = bias ? bias_param(stem, a_.width, nq + 2 * nk, l) : -1;
    const Index groups = names_.fused_qkv == FusedQkv::groups ? a_.kv_heads : 1;
    const Index stride = (nq + 2 * nk) / groups;
    const auto part = [&](const char* name, Role role, Index start, Index n) {
      const Index rows = n / groups;
      std::vector<ParamUse> uses;
      for (Index g = 0; g < groups; ++g) {
        const Index at_row = start + g * stride;
        uses.push_back(names_.in_out ? ParamUse{weight, 0, at_row, a_.width, rows} : ParamUse{weight, at_row, 0, rows, a_.width});
        const ParamUse& u = uses.back();
        graph_.params[static_cast<std::size_t>(weight)].parts.push_back({role, u.row0, u.col0, u.rows, u.cols, n});
      }
      for (Index g = 0; bias && g < groups; ++g) uses.push_back({b, 0, start + g * stride, 1, rows});
      return graph_.add_node(at + name, Linear{a_.width, n, bias, storage(), groups}, {x}, uses);
    };
    // in this order, whatever order a list of arguments is evaluated in
    const int q = part("q", Role::query, 0, nq);
    const int k = part("k", Role::key, nq / groups, nk);
    return {q, k, part("v", Role::value, (nq + nk) / groups, nk)};
  }

  Heads clip(const std::string& at, Heads h) {
    if (a_.clip_qkv == 0) return h;
    const auto one = [&](const char* name, int x) {
      return graph_.add_node(at + name, Clip{channels_of(graph_.nodes[static_cast<std::size_t>(x)].op), a_.clip_qkv}, {x});
    };
    const int q = one("q_clip", h.q);
    const int k = one("k_clip", h.k);
    return {q, k, one("v_clip", h.v)};
  }

  int head_norm(const std::string& node, std::string_view stem, int x, Index heads, int l) {
    // {} in the stem is the head's number, of which the layer's knows nothing
    const std::string name = fmt::format(fmt::runtime(names_.block), l) + std::string(stem);
    const bool all = a_.qk_norm == QkNorm::all;
    const Index width = all ? heads * a_.head_dim : a_.head_dim;
    const Index groups = all ? 1 : heads;
    const bool each = a_.qk_norm == QkNorm::each_head;
    if (a_.norm == NormKind::layernorm) {
      return norm_node(node, name, x, l, LayerNorm{.width = width, .bias = a_.qk_norm_bias, .groups = groups, .gain_per_group = each});
    }
    return norm_node(node, name, x, l, RmsNorm{.width = width, .groups = groups, .gain_per_group = each});
  }

  int turn(const std::string& node, int x, Index heads, const RopeTable& rope) {
    return graph_.add_node(node,
                           Rotary{.heads = heads,
                                  .head_dim = a_.head_dim,
                                  .turned = a_.rotary,
                                  .base = rope.base,
                                  .interleaved = a_.rotary_interleaved,
                                  .frequencies = rope.frequencies,
                                  .stretch = rope.stretch},
                           {x});
  }

  int attention(int x, int l) {
    const std::string at = fmt::format("blocks.{}.attn.", l);
    auto [q, k, v] = clip(at, project(at, unit(at + "input", x, a_.width), l));
    if (a_.qk_norm != QkNorm::none) {
      q = head_norm(at + "q_norm", names_.q_norm, q, a_.heads, l);
      k = head_norm(at + "k_norm", names_.k_norm, k, a_.kv_heads, l);
    }
    if (a_.rotary > 0) {
      const RopeTable rope = rope_table(a_, l);
      q = turn(at + "q_rot", q, a_.heads, rope);
      k = turn(at + "k_rot", k, a_.kv_heads, rope);
    }
    const double scale = a_.attention_scale / (a_.attention_scale_by_layer ? l + 1 : 1);
    int mix = graph_.add_node(at + "mix",
                              Attention{.heads = a_.heads,
                                        .kv_heads = a_.kv_heads,
                                        .key_dim = a_.head_dim,
                                        .value_dim = a_.head_dim,
                                        .scale = scale,
                                        .causal = a_.causal,
                                        .window = has_window(a_, l) ? a_.window : 0,
                                        .softcap = a_.attention_softcap,
                                        .alibi = alibi_slopes(a_)},
                              {q, k, v});
    mix = norm_inside(at, names_.attn_out, "attn_sub_norm", mix, l, a_.heads * a_.head_dim);
    mix = unit(at + "out.input", mix, a_.heads * a_.head_dim);
    const int out = linear(at + "out", block_name(names_.attn_out, l), mix, a_.heads * a_.head_dim, a_.width, a_.attention_out_bias,
                           Role::attention_out, l);
    return drop(at + "dropout", out);
  }

  int feed_forward(int x, int l) {
    const std::string at = fmt::format("blocks.{}.ffn.", l);
    x = unit(at + "input", x, a_.width);
    const auto into = [&](const char* node, std::string_view stem, Role role) {
      return linear(at + node, block_name(stem, l), x, a_.width, a_.ffn, a_.mlp_bias, role, l);
    };
    const auto activate = [&](int u) { return graph_.add_node(at + "act", elementwise(a_.activation, a_.ffn), {u}); };
    int h = 0;
    if (a_.gated && names_.fused_gate) {
      const auto [gate, up] = gate_and_up(at, x, l);
      h = graph_.add_node(at + "product", Multiply{a_.ffn}, {activate(gate), up});
    } else if (a_.gated) {
      const int act = activate(into("gate", names_.ffn_gate, Role::ffn_gate));
      h = graph_.add_node(at + "product", Multiply{a_.ffn}, {act, into("up", names_.ffn_in, Role::ffn_in)});
    } else {
      h = activate(into("in", names_.ffn_in, Role::ffn_in));
    }
    h = norm_inside(at, names_.ffn_out, "ffn_sub_norm", h, l, a_.ffn);
    h = unit(at + "out.input", h, a_.ffn);
    const int out = linear(at + "out", block_name(names_.ffn_out, l), h, a_.ffn, a_.width, a_.mlp_bias, Role::ffn_out, l);
    return drop(at + "dropout", out);
  }

  // Two halves of one tensor.
  std::pair<int, int> gate_and_up(const std::string& at, int x, int l) {
    const std::string stem = block_name(names_.ffn_gate_in, l);
    const int weight = matrix_param(stem, a_.width, 2 * a_.ffn, Role::ffn_in, l);
    const int b = a_.mlp_bias ? vector_param(stem + ".bias", 2 * a_.ffn, Role::bias, l) : -1;
    const auto half = [&](const char* node, Index start) {
      std::vector<ParamUse> uses = {names_.in_out ? ParamUse{weight, 0, start, a_.width, a_.ffn}
                                                  : ParamUse{weight, start, 0, a_.ffn, a_.width}};
      if (a_.mlp_bias) uses.push_back({b, 0, start, 1, a_.ffn});
      return graph_.add_node(at + node, Linear{a_.width, a_.ffn, a_.mlp_bias, storage()}, {x}, uses);
    };
    const int gate = half("gate", 0);
    return {gate, half("up", a_.ffn)};
  }

  // Branch 2 l is the attention of layer l, 2 l + 1 its feed-forward part.
  int add(const std::string& node, int x, int f, std::size_t branch) {
    const auto scale = [&](const std::vector<double>& each, double all) { return each.empty() ? all : each[branch]; };
    const bool attention = branch % 2 == 0;
    if (a_.branch_gain != BranchGain::none) {
      const int l = static_cast<int>(branch / 2);
      const bool one = a_.branch_gain == BranchGain::scalar;
      const int g = vector_param(block_name(attention ? "attn_gain" : "ffn_gain", l), one ? 1 : a_.width, Role::branch_gain, l);
      f = graph_.add_node(fmt::format("blocks.{}.{}.gain", l, attention ? "attn" : "ffn"), Gain{a_.width, one}, {f}, {graph_.whole(g)});
    }
    const Residual op{a_.width, scale(a_.skip_scales, a_.skip_scale), scale(a_.residual_scales, a_.residual_scale)};
    return graph_.add_node(node, op, {x, f});
  }

  // One residual branch with its norm where the placement puts it.
  template <class Branch>
  int residual(const std::string& at, const std::string& result, std::string_view before, std::string_view after, int x, std::size_t number,
               const Branch& branch) {
    using P = NormPlacement;
    const P place = a_.norm_placement;
    const int l = static_cast<int>(number / 2);
    const int in = place == P::pre || place == P::sandwich ? norm_before(at, before, x, l) : x;
    int out = branch(in, l);
    if (place == P::sandwich) out = norm(at + "post_norm", block_name(after, l), out, l);
    if (place == P::branch) out = norm(at + "post_norm", block_name(before, l), out, l);
    if (place != P::post || a_.norm == NormKind::none) return add(result, a_.residual_from_norm ? in : x, out, number);
    return norm(result, block_name(before, l), add(at + "sum", x, out, number), l);
  }

  int serial(int x, int l) {
    const std::string at = fmt::format("blocks.{}.", l);
    const std::size_t number = 2 * static_cast<std::size_t>(l);
    x = residual(at + "attn.", at + "mid", names_.attn_norm, names_.attn_post_norm, x, number,
                 [&](int in, int layer) { return attention(in, layer); });
    return residual(at + "ffn.", fmt::format("stream.{}", l + 1), names_.ffn_norm, names_.ffn_post_norm, x, number + 1,
                    [&](int in, int layer) { return feed_forward(in, layer); });
  }

  // Both branches read the block's input, through one norm or each through its own, and are added to it.
  int parallel(int x, int l) {
    const std::string at = fmt::format("blocks.{}.", l);
    const std::size_t number = 2 * static_cast<std::size_t>(l);
    const int first = norm_before(at + "attn.", names_.attn_norm, x, l);
    const int a = attention(first, l);
    const int f = feed_forward(a_.shared_norm ? first : norm_before(at + "ffn.", names_.ffn_norm, x, l), l);
    return add(fmt::format("stream.{}", l + 1), add(at + "mid", x, a, number), f, number + 1);
  }

  void head(int x) {
    const Index width = a_.embedding_width;
    if (a_.head_transform) {
      x = projection("head.dense", names_.head_dense, x, a_.width, a_.width, true);
      x = graph_.add_node("head.act", elementwise(a_.head_gelu ? Activation::gelu : a_.activation, a_.width), {x});
      x = norm("head.norm", std::string(names_.head_norm), x, -1);
    }
    if (width != a_.width) x = projection("head.out", names_.project_out, x, a_.width, width);
    const int weight =
        a_.tied ? token_ : graph_.add_param({std::string(names_.head) + ".weight", {a_.vocab, width}, Role::head, -1, width, a_.vocab});
    std::vector<ParamUse> uses = {graph_.whole(weight)};
    if (a_.head_bias) uses.push_back(graph_.whole(vector_param(std::string(names_.head_bias), a_.vocab, Role::bias, -1)));
    x = graph_.add_node("logits", Linear{width, a_.vocab, a_.head_bias}, {x}, uses);
    if (a_.logit_scale != 1) x = graph_.add_node("logits.scaled", Scale{a_.vocab, a_.logit_scale}, {x});
    if (a_.logit_softcap > 0) x = graph_.add_node("logits.capped", Softcap{a_.vocab, a_.logit_softcap}, {x});
    graph_.add_node("loss", CrossEntropy{a_.vocab}, {x});
  }

  const Architecture& a_;
  const TensorNames names_;
  Graph graph_;
  int token_ = 0;
};

}  // namespace

Graph build_graph(const Architecture& a) {
  const Family* family = find_family(a.family);
  return family->tensors != nullptr ? family->tensors(a) : Builder(a).build();
}

Expected<Graph> build_running_graph(const Architecture& a) {
  Graph graph = build_graph(a);
  if (!graph.nodes.empty()) return graph;
  return fail(fmt::format("{}: the forward pass of family {} is not there yet", show(a.name), a.family),
              "its tensors, their number and their initialization are known: stepzero models");
}

}  // namespace stepzero
