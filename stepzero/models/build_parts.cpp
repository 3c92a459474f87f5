// What blocks are made of: parameters, matrices, norms.
#include <cmath>

#include <fmt/format.h>

#include "stepzero/models/builder.hpp"

namespace stepzero {

int Builder::vector_param(const std::string& name, Index n, Role role, int layer) {
  return graph_.add_param({name, {n}, role, layer, 1, n});
}

// A bias has the fan-in of its matrix; that of a norm has none (1).
int Builder::bias_param(const std::string& stem, Index in, Index n, int layer) {
  return graph_.add_param({stem + ".bias", {n}, Role::bias, layer, in, n});
}

// A matrix of a block, stored as the family stores it.
int Builder::matrix_param(const std::string& stem, Index in, Index out, Role role, int layer) {
  const auto shape = names_.in_out ? std::vector<Index>{in, out} : std::vector<Index>{out, in};
  const int param = graph_.add_param({stem + ".weight", shape, role, layer, in, out});
  graph_.params.back().in_out = names_.in_out;
  return param;
}

int Builder::table_param(std::string_view stem, Index rows, Index width, Role role, Index zero_row) {
  return graph_.add_param({std::string(stem) + ".weight", {rows, width}, role, -1, rows, width, 1, zero_row});
}

std::string Builder::block_name(std::string_view stem, int l) const {
  return fmt::format(fmt::runtime(names_.block), l) + std::string(stem);
}

std::string Builder::at_block(int l) const { return fmt::format("{}blocks.{}.", prefix_, l); }

int Builder::linear(const std::string& node, const std::string& stem, int x, Index in, Index out, bool bias, Role role, int layer) {
  const int weight = matrix_param(stem, in, out, role, layer);
  std::vector<ParamUse> uses = {graph_.whole(weight)};
  if (bias) uses.push_back(graph_.whole(bias_param(stem, in, out, layer)));
  return graph_.add_node(node, Linear{in, out, bias, storage()}, {x}, uses);
}

// A matrix outside the blocks: (out, in) in every family.
int Builder::projection(const std::string& node, std::string_view stem, int x, Index in, Index out, bool bias) {
  const int weight = graph_.add_param({std::string(stem) + ".weight", {out, in}, Role::projection, -1, in, out});
  std::vector<ParamUse> uses = {graph_.whole(weight)};
  if (bias) uses.push_back(graph_.whole(bias_param(std::string(stem), in, out, -1)));
  return graph_.add_node(node, Linear{in, out, bias}, {x}, uses);
}

// The tensors of a norm: one, or one for each group, as rows of one tensor or under names of their own.
template <class N>
std::vector<ParamUse> Builder::norm_params(const std::string& stem, const char* kind, const N& op, Role role, int layer) {
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
int Builder::norm_node(const std::string& node, const std::string& stem, int x, int layer, N op) {
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

int Builder::norm(const std::string& node, const std::string& stem, int x, int layer) { return norm(node, stem, x, layer, a_.width); }

int Builder::norm(const std::string& node, const std::string& stem, int x, int layer, Index width) {
  switch (a_.norm) {
    case NormKind::layernorm:
      return norm_node(node, stem, x, layer, LayerNorm{.width = width, .gain = a_.norm_gain, .bias = a_.norm_bias});
    case NormKind::rmsnorm:
      return norm_node(node, stem, x, layer, RmsNorm{.width = width, .gain = a_.norm_gain});
    case NormKind::batchnorm:  // of convolutional networks
    case NormKind::none:
      break;
  }
  return x;
}

// The norm that a branch reads the stream through.
int Builder::norm_before(const std::string& at, std::string_view stem, int x, int l) {
  const int y = norm(at + "norm", block_name(stem, l), x, l);
  if (!a_.norm_scale_by_layer || y == x) return y;
  return graph_.add_node(at + "norm_scaled", Scale{a_.width, 1 / std::sqrt(static_cast<double>(l + 1))}, {y});
}

// The norm before the last matrix of a branch, called after its neighbour: "mlp.down_proj" -> "mlp.ffn_sub_norm".
int Builder::norm_inside(const std::string& at, std::string_view beside, const char* name, int x, int l, Index width) {
  if (!a_.sub_norm) return x;
  const std::string folder(beside.substr(0, beside.rfind('.') + 1));
  return norm(at + "sub_norm", block_name(folder + name, l), x, l, width);
}

int Builder::head_norm(const std::string& node, std::string_view stem, int x, Index heads, int l) {
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

// The classes give these norms an eps of their own.
int Builder::latent_norm(const std::string& node, const std::string& stem, int x, int l, Index width) {
  const int y = norm_node(node, stem, x, l, RmsNorm{.width = width});
  std::get<RmsNorm>(graph_.nodes.back().op).eps = 1e-6;
  return y;
}

int Builder::unit(const std::string& node, int x, Index fan_in) {
  if (!a_.unit_linear) return x;
  return graph_.add_node(node, Scale{fan_in, 1 / std::sqrt(static_cast<double>(fan_in))}, {x});
}

int Builder::drop(const std::string& node, int x) {
  if (a_.dropout == 0) return x;
  return graph_.add_node(node, Dropout{a_.width, a_.dropout, static_cast<std::uint32_t>(graph_.nodes.size())}, {x});
}

}  // namespace stepzero
