#include "stepzero/models/infer.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include <fmt/format.h>

#include "stepzero/models/family.hpp"

namespace stepzero {

namespace {

struct RoleName {
  std::string_view end;     // of the name without ".weight"
  std::string_view within;  // must stand somewhere in the name
  Role role;
};

// The first that fits counts.
constexpr std::array kRoles = std::to_array<RoleName>({
    {"wte", "", Role::token_embedding},
    {"embed_tokens", "", Role::token_embedding},
    {"tok_embeddings", "", Role::token_embedding},
    {"word_embeddings", "", Role::token_embedding},
    {"embed_in", "", Role::token_embedding},
    {"token_embd", "", Role::token_embedding},
    {"embedding", "", Role::token_embedding},
    {"wpe", "", Role::position_embedding},
    {"embed_positions", "", Role::position_embedding},
    {"position_embeddings", "", Role::position_embedding},
    {"position_embd", "", Role::position_embedding},
    {"lm_head", "", Role::head},
    {"embed_out", "", Role::head},
    {"c_attn", "", Role::query_key_value},
    {"query_key_value", "", Role::query_key_value},
    {"qkv_proj", "", Role::query_key_value},
    {"wqkv", "", Role::query_key_value},
    {"attn_qkv", "", Role::query_key_value},
    {"in_proj", "att", Role::query_key_value},
    {"q_proj", "", Role::query},
    {"wq", "", Role::query},
    {"attn_q", "", Role::query},
    {"query", "", Role::query},
    {"k_proj", "", Role::key},
    {"wk", "", Role::key},
    {"attn_k", "", Role::key},
    {"key", "", Role::key},
    {"v_proj", "", Role::value},
    {"wv", "", Role::value},
    {"attn_v", "", Role::value},
    {"value", "", Role::value},
    {"o_proj", "", Role::attention_out},
    {"wo", "", Role::attention_out},
    {"attn_output", "", Role::attention_out},
    {"out_proj", "att", Role::attention_out},
    {"c_proj", "att", Role::attention_out},
    {"dense", "att", Role::attention_out},
    {"c_proj", "mlp", Role::ffn_out},
    {"down_proj", "", Role::ffn_out},
    {"w2", "", Role::ffn_out},
    {"ffn_down", "", Role::ffn_out},
    {"fc2", "", Role::ffn_out},
    {"fc_out", "", Role::ffn_out},
    {"dense_4h_to_h", "", Role::ffn_out},
    {"output.dense", "", Role::ffn_out},
    {"gate_proj", "", Role::ffn_gate},
    {"w1", "", Role::ffn_gate},
    {"ffn_gate", "", Role::ffn_gate},
    {"up_proj", "", Role::ffn_in},
    {"w3", "", Role::ffn_in},
    {"ffn_up", "", Role::ffn_in},
    {"c_fc", "", Role::ffn_in},
    {"fc1", "", Role::ffn_in},
    {"fc_in", "", Role::ffn_in},
    {"dense_h_to_4h", "", Role::ffn_in},
    {"intermediate.dense", "", Role::ffn_in},
    {"output", "", Role::head},
});

std::optional<Role> role_of(const std::string& name, std::size_t rank) {
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.ends_with(".bias") && rank == 1) return Role::bias;
  if (!lower.ends_with(".weight")) return std::nullopt;
  lower.resize(lower.size() - 7);
  if (rank == 1) return Role::gain;
  if (rank != 2) return std::nullopt;
  const auto found = std::ranges::find_if(kRoles, [&](const RoleName& r) {
    const bool ends = lower.ends_with(r.end) &&
                      (lower.size() == r.end.size() || !std::isalnum(static_cast<unsigned char>(lower[lower.size() - r.end.size() - 1])));
    return ends && lower.find(r.within) != lower.npos;
  });
  return found == kRoles.end() ? std::nullopt : std::optional(found->role);
}

// The first number between dots: the block; -1: outside the blocks.
int layer_of(const std::string& name) {
  for (std::size_t dot = 0; dot != name.npos; dot = name.find('.', dot + 1)) {
    const std::size_t begin = dot == 0 ? 0 : dot + 1, end = name.find('.', begin);
    if (end == name.npos) break;
    const std::string_view part = std::string_view(name).substr(begin, end - begin);
    const bool number = !part.empty() && part.size() < 6 && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    if (number) return std::stoi(std::string(part));
  }
  return -1;
}

// Query, key and value as thirds, where the shape is one of thirds.
void cut_in_thirds(Param& p) {
  const Index out = p.in_out ? p.shape[1] : p.shape[0], in = p.in_out ? p.shape[0] : p.shape[1];
  if (out != 3 * in) return;
  const std::array roles = {Role::query, Role::key, Role::value};
  for (Index i = 0; i < 3; ++i) {
    const Role role = roles[static_cast<std::size_t>(i)];
    p.parts.push_back(p.in_out ? Part{role, 0, i * in, in, in, in} : Part{role, i * in, 0, in, in, in});
  }
}

Param param_of(const NamedShape& t, Role role, bool in_out) {
  Param p;
  p.name = t.name;
  p.shape.assign(t.shape.begin(), t.shape.end());
  p.role = role;
  p.layer = layer_of(t.name);
  const bool table = role == Role::token_embedding || role == Role::position_embedding;
  if (p.shape.size() == 2) {
    p.in_out = in_out && p.layer >= 0;
    p.fan_in = table || p.in_out ? p.shape[0] : p.shape[1];
    p.fan_out = table || p.in_out ? p.shape[1] : p.shape[0];
  } else {
    p.fan_out = p.shape[0];
  }
  if (role == Role::query_key_value) cut_in_thirds(p);
  return p;
}

void fill_sizes(Architecture& a, const Graph& graph) {
  a.layers = 0;
  a.tied = true;
  a.gated = false;
  for (const Param& p : graph.params) {
    a.layers = std::max<Index>(a.layers, p.layer + 1);
    if (p.role == Role::token_embedding) a.vocab = p.rows(), a.width = p.cols();
    if (p.role == Role::position_embedding) a.positions = p.rows();
    if (p.role == Role::ffn_out) a.ffn = p.fan_in;
    a.gated = a.gated || p.role == Role::ffn_gate;
    a.tied = a.tied && p.role != Role::head;
  }
  a.layers = std::max<Index>(a.layers, 1);
  a.heads = std::max<Index>(1, a.width / 64);
  a.head_dim = std::max<Index>(1, a.width / a.heads);
  a.kv_heads = a.heads;
  if (a.ffn == 0) a.ffn = 4 * a.width;
}

}  // namespace

Inferred infer_model(const std::vector<NamedShape>& tensors) {
  Inferred out;
  Architecture& a = out.architecture;
  a.name = "the model";
  a.ffn = 0;
  // GPT-2's own class stores its blocks' matrices (in, out); the fused projection shows it.
  const bool conv = std::ranges::any_of(tensors, [](const NamedShape& t) {
    return t.name.ends_with("c_attn.weight") && t.shape.size() == 2 && t.shape[1] == 3 * t.shape[0];
  });
  const bool gpt2 = std::ranges::any_of(tensors, [](const NamedShape& t) { return t.name.ends_with("attn.c_attn.weight"); });
  if (gpt2) a.family = "gpt2";
  for (const NamedShape& t : tensors) {
    const auto role = t.role ? t.role : role_of(t.name, t.shape.size());
    const bool some =
        !t.shape.empty() && std::ranges::none_of(t.shape, [](std::uint64_t n) { return n == 0 || n > (std::uint64_t{1} << 40); });
    if (role && some) out.graph.params.push_back(param_of(t, *role, conv));
  }
  fill_sizes(a, out.graph);
  // A bias belongs to the matrix of its name, whose fan-in some schemes draw it by.
  for (Param& p : out.graph.params) {
    if (p.role != Role::bias) continue;
    const std::string weight = p.name.substr(0, p.name.size() - 4) + "weight";
    const auto matrix = std::ranges::find(out.graph.params, weight, &Param::name);
    if (matrix != out.graph.params.end() && matrix->shape.size() == 2) p.fan_in = matrix->fan_in;
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> gguf_names(const Architecture& a) {
  const TensorNames n = tensor_names(a);
  std::vector<std::pair<std::string, std::string>> list;
  const auto add = [&](const std::string& ours, const std::string& theirs) {
    for (const char* end : {".weight", ".bias"}) list.emplace_back(ours + end, theirs + end);
  };
  const std::array outside = {std::pair(n.token, "token_embd"),       std::pair(n.position, "position_embd"),
                              std::pair(n.token_type, "token_types"), std::pair(n.embedding_norm, "token_embd_norm"),
                              std::pair(n.final_norm, "output_norm"), std::pair(n.head, "output")};
  for (const auto& [ours, theirs] : outside) {
    if (!ours.empty()) add(std::string(ours), theirs);
  }
  const std::array inside = {std::pair(n.attn_norm, "attn_norm"),
                             std::pair(n.qkv, "attn_qkv"),
                             std::pair(n.q, "attn_q"),
                             std::pair(n.k, "attn_k"),
                             std::pair(n.v, "attn_v"),
                             std::pair(n.attn_out, "attn_output"),
                             std::pair(n.q_norm, "attn_q_norm"),
                             std::pair(n.k_norm, "attn_k_norm"),
                             std::pair(n.ffn_norm, "ffn_norm"),
                             std::pair(n.ffn_gate, "ffn_gate"),
                             std::pair(n.ffn_in, "ffn_up"),
                             std::pair(n.ffn_out, "ffn_down"),
                             std::pair(n.ffn_gate_in, "ffn_up"),
                             std::pair(n.attn_post_norm, "post_attention_norm"),
                             std::pair(n.ffn_post_norm, "post_ffw_norm")};
  for (Index l = 0; l < a.layers; ++l) {
    const std::string block = fmt::format(fmt::runtime(n.block), l);
    for (const auto& [ours, theirs] : inside) {
      if (!ours.empty()) add(block + std::string(ours), fmt::format("blk.{}.{}", l, theirs));
    }
  }
  return list;
}

}  // namespace stepzero
