#pragma once
// What many schemes share. Internal to schemes/.
#include <cmath>

#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

inline bool is_embedding(const Param& p) { return p.role == Role::token_embedding || p.role == Role::position_embedding; }

// The last matrix of each branch: what it makes is added to the stream.
inline bool writes_to_stream(const Param& p) { return p.role == Role::attention_out || p.role == Role::ffn_out; }

inline bool is_feed_forward(const Param& p) { return p.role == Role::ffn_in || p.role == Role::ffn_gate || p.role == Role::ffn_out; }

// Gains that change nothing, biases 0. Anything else is `matrix`.
inline Distribution with_plain_vectors(const Param& p, Distribution matrix) {
  if (p.role == Role::gain || p.role == Role::branch_gain) return Distribution::constant(p.neutral);
  if (p.role == Role::bias) return Distribution::constant(0);
  return matrix;
}

inline double number_of(Index n) { return static_cast<double>(n); }
inline double depth(const Architecture& a) { return number_of(a.layers); }
inline double fans(const Param& p) { return number_of(p.fan_in + p.fan_out); }
inline double xavier_std(const Param& p) { return std::sqrt(2 / fans(p)); }

// What nn.Linear, nn.Conv2d and nn.Embedding do by themselves.
Distribution torch_default(const Architecture& a, const Param& p);

// Each file's share of the list.
std::span<const Scheme> fan_schemes();
std::span<const Scheme> depth_schemes();
std::span<const Scheme> residual_schemes();
std::span<const Scheme> width_schemes();
std::span<const Scheme> structure_schemes();

}  // namespace stepzero
