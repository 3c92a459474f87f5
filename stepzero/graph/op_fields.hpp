#pragma once
// The fields of every op by name: the one table that the canonical graph is written from and read with.
#include <type_traits>

#include "stepzero/ops/all.hpp"

namespace stepzero {

// Calls field("name", member) for each; `op` may be const.
template <class O, class F>
void visit_fields(O& op, F&& field) {
  using T = std::remove_const_t<O>;
  if constexpr (std::is_same_v<T, TokenEmbedding>) {
    field("vocab", op.vocab), field("width", op.width), field("padding", op.padding), field("encoder", op.encoder);
  } else if constexpr (std::is_same_v<T, LearnedPosition>) {
    field("positions", op.positions), field("width", op.width), field("offset", op.offset), field("constant", op.constant);
    field("padding", op.padding);
  } else if constexpr (std::is_same_v<T, SinusoidalPosition>) {
    field("width", op.width), field("base", op.base);
  } else if constexpr (std::is_same_v<T, Linear>) {
    field("n_in", op.in), field("n_out", op.out), field("bias", op.bias), field("stored", op.storage), field("pieces", op.pieces);
  } else if constexpr (std::is_same_v<T, LoraLinear>) {
    field("n_in", op.base.in), field("n_out", op.base.out), field("bias", op.base.bias), field("stored", op.base.storage);
    field("pieces", op.base.pieces), field("rank", op.rank), field("scale", op.scale);
  } else if constexpr (std::is_same_v<T, LayerNorm> || std::is_same_v<T, RmsNorm>) {
    field("width", op.width), field("eps", op.eps), field("gain", op.gain), field("bias", op.bias), field("unit_offset", op.unit_offset);
    field("groups", op.groups), field("gain_per_group", op.gain_per_group);
  } else if constexpr (std::is_same_v<T, Rotary>) {
    field("heads", op.heads), field("head_dim", op.head_dim), field("turned", op.turned), field("first", op.first), field("base", op.base);
    field("interleaved", op.interleaved), field("frequencies", op.frequencies), field("stretch", op.stretch);
  } else if constexpr (std::is_same_v<T, Attention>) {
    field("heads", op.heads), field("kv_heads", op.kv_heads), field("key_dim", op.key_dim), field("value_dim", op.value_dim);
    field("scale", op.scale), field("causal", op.causal), field("window", op.window), field("softcap", op.softcap);
    field("alibi", op.alibi), field("buckets", op.buckets), field("farthest", op.farthest), field("cross", op.cross);
    field("chunk", op.chunk), field("sinks", op.sinks);
  } else if constexpr (std::is_same_v<T, Dropout>) {
    field("width", op.width), field("p", op.p), field("node", op.node);
  } else if constexpr (std::is_same_v<T, Residual>) {
    field("width", op.width), field("skip_scale", op.skip_scale), field("branch_scale", op.branch_scale);
  } else if constexpr (std::is_same_v<T, Scale>) {
    field("width", op.width), field("factor", op.factor);
  } else if constexpr (std::is_same_v<T, Repeat>) {
    field("width", op.width), field("times", op.times);
  } else if constexpr (std::is_same_v<T, Gain>) {
    field("width", op.width), field("one", op.one);
  } else if constexpr (std::is_same_v<T, Softcap>) {
    field("width", op.width), field("cap", op.cap);
  } else if constexpr (std::is_same_v<T, Clip>) {
    field("width", op.width), field("most", op.most);
  } else if constexpr (std::is_same_v<T, Join>) {
    field("heads", op.heads), field("own", op.own), field("shared", op.shared);
  } else if constexpr (std::is_same_v<T, Experts>) {
    auto& r = op.routing;
    field("width", op.width), field("ffn", op.ffn), field("activation", op.act), field("experts", r.experts), field("chosen", r.chosen);
    field("sigmoid", r.sigmoid), field("normalise", r.normalise), field("factor", r.factor), field("groups", r.groups);
    field("kept_groups", r.kept_groups), field("group_best", r.group_best), field("corrected", r.corrected);
    field("stored", op.storage), field("fused", op.fused), field("interleaved", op.interleaved), field("bias", op.bias);
    field("most", op.most), field("offset", op.offset), field("scales_input", op.scales_input);
  } else if constexpr (std::is_same_v<T, PatchEmbedding>) {
    field("side", op.side), field("patch", op.patch), field("colours", op.colours), field("width", op.width);
    field("bias", op.bias), field("class_token", op.class_token);
  } else if constexpr (std::is_same_v<T, Pixels>) {
    field("side", op.side), field("colours", op.colours);
  } else if constexpr (std::is_same_v<T, Conv>) {
    field("side", op.window.side), field("size", op.window.size), field("stride", op.window.stride), field("around", op.window.padding);
    field("n_in", op.in), field("n_out", op.out), field("bias", op.bias), field("groups", op.groups);
  } else if constexpr (std::is_same_v<T, AveragePool> || std::is_same_v<T, MaxPool>) {
    field("side", op.window.side), field("size", op.window.size), field("stride", op.window.stride), field("around", op.window.padding);
    field("width", op.width);
  } else if constexpr (std::is_same_v<T, BatchNorm>) {
    field("width", op.width), field("eps", op.eps);
  } else if constexpr (std::is_same_v<T, Flatten>) {
    field("side", op.side), field("width", op.width);
  } else if constexpr (std::is_same_v<T, TokenPool>) {
    field("width", op.width), field("first", op.first), field("count", op.count), field("last", op.last), field("largest", op.largest);
    field("id", op.id);
  } else if constexpr (std::is_same_v<T, Features>) {
    field("frames", op.frames), field("width", op.width);
  } else if constexpr (std::is_same_v<T, TimeConv>) {
    field("n_in", op.in), field("n_out", op.out), field("size", op.size), field("stride", op.stride), field("before", op.before);
    field("after", op.after), field("depthwise", op.depthwise), field("bias", op.bias);
  } else if constexpr (std::is_same_v<T, Temperature>) {
    field("width", op.width), field("by", op.by), field("every", op.every);
  } else if constexpr (std::is_same_v<T, Concat>) {
    field("n", op.n), field("m", op.m);
  } else if constexpr (std::is_same_v<T, Take>) {
    field("from", op.from), field("first", op.first), field("width", op.width);
  } else if constexpr (std::is_same_v<T, Scan>) {
    field("heads", op.heads), field("head_dim", op.head_dim), field("states", op.states), field("groups", op.groups);
    field("each", op.each), field("least", op.least), field("most", op.most);
  } else if constexpr (std::is_same_v<T, CrossEntropy>) {
    field("vocab", op.vocab);
  } else {
    field("width", op.width);  // an elementwise function
  }
}

}  // namespace stepzero
