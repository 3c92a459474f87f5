#include "stepzero/graph/role_names.hpp"

namespace stepzero {

namespace {

struct Names {
  const char* id;
  const char* words;
};

// without a default, so that the compiler asks for a new role's
Names names_of(Role role) {
  switch (role) {
    case Role::token_embedding:
      return {"token_embedding", "token embedding"};
    case Role::position_embedding:
      return {"position_embedding", "position embedding"};
    case Role::query:
      return {"query", "query"};
    case Role::key:
      return {"key", "key"};
    case Role::value:
      return {"value", "value"};
    case Role::query_key_value:
      return {"query_key_value", "query, key, value"};
    case Role::attention_out:
      return {"attention_out", "attention output"};
    case Role::ffn_in:
      return {"ffn_in", "feed-forward, in (up)"};
    case Role::ffn_gate:
      return {"ffn_gate", "feed-forward, gate"};
    case Role::ffn_out:
      return {"ffn_out", "feed-forward, out (down)"};
    case Role::head:
      return {"head", "head"};
    case Role::projection:
      return {"projection", "other"};
    case Role::router:
      return {"router", "router"};
    case Role::lora_down:
      return {"lora_down", "adapter, A"};
    case Role::lora_up:
      return {"lora_up", "adapter, B"};
    case Role::gain:
      return {"gain", "gain of a norm"};
    case Role::bias:
      return {"bias", "bias"};
    case Role::branch_gain:
      return {"branch_gain", "gain of a branch"};
  }
  return {"", ""};
}

}  // namespace

const char* to_string(Role role) { return names_of(role).id; }
const char* words(Role role) { return names_of(role).words; }

std::optional<Role> role_called(std::string_view id) {
  for (int r = 0; r <= static_cast<int>(Role::branch_gain); ++r) {
    if (id == to_string(static_cast<Role>(r))) return static_cast<Role>(r);
  }
  return std::nullopt;
}

}  // namespace stepzero
