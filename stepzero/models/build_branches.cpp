// The branches of a block: attention, plain or latent, and feed-forward, one for all tokens or experts.
#include <fmt/format.h>

#include "stepzero/models/builder.hpp"
#include "stepzero/models/elementwise.hpp"

namespace stepzero {

// q, k, v as three products; in a fused tensor each is a block of it, or one block for each group of heads.
Builder::Heads Builder::project(const std::string& at, int x, int l) {
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

// Latent attention: q through a narrow layer with a norm of its own, k and v through another that they share; the part of
// the keys that turns comes straight from x and is the same for all heads.
Builder::Heads Builder::project_latent(const std::string& at, int x, int l) {
  const Index rank = a_.key_value_rank;
  int from = x;
  Index in = a_.width;
  if (a_.query_rank > 0) {
    in = a_.query_rank;
    from = linear(at + "q_latent", block_name(names_.q_latent, l), x, a_.width, in, a_.attention_bias, Role::query, l);
    from = latent_norm(at + "q_latent_norm", block_name(names_.q_latent_norm, l), from, l, in);
    from = unit(at + "q.input", from, in);
  }
  const auto q_stem = block_name(a_.query_rank > 0 ? names_.q_out : names_.q, l);
  const int q = linear(at + "q", q_stem, from, in, a_.heads * a_.head_dim, false, Role::query, l);

  const std::string stem = block_name(names_.kv_latent, l);
  const int weight = matrix_param(stem, a_.width, rank + a_.key_rope_dim, Role::key, l);
  const int bias = a_.attention_bias ? bias_param(stem, a_.width, rank + a_.key_rope_dim, l) : -1;
  const auto rows = [&](const char* name, Index start, Index n) {
    std::vector<ParamUse> uses = {{weight, start, 0, n, a_.width}};
    if (bias >= 0) uses.push_back({bias, 0, start, 1, n});
    return graph_.add_node(at + name, Linear{a_.width, n, bias >= 0}, {x}, uses);
  };
  int latent = rows("kv_latent", 0, rank);
  const int shared = rows("k_shared", rank, a_.key_rope_dim);
  latent = latent_norm(at + "kv_latent_norm", block_name(names_.kv_latent_norm, l), latent, l, rank);
  latent = unit(at + "kv.input", latent, rank);

  const int out = matrix_param(block_name(names_.kv_out, l), rank, a_.heads * (a_.key_dim + a_.value_dim), Role::query_key_value, l);
  const auto each_head = [&](const char* name, Index start, Index n) {
    std::vector<ParamUse> uses;
    for (Index h = 0; h < a_.heads; ++h) uses.push_back({out, h * (a_.key_dim + a_.value_dim) + start, 0, n, rank});
    return graph_.add_node(at + name, Linear{.in = rank, .out = a_.heads * n, .pieces = a_.heads}, {latent}, uses);
  };
  const int own = each_head("k_own", 0, a_.key_dim);
  const int v = each_head("v", a_.key_dim, a_.value_dim);
  return {q, graph_.add_node(at + "k", Join{a_.heads, a_.key_dim, a_.key_rope_dim}, {own, shared}), v};
}

// q of the decoder's tokens, k and v of the encoder's.
Builder::Heads Builder::project_cross(const std::string& at, int x, int l) {
  const Index n = a_.heads * a_.head_dim, nk = a_.kv_heads * a_.head_dim;
  const int memory = unit(at + "memory", memory_, a_.width);
  return {linear(at + "q", block_name(names_.cross_q, l), x, a_.width, n, a_.attention_bias, Role::query, l),
          linear(at + "k", block_name(names_.cross_k, l), memory, a_.width, nk, a_.attention_bias, Role::key, l),
          linear(at + "v", block_name(names_.cross_v, l), memory, a_.width, nk, a_.attention_bias, Role::value, l)};
}

// One table for all layers of a stack, which its first layer holds.
std::vector<ParamUse> Builder::relative_bias() {
  if (relative_ < 0) {
    relative_ = graph_.add_param({block_name(names_.relative, 0) + ".weight",
                                  {a_.relative_positions, a_.heads},
                                  Role::position_embedding,
                                  -1,
                                  a_.relative_positions,
                                  a_.heads});
  }
  return {graph_.whole(relative_)};
}

Builder::Heads Builder::clip(const std::string& at, Heads h) {
  if (a_.clip_qkv == 0) return h;
  const auto one = [&](const char* name, int x) {
    return graph_.add_node(at + name, Clip{channels_of(graph_.nodes[static_cast<std::size_t>(x)].op), a_.clip_qkv}, {x});
  };
  const int q = one("q_clip", h.q);
  const int k = one("k_clip", h.k);
  return {q, k, one("v_clip", h.v)};
}

int Builder::turn(const std::string& node, int x, Index heads, const RopeTable& rope) {
  return graph_.add_node(node,
                         Rotary{.heads = heads,
                                .head_dim = a_.head_dim,
                                .turned = a_.rotary,
                                .first = latent() ? a_.key_dim : 0,
                                .base = rope.base,
                                .interleaved = a_.rotary_interleaved,
                                .frequencies = rope.frequencies,
                                .stretch = rope.stretch},
                         {x});
}

int Builder::attention(int x, int l, bool cross) {
  const std::string at = at_block(l) + (cross ? "cross." : "attn.");
  x = unit(at + "input", x, a_.width);
  auto [q, k, v] = clip(at, cross ? project_cross(at, x, l) : latent() ? project_latent(at, x, l) : project(at, x, l));
  if (a_.qk_norm != QkNorm::none) {
    q = head_norm(at + "q_norm", names_.q_norm, q, a_.heads, l);
    k = head_norm(at + "k_norm", names_.k_norm, k, a_.kv_heads, l);
  }
  if (a_.rotary > 0) {
    const RopeTable rope = rope_table(a_, l);
    q = turn(at + "q_rot", q, a_.heads, rope);
    k = turn(at + "k_rot", k, a_.kv_heads, rope);
  }
  const Index value_dim = latent() ? a_.value_dim : a_.head_dim;
  const Index mixed = a_.heads * value_dim;
  const bool biased = a_.relative_positions > 0 && !cross;
  const double scale = a_.attention_scale / (a_.attention_scale_by_layer ? l + 1 : 1);
  int mix = graph_.add_node(at + "mix",
                            Attention{.heads = a_.heads,
                                      .kv_heads = a_.kv_heads,
                                      .key_dim = a_.head_dim,
                                      .value_dim = value_dim,
                                      .scale = scale,
                                      .causal = causal_ && !cross,
                                      .window = has_window(a_, l) ? a_.window : 0,
                                      .softcap = a_.attention_softcap,
                                      .alibi = alibi_slopes(a_),
                                      .buckets = biased ? a_.relative_positions : 0,
                                      .farthest = a_.relative_distance,
                                      .cross = cross},
                            {q, k, v}, biased ? relative_bias() : std::vector<ParamUse>());
  const std::string_view out_stem = cross ? names_.cross_out : names_.attn_out;
  mix = norm_inside(at, out_stem, "attn_sub_norm", mix, l, mixed);
  mix = unit(at + "out.input", mix, mixed);
  const int out = linear(at + "out", block_name(out_stem, l), mix, mixed, a_.width, a_.attention_out_bias, Role::attention_out, l);
  return drop(at + "dropout", out);
}

int Builder::feed_forward(int x, int l) {
  const std::string at = at_block(l) + "ffn.";
  x = unit(at + "input", x, a_.width);
  if (a_.experts > 0 && l >= a_.dense_layers) return drop(at + "dropout", experts(at, x, l));
  const auto activate = [&](int u) { return graph_.add_node(at + "act", elementwise(a_.activation, a_.ffn), {u}); };
  int h = 0;
  if (a_.gated && names_.fused_gate) {
    const auto [gate, up] = gate_and_up(at, x, l);
    h = graph_.add_node(at + "product", Multiply{a_.ffn}, {activate(gate), up});
  } else if (a_.gated) {
    h = gated(at, block_name(names_.ffn_gate, l), block_name(names_.ffn_in, l), x, a_.ffn, l);
  } else {
    h = activate(linear(at + "in", block_name(names_.ffn_in, l), x, a_.width, a_.ffn, a_.mlp_bias, Role::ffn_in, l));
  }
  h = norm_inside(at, names_.ffn_out, "ffn_sub_norm", h, l, a_.ffn);
  h = unit(at + "out.input", h, a_.ffn);
  const int out = linear(at + "out", block_name(names_.ffn_out, l), h, a_.ffn, a_.width, a_.mlp_bias, Role::ffn_out, l);
  return drop(at + "dropout", out);
}

// f(gate) o up
int Builder::gated(const std::string& at, const std::string& gate_stem, const std::string& in_stem, int x, Index ffn, int l) {
  const int gate = linear(at + "gate", gate_stem, x, a_.width, ffn, a_.mlp_bias, Role::ffn_gate, l);
  const int act = graph_.add_node(at + "act", elementwise(a_.activation, ffn), {gate});
  const int up = linear(at + "up", in_stem, x, a_.width, ffn, a_.mlp_bias, Role::ffn_in, l);
  return graph_.add_node(at + "product", Multiply{ffn}, {act, up});
}

// A router, the experts it chooses from, and what all tokens go through beside them.
int Builder::experts(const std::string& at, int x, int l) {
  const int logits = linear(at + "router", block_name(names_.router, l), x, a_.width, a_.experts, false, Role::router, l);
  const Experts op{.width = a_.width,
                   .ffn = a_.expert_ffn,
                   .routing = {.experts = a_.experts,
                               .chosen = a_.experts_per_token,
                               .sigmoid = a_.router_sigmoid,
                               .normalise = a_.router_normalise,
                               .factor = a_.router_scale,
                               .groups = a_.router_groups,
                               .kept_groups = a_.router_kept_groups,
                               .group_best = a_.router_group_best,
                               .corrected = a_.router_bias},
                   .act = any_activation(a_.activation, a_.expert_ffn)};
  std::vector<ParamUse> uses;
  const int correction = a_.router_bias ? vector_param(block_name(names_.router_bias, l), a_.experts, Role::bias, l) : -1;
  for (Index e = 0; e < a_.experts; ++e) {
    const auto stem = [&](std::string_view part) { return block_name(fmt::format(fmt::runtime(names_.expert), e), l) + std::string(part); };
    uses.push_back(graph_.whole(matrix_param(stem(names_.expert_gate), a_.width, a_.expert_ffn, Role::ffn_gate, l)));
    uses.push_back(graph_.whole(matrix_param(stem(names_.expert_in), a_.width, a_.expert_ffn, Role::ffn_in, l)));
    uses.push_back(graph_.whole(matrix_param(stem(names_.expert_out), a_.expert_ffn, a_.width, Role::ffn_out, l)));
  }
  if (correction >= 0) uses.push_back(graph_.whole(correction));
  const bool more = a_.shared_experts > 0;
  const int routed = graph_.add_node(at + (more ? "experts" : "out"), op, {x, logits}, uses);
  if (!more) return routed;
  const Index ffn = a_.shared_experts * a_.expert_ffn;
  const std::string stem = block_name(names_.shared_experts, l);
  const int h = gated(at + "shared.", stem + std::string(names_.expert_gate), stem + std::string(names_.expert_in), x, ffn, l);
  const int shared = linear(at + "shared.out", stem + std::string(names_.expert_out), h, ffn, a_.width, a_.mlp_bias, Role::ffn_out, l);
  return graph_.add_node(at + "out", Residual{a_.width}, {routed, shared});
}

// Two halves of one tensor.
std::pair<int, int> Builder::gate_and_up(const std::string& at, int x, int l) {
  const std::string stem = block_name(names_.ffn_gate_in, l);
  const int weight = matrix_param(stem, a_.width, 2 * a_.ffn, Role::ffn_in, l);
  const int b = a_.mlp_bias ? bias_param(stem, a_.width, 2 * a_.ffn, l) : -1;
  const auto half = [&](const char* node, Index start) {
    std::vector<ParamUse> uses = {names_.in_out ? ParamUse{weight, 0, start, a_.width, a_.ffn}
                                                : ParamUse{weight, start, 0, a_.ffn, a_.width}};
    if (a_.mlp_bias) uses.push_back({b, 0, start, 1, a_.ffn});
    return graph_.add_node(at + node, Linear{a_.width, a_.ffn, a_.mlp_bias, storage()}, {x}, uses);
  };
  const int gate = half("gate", 0);
  return {gate, half("up", a_.ffn)};
}

}  // namespace stepzero
