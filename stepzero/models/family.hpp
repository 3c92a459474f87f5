#pragma once
// What is particular to a family of models: how its config.json reads, and what its tensors are called.
// To add a family: one file like gpt2.cpp, one line in family.cpp.
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "stepzero/models/architecture.hpp"

namespace stepzero {

// Stems; ".weight" and ".bias" are added. {} in `block` is the layer's number.
struct TensorNames {
  std::string_view token, position, block, attn_norm, qkv, q, k, v, q_norm, k_norm, attn_out, attn_post_norm;
  std::string_view ffn_norm, ffn_gate, ffn_in, ffn_out, ffn_post_norm, final_norm, head;
  bool fused_qkv = false;                 // one tensor holds q | k | v
  bool in_out = false;                    // block matrices are stored (in, out), GPT-2's Conv1D
  std::string_view optional_prefix = "";  // a prefix that some files leave out
};

struct Family {
  std::string_view model_type;
  TensorNames names;
  Expected<Architecture> (*import)(const nlohmann::json& config, const std::string& file);
};

std::span<const Family> families();
const Family* find_family(std::string_view model_type);

extern const Family gpt2_family;
extern const Family llama_family;

}  // namespace stepzero
