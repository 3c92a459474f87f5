#pragma once
// The moment doors' side of the contract: what a wire carries when tensors are replaced by their Gram kernels.
//
//     down   K[t,s] = E <x_t, x_s> / n       per channel
//     up     G[t,s] = E <d_t, d_s>           summed over channels, d = dLoss/dx
//
// over the draw of the parameters, for the tokens that are really there.
#include <optional>
#include <span>
#include <vector>

#include "stepzero/core/kernel.hpp"

namespace stepzero {

struct Batch;
struct Rotary;

// How far a rule can be trusted. A node's grade is the worst on its way.
enum class Grade : std::uint8_t { exact, large_width, approximate, sampled };
const char* to_string(Grade grade);

struct AttentionSummary {
  double score_variance = 0;
  double entropy = 0;
  double sum_squares = 0;
};

// A wire on the way down.
struct Moment {
  Kernel K;
  std::vector<double> mean;  // E x_t in any one channel; empty: 0
  std::vector<double>
      own;           // how much of the token's own embedding is in x_t; empty: none. At the logits: the mean logit of the token's own id
  double noise = 0;  // one draw's kernel differs from K like a sample covariance of 1/noise channels
  Index width = 0;   // channels
  // what happened to the heads since the projection, for an attention that samples them
  std::optional<Kernel> before_heads;  // kernel before a norm of heads or a rotation
  bool unit_heads = false;             // each head was put on a sphere
  const Rotary* rotary = nullptr;
  std::optional<AttentionSummary> attention;

  [[nodiscard]] double mean_at(Index t) const { return mean.empty() ? 0 : mean[static_cast<std::size_t>(t)]; }
  [[nodiscard]] double own_at(Index t) const { return own.empty() ? 0 : own[static_cast<std::size_t>(t)]; }
};

// A wire on the way up.
struct Adjoint {
  Kernel G;
  std::optional<Kernel> before_rotary = std::nullopt;  // of the same heads before they turned, where an attention knows it exactly
  std::vector<double> radial =
      {};                  // E<d_t, x_t>: what the gradient has along the token itself; empty: 0. Products keep it, norms absorb it
  double weight_gain = 1;  // E<K, G> over draws, in units of the product of the means: the weight's gradient feels their covariance
};

// What a scheme makes of a parameter's entries.
struct Law {
  double mean = 0;
  double variance = 0;
  bool token_table = false;  // the embedding itself, used as a tied head
  [[nodiscard]] double second_moment() const { return mean * mean + variance; }
};

struct PushDoor {
  const Batch& batch;
  std::span<const Moment* const> x;
  std::span<const Law> theta;
};

struct PullDoor {
  const Batch& batch;
  std::span<const Moment* const> x;
  std::span<const Law> theta;
  const Moment& y;
  const Adjoint& dy;
};

struct Pulled {
  std::vector<Adjoint> dx;
  std::vector<double> dtheta;  // E ||dtheta||^2 of each parameter
};

}  // namespace stepzero
