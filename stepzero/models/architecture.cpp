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

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

template <class E>
using Names = std::vector<std::pair<std::string_view, E>>;

const Names<NormKind> norm_names = {{"layernorm", NormKind::layernorm}, {"rmsnorm", NormKind::rmsnorm}, {"none", NormKind::none}};
const Names<NormPlacement> placement_names = {
    {"pre", NormPlacement::pre}, {"post", NormPlacement::post}, {"sandwich", NormPlacement::sandwich}, {"branch", NormPlacement::branch}};
const Names<PositionKind> position_names = {
    {"learned", PositionKind::learned}, {"sinusoidal", PositionKind::sinusoidal}, {"none", PositionKind::none}};
const Names<BranchGain> gain_names = {{"none", BranchGain::none}, {"scalar", BranchGain::scalar}, {"channel", BranchGain::channel}};
// The first name of each function is ours, the others are the library's (ACT2FN).
const Names<Activation> activation_names = {{"identity", Activation::identity},
                                            {"relu", Activation::relu},
                                            {"relu2", Activation::relu2},
                                            {"sigmoid", Activation::sigmoid},
                                            {"tanh", Activation::tanh},
                                            {"silu", Activation::silu},
                                            {"quick_gelu", Activation::quick_gelu},
                                            {"gelu", Activation::gelu},
                                            {"gelu_tanh", Activation::gelu_tanh},
                                            {"linear", Activation::identity},
                                            {"swish", Activation::silu},
                                            {"gelu_new", Activation::gelu_tanh},
                                            {"gelu_fast", Activation::gelu_tanh},
                                            {"gelu_pytorch_tanh", Activation::gelu_tanh},
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
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
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
  a.mlp_bias = a.attention_bias;
  return {};
}

// "0.5,0.7,0.9"
template <std::vector<double> Architecture::* member>
Expected<void> set_list(Architecture& a, std::string_view text) {
  std::vector<double> list;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const auto value = parse_number(text.substr(0, comma), -huge, huge);
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
    {"position", "learned, sinusoidal, none", [](A& a, std::string_view v) { return assign(a.position, parse_name(position_names, v)); }},
    {"rotary", "channels of each head that turn, even; 0: none, -1: all", set_count<&A::rotary, A::whole_head>},
    {"rope_theta", number, set_number<&A::rope_theta, 1e-6>},
    {"causal", flag, set_flag<&A::causal>},
    {"window", "keys a query sees, itself included; 0: all", set_count<&A::window, 0>},
    {"norm", "layernorm, rmsnorm, none", [](A& a, std::string_view v) { return assign(a.norm, parse_name(norm_names, v)); }},
    {"norm_eps", number, set_number<&A::norm_eps, 0.0>},
    {"norm_placement", "pre, post, sandwich, branch",
     [](A& a, std::string_view v) { return assign(a.norm_placement, parse_name(placement_names, v)); }},
    {"qk_norm", flag, set_flag<&A::qk_norm>},
    {"parallel_block", flag, set_flag<&A::parallel_block>},
    {"activation", "identity, relu, relu2, sigmoid, tanh, silu, quick_gelu, gelu, gelu_tanh",
     [](A& a, std::string_view v) { return assign(a.activation, parse_activation(v)); }},
    {"gated", flag, set_flag<&A::gated>},
    {"bias", flag, set_bias},
    {"attention_bias", flag, set_flag<&A::attention_bias>},
    {"mlp_bias", flag, set_flag<&A::mlp_bias>},
    {"attention_scale", "a number; 0: 1/sqrt(head_dim)", set_number<&A::attention_scale, 0.0>},
    {"attention_scale_by_layer", flag, set_flag<&A::attention_scale_by_layer>},
    {"attention_softcap", "a number; 0: none", set_number<&A::attention_softcap, 0.0>},
    {"residual_scale", number, set_number<&A::residual_scale, -huge>},
    {"embedding_scale", number, set_number<&A::embedding_scale, -huge>},
    {"logit_scale", number, set_number<&A::logit_scale, -huge>},
    {"logit_softcap", "a number; 0: none", set_number<&A::logit_softcap, 0.0>},
    {"tied", flag, set_flag<&A::tied>},
    {"dropout", "a number from 0 to 0.99", set_dropout},
    {"init_std", number, set_number<&A::init_std, 0.0>},
    {"skip_scale", number, set_number<&A::skip_scale, -huge>},
    {"skip_scales", "two numbers for each layer, with commas; empty: skip_scale", set_list<&A::skip_scales>},
    {"residual_scales", "two numbers for each layer, with commas; empty: residual_scale", set_list<&A::residual_scales>},
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
std::string_view to_string(NormKind n) { return name_of(norm_names, n); }
std::string_view to_string(PositionKind p) { return name_of(position_names, p); }
std::string_view to_string(BranchGain g) { return name_of(gain_names, g); }
std::string_view to_string(NormPlacement p) { return name_of(placement_names, p); }

Expected<void> set_field(Architecture& a, std::string_view assignment) {
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

Expected<void> resolve(Architecture& a) {
  if (a.kv_heads == 0) a.kv_heads = a.heads;
  if (a.ffn == 0) a.ffn = 4 * a.width;
  if (a.head_dim == 0) {
    if (a.width % a.heads != 0) {
      return fail(fmt::format("heads = {} does not divide width = {}", a.heads, a.width),
                  "choose heads that divide the width, or set head_dim as well");
    }
    a.head_dim = a.width / a.heads;
  }
  if (a.heads % a.kv_heads != 0) {
    return fail(fmt::format("kv_heads = {} does not divide heads = {}", a.kv_heads, a.heads));
  }
  if (a.parallel_block && a.norm_placement != NormPlacement::pre) {
    return fail(fmt::format("norm_placement = {} has no meaning in a parallel block", to_string(a.norm_placement)),
                "set parallel_block=false or norm_placement=pre");
  }
  for (const auto* list : {&a.skip_scales, &a.residual_scales}) {
    if (list->empty() || static_cast<Index>(list->size()) == 2 * a.layers) continue;
    return fail(fmt::format("{} has {} numbers, {} layers need {}", list == &a.skip_scales ? "skip_scales" : "residual_scales",
                            list->size(), a.layers, 2 * a.layers));
  }
  if (a.rotary == Architecture::whole_head) a.rotary = a.head_dim;
  if (a.rotary % 2 != 0 || a.rotary > a.head_dim) {
    return fail(fmt::format("rotary = {} must be even and at most head_dim = {}", a.rotary, a.head_dim));
  }
  if (a.attention_scale == 0) a.attention_scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
  const double parameters = static_cast<double>(a.vocab) * static_cast<double>(a.width) * (a.tied ? 1 : 2) +
                            static_cast<double>(a.layers) * static_cast<double>(a.width) *
                                (static_cast<double>(a.heads + a.kv_heads) * 2 * static_cast<double>(a.head_dim) +
                                 (a.gated ? 3.0 : 2.0) * static_cast<double>(a.ffn));
  if (!(parameters <= 1e13)) {
    return fail(fmt::format("this description has about {:.1e} parameters, {:.0f} TB in float32; the limit is 1e13", parameters,
                            parameters * 4e-12));
  }
  return {};
}

}  // namespace stepzero
