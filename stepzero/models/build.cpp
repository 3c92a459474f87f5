#include "stepzero/models/build.hpp"

#include <utility>

#include <fmt/format.h>

#include "stepzero/models/family.hpp"

namespace stepzero {

namespace {

template <class... Phi>
AnyOp elementwise(Activation f, Index width, const std::variant<Phi...>*) {
  AnyOp op;
  const auto try_one = [&]<class E>(const E*) {
    if constexpr (requires { typename E::phi; }) {
      if (to_string(f) == E::kind) op = E{.width = width};
    }
  };
  (try_one(static_cast<const Phi*>(nullptr)), ...);
  return op;
}

class Builder {
 public:
  explicit Builder(const Architecture& a) : a_(a), names_(find_family(a.family)->names) {}

  Graph build() {
    int x = embed();
    for (int l = 0; l < static_cast<int>(a_.layers); ++l) x = a_.parallel_block ? parallel(x, l) : serial(x, l);
    if (a_.norm_placement != NormPlacement::post) x = norm("final.norm", std::string(names_.final_norm), x, -1);
    head(x);
    return std::move(graph_);
  }

 private:
  // ---- parameters

  int vector_param(const std::string& name, Index n, Role role, int layer) { return graph_.add_param({name, {n}, role, layer, 1, n}); }

  // A matrix of a block, stored as the family stores it.
  int matrix_param(const std::string& stem, Index in, Index out, Role role, int layer) {
    const auto shape = names_.in_out ? std::vector<Index>{in, out} : std::vector<Index>{out, in};
    return graph_.add_param({stem + ".weight", shape, role, layer, in, out});
  }

  std::string block_name(std::string_view stem, int l) const { return fmt::format(fmt::runtime(names_.block), l) + std::string(stem); }

  // ---- pieces

  int linear(const std::string& node, const std::string& stem, int x, Index in, Index out, bool bias, Role role, int layer) {
    const int weight = matrix_param(stem, in, out, role, layer);
    std::vector<ParamUse> uses = {graph_.whole(weight)};
    if (bias) uses.push_back(graph_.whole(vector_param(stem + ".bias", out, Role::bias, layer)));
    return graph_.add_node(node, Linear{in, out, bias, storage()}, {x}, uses);
  }

  Storage storage() const { return names_.in_out ? Storage::in_out : Storage::out_in; }

  template <class N>
  int norm_node(const std::string& node, const std::string& stem, int x, int layer, N op) {
    std::vector<ParamUse> uses;
    if (op.gain) uses.push_back(graph_.whole(vector_param(stem + ".weight", op.width, Role::gain, layer)));
    if (op.bias) uses.push_back(graph_.whole(vector_param(stem + ".bias", op.width, Role::bias, layer)));
    return graph_.add_node(node, op, {x}, uses);
  }

  int norm(const std::string& node, const std::string& stem, int x, int layer) {
    switch (a_.norm) {
      case NormKind::layernorm:
        return norm_node(node, stem, x, layer, LayerNorm{.width = a_.width, .eps = a_.norm_eps});
      case NormKind::rmsnorm:
        return norm_node(node, stem, x, layer, RmsNorm{.width = a_.width, .eps = a_.norm_eps});
      case NormKind::none:
        break;
    }
    return x;
  }

  int drop(const std::string& node, int x) {
    if (a_.dropout == 0) return x;
    return graph_.add_node(node, Dropout{a_.width, a_.dropout, static_cast<std::uint32_t>(graph_.nodes.size())}, {x});
  }

  int embed() {
    token_ = graph_.add_param({std::string(names_.token) + ".weight", {a_.vocab, a_.width}, Role::token_embedding, -1, a_.vocab, a_.width});
    int x = graph_.add_node("embed.tokens", TokenEmbedding{a_.vocab, a_.width}, {}, {graph_.whole(token_)});
    if (a_.embedding_scale != 1) x = graph_.add_node("embed.scale", Scale{a_.width, a_.embedding_scale}, {x});
    if (a_.position == PositionKind::learned) {
      const int p = graph_.add_param(
          {std::string(names_.position) + ".weight", {a_.positions, a_.width}, Role::position_embedding, -1, a_.positions, a_.width});
      x = graph_.add_node("embed.positions", LearnedPosition{a_.positions, a_.width}, {x}, {graph_.whole(p)});
    } else if (a_.position == PositionKind::sinusoidal) {
      x = graph_.add_node("embed.positions", SinusoidalPosition{a_.width}, {x});
    }
    x = drop("embed.dropout", x);
    graph_.nodes.back().name = "stream.0";
    return x;
  }

  struct Heads {
    int q, k, v;
  };

  // q, k, v as three products; in a fused tensor each is a block of it.
  Heads project(const std::string& at, int x, int l) {
    const Index nq = a_.heads * a_.head_dim;
    const Index nk = a_.kv_heads * a_.head_dim;
    const bool bias = a_.attention_bias;
    if (!names_.fused_qkv) {
      return {linear(at + "q", block_name(names_.q, l), x, a_.width, nq, bias, Role::query, l),
              linear(at + "k", block_name(names_.k, l), x, a_.width, nk, bias, Role::key, l),
              linear(at + "v", block_name(names_.v, l), x, a_.width, nk, bias, Role::value, l)};
    }
    const std::string stem = block_name(names_.qkv, l);
    const int weight = matrix_param(stem, a_.width, nq + 2 * nk, Role::query_key_value, l);
    const int b = bias ? vector_param(stem + ".bias", nq + 2 * nk, Role::bias, l) : -1;
    const auto part = [&](const char* name, Role role, Index start, Index n) {
      std::vector<ParamUse> uses = {names_.in_out ? ParamUse{weight, 0, start, a_.width, n} : ParamUse{weight, start, 0, n, a_.width}};
      const ParamUse& u = uses[0];
      graph_.params[static_cast<std::size_t>(weight)].parts.push_back({role, u.row0, u.col0, u.rows, u.cols, n});
      if (bias) uses.push_back({b, 0, start, 1, n});
      return graph_.add_node(at + name, Linear{a_.width, n, bias, storage()}, {x}, uses);
    };
    // in this order, whatever order a list of arguments is evaluated in
    const int q = part("q", Role::query, 0, nq);
    const int k = part("k", Role::key, nq, nk);
    return {q, k, part("v", Role::value, nq + nk, nk)};
  }

  int head_norm(const std::string& node, std::string_view stem, int x, Index heads, int l) {
    const std::string name = block_name(stem, l);
    if (a_.norm == NormKind::layernorm) {
      return norm_node(node, name, x, l, LayerNorm{.width = a_.head_dim, .eps = a_.norm_eps, .bias = false, .groups = heads});
    }
    return norm_node(node, name, x, l, RmsNorm{.width = a_.head_dim, .eps = a_.norm_eps, .groups = heads});
  }

  int turn(const std::string& node, int x, Index heads) {
    return graph_.add_node(node, Rotary{.heads = heads, .head_dim = a_.head_dim, .turned = a_.rotary, .base = a_.rope_theta}, {x});
  }

  int attention(int x, int l) {
    const std::string at = fmt::format("blocks.{}.attn.", l);
    auto [q, k, v] = project(at, x, l);
    if (a_.qk_norm) {
      q = head_norm(at + "q_norm", names_.q_norm, q, a_.heads, l);
      k = head_norm(at + "k_norm", names_.k_norm, k, a_.kv_heads, l);
    }
    if (a_.rotary > 0) {
      q = turn(at + "q_rot", q, a_.heads);
      k = turn(at + "k_rot", k, a_.kv_heads);
    }
    const double scale = a_.attention_scale / (a_.attention_scale_by_layer ? l + 1 : 1);
    const int mix = graph_.add_node(at + "mix",
                                    Attention{.heads = a_.heads,
                                              .kv_heads = a_.kv_heads,
                                              .key_dim = a_.head_dim,
                                              .value_dim = a_.head_dim,
                                              .scale = scale,
                                              .causal = a_.causal,
                                              .window = a_.window,
                                              .softcap = a_.attention_softcap},
                                    {q, k, v});
    const int out = linear(at + "out", block_name(names_.attn_out, l), mix, a_.heads * a_.head_dim, a_.width, a_.attention_bias,
                           Role::attention_out, l);
    return drop(at + "dropout", out);
  }

  int feed_forward(int x, int l) {
    const std::string at = fmt::format("blocks.{}.ffn.", l);
    const auto into = [&](const char* node, std::string_view stem, Role role) {
      return linear(at + node, block_name(stem, l), x, a_.width, a_.ffn, a_.mlp_bias, role, l);
    };
    const auto activate = [&](int u) {
      return graph_.add_node(at + "act", elementwise(a_.activation, a_.ffn, static_cast<const AnyOp*>(nullptr)), {u});
    };
    int h = 0;
    if (a_.gated) {
      const int act = activate(into("gate", names_.ffn_gate, Role::ffn_gate));
      h = graph_.add_node(at + "product", Multiply{a_.ffn}, {act, into("up", names_.ffn_in, Role::ffn_in)});
    } else {
      h = activate(into("in", names_.ffn_in, Role::ffn_in));
    }
    const int out = linear(at + "out", block_name(names_.ffn_out, l), h, a_.ffn, a_.width, a_.mlp_bias, Role::ffn_out, l);
    return drop(at + "dropout", out);
  }

  int add(const std::string& node, int x, int branch) {
    return graph_.add_node(node, Residual{a_.width, a_.skip_scale, a_.residual_scale}, {x, branch});
  }

  // One residual branch with its norm where the placement puts it.
  template <class Branch>
  int residual(const std::string& at, const std::string& result, std::string_view before, std::string_view after, int x, int l,
               const Branch& branch) {
    using P = NormPlacement;
    const P place = a_.norm_placement;
    const int in = place == P::pre || place == P::sandwich ? norm(at + "norm", block_name(before, l), x, l) : x;
    int out = branch(in, l);
    if (place == P::sandwich) out = norm(at + "post_norm", block_name(after, l), out, l);
    if (place == P::branch) out = norm(at + "post_norm", block_name(before, l), out, l);
    if (place != P::post || a_.norm == NormKind::none) return add(result, x, out);
    return norm(result, block_name(before, l), add(at + "sum", x, out), l);
  }

  int serial(int x, int l) {
    const std::string at = fmt::format("blocks.{}.", l);
    x = residual(at + "attn.", at + "mid", names_.attn_norm, names_.attn_post_norm, x, l,
                 [&](int in, int layer) { return attention(in, layer); });
    return residual(at + "ffn.", fmt::format("stream.{}", l + 1), names_.ffn_norm, names_.ffn_post_norm, x, l,
                    [&](int in, int layer) { return feed_forward(in, layer); });
  }

  // Both branches read the block's input, each through a norm of its own, and are added to it.
  int parallel(int x, int l) {
    const std::string at = fmt::format("blocks.{}.", l);
    const int a = attention(norm(at + "attn.norm", block_name(names_.attn_norm, l), x, l), l);
    const int f = feed_forward(norm(at + "ffn.norm", block_name(names_.ffn_norm, l), x, l), l);
    return add(fmt::format("stream.{}", l + 1), add(at + "mid", x, a), f);
  }

  void head(int x) {
    const int weight =
        a_.tied ? token_
                : graph_.add_param({std::string(names_.head) + ".weight", {a_.vocab, a_.width}, Role::head, -1, a_.width, a_.vocab});
    x = graph_.add_node("logits", Linear{a_.width, a_.vocab}, {x}, {graph_.whole(weight)});
    if (a_.logit_scale != 1) x = graph_.add_node("logits.scaled", Scale{a_.vocab, a_.logit_scale}, {x});
    if (a_.logit_softcap > 0) x = graph_.add_node("logits.capped", Softcap{a_.vocab, a_.logit_softcap}, {x});
    graph_.add_node("loss", CrossEntropy{a_.vocab}, {x});
  }

  const Architecture& a_;
  const TensorNames& names_;
  Graph graph_;
  int token_ = 0;
};

}  // namespace

Graph build_graph(const Architecture& a) { return Builder(a).build(); }

}  // namespace stepzero
