#pragma once
// What is particular to a family of models: how its config.json reads, and what its tensors are called.
// To add a family: one file like gpt2.cpp (or a part of one), one line in family.cpp.
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "stepzero/graph/graph.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

// How one tensor holds the projections to q, k and v: not at all, one after the other, or in groups, each the queries
// that share a key head, the key, the value.
enum class FusedQkv : std::uint8_t { none, blocks, groups };

// Stems; ".weight" and ".bias" are added. {} in `block` is the layer's number; in `q_norm`, `k_norm` the head's.
struct TensorNames {
  std::string_view token = {}, token_type = {}, position = {}, embedding_norm = {}, project_in = {}, project_out = {};
  std::string_view block = {}, attn_norm = {}, qkv = {}, q = {}, k = {}, v = {}, q_norm = {}, k_norm = {}, attn_out = {},
                   attn_post_norm = {};
  std::string_view ffn_norm = {}, ffn_gate_in = {}, ffn_gate = {}, ffn_in = {}, ffn_out = {}, ffn_post_norm = {};
  std::string_view final_norm = {}, head_dense = {}, head_norm = {}, head = {}, head_bias = {};
  // latent attention
  std::string_view q_latent = {}, q_latent_norm = {}, q_out = {}, kv_latent = {}, kv_latent_norm = {}, kv_out = {};
  // {} in `expert` is its number
  std::string_view router = {}, router_bias = {}, expert = {}, shared_experts = {}, expert_gate = {}, expert_in = {}, expert_out = {};
  // encoder-decoders, vision
  std::string_view relative = {}, cross_norm = {}, cross_q = {}, cross_k = {}, cross_v = {}, cross_out = {}, patches = {}, class_token = {};
  FusedQkv fused_qkv = FusedQkv::none;
  bool fused_gate = false;                // ffn_gate_in holds gate | in
  bool in_out = false;                    // block matrices are stored (in, out), GPT-2's Conv1D
  std::string_view optional_prefix = "";  // a prefix that some files leave out
};

struct Family {
  std::string_view model_type;
  TensorNames names;
  Expected<Architecture> (*import)(const nlohmann::json& config, const std::string& file);
  // What `names` depends on besides the family (Falcon's norms); null: nothing.
  void (*rename)(const Architecture& a, TensorNames& names) = nullptr;
  const TensorNames* encoder = nullptr;  // of an encoder-decoder; `names` are those of the decoder
};

std::span<const Family> families();
const Family* find_family(std::string_view model_type);
TensorNames tensor_names(const Architecture& a);
TensorNames encoder_names(const Architecture& a);

}  // namespace stepzero
