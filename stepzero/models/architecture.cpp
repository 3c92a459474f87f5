#include "stepzero/models/architecture.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <charconv>

#include "stepzero/core/read_real.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/models/own_file.hpp"

namespace stepzero {

namespace {

template <class E>
using Names = std::vector<std::pair<std::string_view, E>>;

const Names<NormKind> norm_names = {
    {"layernorm", NormKind::layernorm}, {"rmsnorm", NormKind::rmsnorm}, {"batchnorm", NormKind::batchnorm}, {"none", NormKind::none}};
const Names<NormPlacement> placement_names = {
    {"pre", NormPlacement::pre}, {"post", NormPlacement::post}, {"sandwich", NormPlacement::sandwich}, {"branch", NormPlacement::branch}};
const Names<PositionKind> position_names = {
    {"learned", PositionKind::learned}, {"sinusoidal", PositionKind::sinusoidal}, {"none", PositionKind::none}};
const Names<QkNorm> qk_norm_names = {{"none", QkNorm::none}, {"head", QkNorm::head}, {"each_head", QkNorm::each_head},
                                     {"all", QkNorm::all},   {"true", QkNorm::head}, {"false", QkNorm::none}};
const Names<RopeScaling> rope_names = {
    {"none", RopeScaling::none},         {"linear", RopeScaling::linear}, {"dynamic", RopeScaling::dynamic}, {"yarn", RopeScaling::yarn},
    {"longrope", RopeScaling::longrope}, {"llama3", RopeScaling::llama3}, {"default", RopeScaling::none},    {"su", RopeScaling::longrope}};
const Names<Pooling> pooling_names = {{"none", Pooling::none}, {"max", Pooling::max}, {"average", Pooling::average}};
const Names<BranchGain> gain_names = {{"none", BranchGain::none}, {"scalar", BranchGain::scalar}, {"channel", BranchGain::channel}};
// The first name of each function is ours, the others are the library's (ACT2FN).
const Names<Activation> activation_names = {{"identity", Activation::identity},
                                            {"relu", Activation::relu},
                                            {"relu2", Activation::relu2},
                                            {"relu6", Activation::relu6},
                                            {"leaky_relu", Activation::leaky_relu},
                                            {"sigmoid", Activation::sigmoid},
                                            {"tanh", Activation::tanh},
                                            {"silu", Activation::silu},
                                            {"quick_gelu", Activation::quick_gelu},
                                            {"gelu", Activation::gelu},
                                            {"gelu_tanh", Activation::gelu_tanh},
                                            {"gelu_10", Activation::gelu_10},
                                            {"mish", Activation::mish},
                                            {"laplace", Activation::laplace},
                                            {"linear", Activation::identity},
                                            {"swish", Activation::silu},
                                            {"gelu_new", Activation::gelu_tanh},
                                            {"gelu_fast", Activation::gelu_tanh},
                                            {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                            {"gelu_python_tanh", Activation::gelu_tanh},
                                            {"gelu_accurate", Activation::gelu_tanh},
                                            {"gelu_python", Activation::gelu}};

template <class E>
std::string_view name_of(const Names<E>& names, E value) {
  for (const auto& [name, v] : names) {
    if (v == value) return name;
  }
  return "?";
}

template <class E>
Expected<E> parse_name(const Names<E>& names, std::string_view text) {
  std::vector<std::string_view> known;
  for (const auto& [name, v] : names) {
    if (name == text) return v;
    known.push_back(name);
  }
  return fail(fmt::format("\"{}\" is not one of {}", show(text), fmt::join(known, ", ")));
}

Expected<Index> parse_count(std::string_view text, Index low, Index high) {
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return fail(fmt::format("\"{}\" is not a whole number from {} to {}", show(text), low, high));
  }
  return value;
}

Expected<double> parse_number(std::string_view text, double low, double high) {
  double value = 0;
  const auto [end, error] = read_real(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high)) {
    return fail(fmt::format("\"{}\" is not a number from {} to {}", show(text), low, high));
  }
  return value;
}

Expected<bool> parse_bool(std::string_view text) {
  if (text == "true" || text == "1" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "no") return false;
  return fail(fmt::format("\"{}\" is neither true nor false", show(text)));
}

template <class T>
Expected<void> assign(T& to, Expected<T> from) {
  if (!from) return std::unexpected(from.error());
  to = *from;
  return {};
}

constexpr Index most = Index{1} << 31;
constexpr double huge = 1e30;

template <Index Architecture::* member, Index low, Index high = most>
Expected<void> set_count(Architecture& a, std::string_view text) {
  return assign(a.*member, parse_count(text, low, high));
}

template <double Architecture::* member, double low>
Expected<void> set_number(Architecture& a, std::string_view text) {
  return assign(a.*member, parse_number(text, low, huge));
}

template <bool Architecture::* member>
Expected<void> set_flag(Architecture& a, std::string_view text) {
  return assign(a.*member, parse_bool(text));
}

Expected<void> set_bias(Architecture& a, std::string_view text) {
  if (auto done = assign(a.attention_bias, parse_bool(text)); !done) return done;
  a.attention_out_bias = a.mlp_bias = a.attention_bias;
  return {};
}

Expected<void> set_attention_bias(Architecture& a, std::string_view text) {
  if (auto done = assign(a.attention_bias, parse_bool(text)); !done) return done;
  a.attention_out_bias = a.attention_bias;
  return {};
}

Expected<void> set_layer_types(Architecture& a, std::string_view text) {
  if (text.size() > Architecture::most_layers || text.find_first_not_of("sf") != std::string_view::npos) {
    return fail(fmt::format("\"{}\" is not a word of the letters s and f", show(text)), "s: a layer with the window, f: a layer without");
  }
  a.layer_types = text;
  return {};
}

// "1,1.05,1.2"
template <std::vector<double> Architecture::* member, double least>
Expected<void> set_list(Architecture& a, std::string_view text) {
  std::vector<double> list;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const auto value = parse_number(text.substr(0, comma), least, huge);
    if (!value) return std::unexpected(value.error());
    list.push_back(*value);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  a.*member = std::move(list);
  return {};
}

// "6,16"
template <std::vector<Index> Architecture::* member>
Expected<void> set_counts(Architecture& a, std::string_view text) {
  std::vector<Index> list;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const auto value = parse_count(text.substr(0, comma), 1, Index{1} << 24);
    if (!value) return std::unexpected(value.error());
    list.push_back(*value);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  a.*member = std::move(list);
  return {};
}

Expected<void> set_dropout(Architecture& a, std::string_view text) { return assign(a.dropout, parse_number(text, 0, 0.99)); }

using A = Architecture;
constexpr std::string_view count = "a whole number";
constexpr std::string_view number = "a number";
constexpr std::string_view flag = "true or false";

const std::array field_table = std::to_array<Field>({
    {"layers", count, set_count<&A::layers, 1, A::most_layers>},
    {"width", count, set_count<&A::width, 1>},
    {"heads", count, set_count<&A::heads, 1>},
    {"kv_heads", "a whole number; 0: heads", set_count<&A::kv_heads, 0>},
    {"head_dim", "a whole number; 0: width / heads", set_count<&A::head_dim, 0>},
    {"ffn", "a whole number; 0: 4 width", set_count<&A::ffn, 0>},
    {"vocab", count, set_count<&A::vocab, 1>},
    {"positions", count, set_count<&A::positions, 1>},
    {"embedding_width", "a whole number; 0: width", set_count<&A::embedding_width, 0>},
    {"token_types", "rows of a table whose first is added to every token; 0: none", set_count<&A::token_types, 0>},
    {"padding", "a token id; -1: none", set_count<&A::padding, A::no_padding>},
    {"position_offset", count, set_count<&A::position_offset, 0>},
    {"position_skips_padding", flag, set_flag<&A::position_skips_padding>},
    {"position", "learned, sinusoidal, none", [](A& a, std::string_view v) { return assign(a.position, parse_name(position_names, v)); }},
    {"rotary", "channels of each head that turn, even; 0: none, -1: rotary_fraction of them", set_count<&A::rotary, A::whole_head>},
    {"rotary_fraction", "a number from 0 to 1", set_number<&A::rotary_fraction, 0.0>},
    {"rotary_interleaved", flag, set_flag<&A::rotary_interleaved>},
    {"rope_theta", number, set_number<&A::rope_theta, 1e-6>},
    {"rope_theta_window", "a number; 0: rope_theta", set_number<&A::rope_theta_window, 0.0>},
    {"rope_scaling", "none, linear, dynamic, yarn, longrope, llama3",
     [](A& a, std::string_view v) { return assign(a.rope_scaling, parse_rope_scaling(v)); }},
    {"rope_factor", number, set_number<&A::rope_factor, 1e-6>},
    {"rope_original_positions", "a whole number; 0: positions", set_count<&A::rope_original_positions, 0>},
    {"rope_attention_factor", "a number; 0: what the scaling says", set_number<&A::rope_attention_factor, 0.0>},
    {"rope_low_freq", number, set_number<&A::rope_low_freq, 1e-6>},
    {"rope_high_freq", number, set_number<&A::rope_high_freq, 1e-6>},
    {"rope_beta_fast", number, set_number<&A::rope_beta_fast, 1e-6>},
    {"rope_beta_slow", number, set_number<&A::rope_beta_slow, 1e-6>},
    {"rope_truncate", flag, set_flag<&A::rope_truncate>},
    {"rope_short", "numbers with commas between, one for each pair of channels", set_list<&A::rope_short, 1e-6>},
    {"rope_long", "numbers with commas between, one for each pair of channels", set_list<&A::rope_long, 1e-6>},
    {"rope_beyond", flag, set_flag<&A::rope_beyond>},
    {"alibi", "a factor on the usual slopes; 0: none", set_number<&A::alibi, 0.0>},
    {"causal", flag, set_flag<&A::causal>},
    {"window", "keys a query sees, itself included; 0: all", set_count<&A::window, 0>},
    {"layer_types", "letters s (window) and f (none), repeated over the layers", set_layer_types},
    {"norm", "layernorm, rmsnorm, batchnorm, none", [](A& a, std::string_view v) { return assign(a.norm, parse_name(norm_names, v)); }},
    {"norm_eps", number, set_number<&A::norm_eps, 0.0>},
    {"norm_placement", "pre, post, sandwich, branch",
     [](A& a, std::string_view v) { return assign(a.norm_placement, parse_name(placement_names, v)); }},
    {"norm_gain", flag, set_flag<&A::norm_gain>},
    {"norm_bias", flag, set_flag<&A::norm_bias>},
    {"norm_offset", flag, set_flag<&A::norm_offset>},
    {"embedding_norm", flag, set_flag<&A::embedding_norm>},
    {"final_norm", flag, set_flag<&A::final_norm>},
    {"qk_norm", "none, head, each_head, all", [](A& a, std::string_view v) { return assign(a.qk_norm, parse_name(qk_norm_names, v)); }},
    {"qk_norm_bias", flag, set_flag<&A::qk_norm_bias>},
    {"parallel_block", flag, set_flag<&A::parallel_block>},
    {"shared_norm", flag, set_flag<&A::shared_norm>},
    {"residual_from_norm", flag, set_flag<&A::residual_from_norm>},
    {"activation", "identity, relu, relu2, relu6, leaky_relu, sigmoid, tanh, silu, quick_gelu, gelu, gelu_tanh, gelu_10, mish, laplace",
     [](A& a, std::string_view v) { return assign(a.activation, parse_activation(v)); }},
    {"gated", flag, set_flag<&A::gated>},
    {"bias", flag, set_bias},
    {"attention_bias", flag, set_attention_bias},
    {"attention_out_bias", flag, set_flag<&A::attention_out_bias>},
    {"mlp_bias", flag, set_flag<&A::mlp_bias>},
    {"head_bias", flag, set_flag<&A::head_bias>},
    {"head_transform", flag, set_flag<&A::head_transform>},
    {"head_gelu", flag, set_flag<&A::head_gelu>},
    {"clip_qkv", "a number; 0: none", set_number<&A::clip_qkv, 0.0>},
    {"attention_scale", "a number; 0: 1/sqrt(head_dim)", set_number<&A::attention_scale, 0.0>},
    {"attention_scale_by_layer", flag, set_flag<&A::attention_scale_by_layer>},
    {"attention_softcap", "a number; 0: none", set_number<&A::attention_softcap, 0.0>},
    {"residual_scale", number, set_number<&A::residual_scale, -huge>},
    {"embedding_scale", "a number; 0: sqrt(width)", set_number<&A::embedding_scale, -huge>},
    {"logit_scale", number, set_number<&A::logit_scale, -huge>},
    {"logit_softcap", "a number; 0: none", set_number<&A::logit_softcap, 0.0>},
    {"tied", flag, set_flag<&A::tied>},
    {"dropout", "a number from 0 to 0.99", set_dropout},
    {"init_std", number, set_number<&A::init_std, 0.0>},
    {"experts", "a whole number; 0: none", set_count<&A::experts, 0, A::most_experts>},
    {"experts_per_token", count, set_count<&A::experts_per_token, 0>},
    {"shared_experts", count, set_count<&A::shared_experts, 0, A::most_experts>},
    {"expert_ffn", "a whole number; 0: ffn", set_count<&A::expert_ffn, 0>},
    {"dense_layers", "layers before the first with experts", set_count<&A::dense_layers, 0>},
    {"router_bias", flag, set_flag<&A::router_bias>},
    {"router_sigmoid", flag, set_flag<&A::router_sigmoid>},
    {"router_normalise", flag, set_flag<&A::router_normalise>},
    {"router_scale", number, set_number<&A::router_scale, -huge>},
    {"router_groups", "a whole number that divides experts", set_count<&A::router_groups, 1, A::most_experts>},
    {"router_kept_groups", count, set_count<&A::router_kept_groups, 1, A::most_experts>},
    {"router_group_best", count, set_count<&A::router_group_best, 1, A::most_experts>},
    {"query_rank", "a whole number; 0: none", set_count<&A::query_rank, 0>},
    {"key_value_rank", count, set_count<&A::key_value_rank, 0>},
    {"key_dim", count, set_count<&A::key_dim, 0>},
    {"key_rope_dim", count, set_count<&A::key_rope_dim, 0>},
    {"value_dim", count, set_count<&A::value_dim, 0>},
    {"decoder_layers", count, set_count<&A::decoder_layers, 0, A::most_layers>},
    {"relative_positions", "buckets of a learned bias by distance; 0: none", set_count<&A::relative_positions, 0>},
    {"relative_distance", count, set_count<&A::relative_distance, 1>},
    {"image", "pixels on a side", set_count<&A::image, 0, 65536>},
    {"patch", "pixels on a side", set_count<&A::patch, 0, 65536>},
    {"colours", count, set_count<&A::colours, 1, 65536>},
    {"stages", "channels of each stage of convolutions, with commas", set_counts<&A::stages>},
    {"stage_blocks", "residual blocks of a stage; 0: one convolution and a pooling", set_count<&A::stage_blocks, 0, A::most_layers>},
    {"conv_size", "pixels on a side", set_count<&A::conv_size, 1, 65536>},
    {"conv_stride", count, set_count<&A::conv_stride, 1, 65536>},
    {"conv_padding", "pixels; -1: half the size", set_count<&A::conv_padding, A::same_padding, 65536>},
    {"conv_groups", "a whole number that divides the channels", set_count<&A::conv_groups, 1>},
    {"pooling", "none, max, average", [](A& a, std::string_view v) { return assign(a.pooling, parse_name(pooling_names, v)); }},
    {"pool_size", "pixels on a side", set_count<&A::pool_size, 1, 65536>},
    {"dense", "widths of the matrices before the head, with commas", set_counts<&A::dense>},
    {"skip_scale", number, set_number<&A::skip_scale, -huge>},
    {"skip_scales", "two numbers for each layer, with commas; empty: skip_scale", set_list<&A::skip_scales, -huge>},
    {"residual_scales", "two numbers for each layer, with commas; empty: residual_scale", set_list<&A::residual_scales, -huge>},
    {"branch_gain", "none, scalar, channel", [](A& a, std::string_view v) { return assign(a.branch_gain, parse_name(gain_names, v)); }},
    {"sub_norm", flag, set_flag<&A::sub_norm>},
    {"norm_scale_by_layer", flag, set_flag<&A::norm_scale_by_layer>},
    {"unit_linear", flag, set_flag<&A::unit_linear>},
    {"base_width", count, set_count<&A::base_width, 1>},
    {"base_layers", count, set_count<&A::base_layers, 1>},
});

}  // namespace

std::span<const Field> fields() { return field_table; }

Expected<Activation> parse_activation(std::string_view name) { return parse_name(activation_names, name); }
std::string_view to_string(Activation a) { return name_of(activation_names, a); }
std::string_view to_string(RopeScaling s) { return name_of(rope_names, s); }
Expected<RopeScaling> parse_rope_scaling(std::string_view name) { return parse_name(rope_names, name); }
std::string_view to_string(NormKind n) { return name_of(norm_names, n); }
std::string_view to_string(PositionKind p) { return name_of(position_names, p); }
std::string_view to_string(Pooling p) { return name_of(pooling_names, p); }
Expected<Pooling> parse_pooling(std::string_view name) { return parse_name(pooling_names, name); }
std::string_view to_string(BranchGain g) { return name_of(gain_names, g); }
std::string_view to_string(QkNorm n) { return name_of(qk_norm_names, n); }
std::string_view to_string(NormPlacement p) { return name_of(placement_names, p); }

Expected<void> set_field(Architecture& a, std::string_view assignment) {
  if (a.own) return set_own_size(a, assignment);
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    return fail(fmt::format("--set {}: expected key=value", show(assignment)), "for example --set layers=24");
  }
  const std::string_view key = assignment.substr(0, equals);
  std::vector<std::string> known;
  for (const Field& field : field_table) {
    if (field.name == key) {
      auto done = field.set(a, assignment.substr(equals + 1));
      if (!done) done.error().message = fmt::format("--set {}: {}", show(key), done.error().message);
      return done;
    }
    known.emplace_back(field.name);
  }
  const std::string near = closest(key, known);
  return fail(fmt::format("--set {}: no such field{}", show(key), near.empty() ? "" : fmt::format("; did you mean {}?", near)),
              fmt::format("the fields are {}", fmt::join(known, ", ")));
}

}  // namespace stepzero
