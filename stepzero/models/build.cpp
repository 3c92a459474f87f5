#include "stepzero/models/build.hpp"

#include <utility>

#include <fmt/format.h>

#include "stepzero/models/build_cnn.hpp"
#include "stepzero/models/builder.hpp"
#include "stepzero/models/elementwise.hpp"

namespace stepzero {

Graph Builder::build() {
  const bool pair = a_.decoder_layers > 0;
  if (pair) encode();
  causal_ = a_.causal;
  head(stack(a_.image > 0 ? embed_image() : embed(), pair ? a_.decoder_layers : a_.layers));
  return std::move(graph_);
}

void Builder::encode() {
  const TensorNames own = std::exchange(names_, encoder_names(a_));
  prefix_ = "encoder.";
  causal_ = false;
  memory_ = stack(embed(), a_.layers);
  names_ = own;
  prefix_ = "decoder.";
  relative_ = -1;
}

int Builder::stack(int x, Index layers) {
  for (int l = 0; l < static_cast<int>(layers); ++l) x = a_.parallel_block ? parallel(x, l) : serial(x, l);
  if (!a_.final_norm || a_.norm_placement == NormPlacement::post) return x;
  return norm(prefix_ + "final.norm", std::string(names_.final_norm), x, -1);
}

int Builder::embed() {
  const Index width = a_.embedding_width;
  const bool encoder = prefix_ == "encoder.";
  if (token_ < 0) token_ = table_param(names_.token, a_.vocab, width, Role::token_embedding, a_.padding);
  const TokenEmbedding op{.vocab = a_.vocab, .width = width, .padding = a_.padding, .encoder = encoder};
  int x = graph_.add_node(prefix_ + "embed.tokens", op, {}, {graph_.whole(token_)});
  if (a_.embedding_scale != 1) x = graph_.add_node("embed.scale", Scale{width, a_.embedding_scale}, {x});
  if (width != a_.width) x = projection("embed.in", names_.project_in, x, width, a_.width);
  if (a_.token_types > 0) {
    const int p = table_param(names_.token_type, a_.token_types, a_.width, Role::position_embedding);
    x = graph_.add_node("embed.types", LearnedPosition{.positions = a_.token_types, .width = a_.width, .constant = true}, {x},
                        {graph_.whole(p)});
  }
  x = drop("embed.dropout", embedding_norm(positions(x)));
  graph_.nodes.back().name = prefix_ + "stream.0";
  return x;
}

// Patches and a class token, each with its place.
int Builder::embed_image() {
  const PatchEmbedding op{.side = a_.image, .patch = a_.patch, .colours = a_.colours, .width = a_.width};
  const std::string stem(names_.patches);
  const int weight =
      graph_.add_param({stem + ".weight", {a_.width, a_.colours, a_.patch, a_.patch}, Role::projection, -1, op.size(), a_.width});
  const int bias = bias_param(stem, op.size(), a_.width, -1);
  const int token = graph_.add_param({std::string(names_.class_token), {1, 1, a_.width}, Role::position_embedding, -1, 1, a_.width});
  const int x = graph_.add_node("embed.patches", op, {}, {graph_.whole(weight), graph_.whole(bias), graph_.whole(token)});
  const int p =
      graph_.add_param({std::string(names_.position), {1, a_.positions, a_.width}, Role::position_embedding, -1, a_.positions, a_.width});
  return graph_.add_node("stream.0", LearnedPosition{.positions = a_.positions, .width = a_.width}, {x}, {graph_.whole(p)});
}

int Builder::positions(int x) {
  if (a_.position == PositionKind::sinusoidal) return graph_.add_node("embed.positions", SinusoidalPosition{a_.width}, {x});
  if (a_.position == PositionKind::none) return x;
  const Index padding = a_.position_skips_padding ? a_.padding : Architecture::no_padding;
  const int p = table_param(names_.position, a_.positions + a_.position_offset, a_.width, Role::position_embedding, padding);
  const LearnedPosition op{.positions = a_.positions, .width = a_.width, .offset = a_.position_offset, .padding = padding};
  return graph_.add_node("embed.positions", op, {x}, {graph_.whole(p)});
}

int Builder::embedding_norm(int x) { return a_.embedding_norm ? norm("embed.norm", std::string(names_.embedding_norm), x, -1) : x; }

// Branch 2 l is the attention of layer l, also to an encoder, 2 l + 1 its feed-forward part.
int Builder::add(const std::string& node, const char* kind, int x, int f, std::size_t branch) {
  const auto scale = [&](const std::vector<double>& each, double all) { return each.empty() ? all : each[branch]; };
  if (a_.branch_gain != BranchGain::none) {
    const int l = static_cast<int>(branch / 2);
    const bool one = a_.branch_gain == BranchGain::scalar;
    const int g = vector_param(block_name(std::string(kind) + "_gain", l), one ? 1 : a_.width, Role::branch_gain, l);
    f = graph_.add_node(at_block(l) + kind + ".gain", Gain{a_.width, one}, {f}, {graph_.whole(g)});
  }
  const Residual op{a_.width, scale(a_.skip_scales, a_.skip_scale), scale(a_.residual_scales, a_.residual_scale)};
  return graph_.add_node(node, op, {x, f});
}

// One residual branch with its norm where the placement puts it.
template <class Branch>
int Builder::residual(const char* kind, const std::string& result, std::string_view before, std::string_view after, int x,
                      std::size_t number, const Branch& branch) {
  using P = NormPlacement;
  const P place = a_.norm_placement;
  const int l = static_cast<int>(number / 2);
  const std::string at = at_block(l) + kind + ".";
  const int in = place == P::pre || place == P::sandwich ? norm_before(at, before, x, l) : x;
  int out = branch(in, l);
  if (place == P::sandwich) out = norm(at + "post_norm", block_name(after, l), out, l);
  if (place == P::branch) out = norm(at + "post_norm", block_name(before, l), out, l);
  if (place != P::post || a_.norm == NormKind::none) return add(result, kind, a_.residual_from_norm ? in : x, out, number);
  return norm(result, block_name(before, l), add(at + "sum", kind, x, out, number), l);
}

int Builder::serial(int x, int l) {
  const std::string at = at_block(l);
  const std::size_t number = 2 * static_cast<std::size_t>(l);
  x = residual("attn", at + "mid", names_.attn_norm, names_.attn_post_norm, x, number,
               [&](int in, int layer) { return attention(in, layer); });
  if (memory_ >= 0) {
    x = residual("cross", at + "crossed", names_.cross_norm, {}, x, number, [&](int in, int layer) { return attention(in, layer, true); });
  }
  return residual("ffn", fmt::format("{}stream.{}", prefix_, l + 1), names_.ffn_norm, names_.ffn_post_norm, x, number + 1,
                  [&](int in, int layer) { return feed_forward(in, layer); });
}

// Both branches read the block's input, through one norm or each through its own, and are added to it.
int Builder::parallel(int x, int l) {
  const std::string at = at_block(l);
  const std::size_t number = 2 * static_cast<std::size_t>(l);
  const int first = norm_before(at + "attn.", names_.attn_norm, x, l);
  const int a = attention(first, l);
  const int f = feed_forward(a_.shared_norm ? first : norm_before(at + "ffn.", names_.ffn_norm, x, l), l);
  return add(fmt::format("{}stream.{}", prefix_, l + 1), "ffn", add(at + "mid", "attn", x, a, number), f, number + 1);
}

void Builder::head(int x) {
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

Graph build_graph(const Architecture& a) {
  if (a.graph) return *a.graph;
  return a.stages.empty() ? Builder(a).build() : build_cnn(a);
}

}  // namespace stepzero
