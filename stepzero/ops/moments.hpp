#pragma once
// The moment doors' side of the contract: what a wire carries when tensors are replaced by their Gram kernels.
//
//     down   K[t,s] = E <x_t, x_s> / n       per channel
//     up     G[t,s] = E <d_t, d_s>           summed over channels, d = dLoss/dx
//
// over the draw of the parameters, for the tokens that are really there.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "stepzero/core/kernel.hpp"
#include "stepzero/core/law.hpp"

namespace stepzero {

struct Batch;
struct Rotary;

// How far a rule can be trusted. A node's grade is the worst on its way.
enum class Grade : std::uint8_t { exact, large_width, approximate, sampled };
const char* to_string(Grade grade);

// Heads of two parts: the last `channels` of each have a kernel of their own (latent attention), before a rotation. Noise and swing
// as in a Moment: those of what the tail was made from.
struct Tail {
  Index channels = 0;
  Kernel K;
  double noise = 0;
  double swing = 0;
};

// The Gaussian channels that a function was applied to.
struct BeforeFunction {
  Kernel K;
  double (*value)(double);
  double (*slope)(double);
};

// A gradient that a function has not yet been taken into account of, and its slope.
struct BehindFunction {
  Kernel G;
  double (*slope)(double);
};

struct AttentionSummary {
  double score_variance = 0;  // over all heads, queries and visible keys
  double mean_score = 0;
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
  // How one draw's mean square varies: `drift` is the variance of its logarithm before the wire's own channels are drawn,
  // `sampling` that of x^2 / E[x^2] in one of them (2: Gaussian; 0: a norm fixes it).
  double drift = 0;
  double token_drift = 0;  // the same of a single token, which attention makes larger than that of their mean
  double lone = 0;         // the part of token_drift that the products with other tokens know nothing of: attention makes it
  double sampling = 2;
  // What tells tokens apart: the variance over draws of the logarithm of its size, beyond what `noise` says; and the share
  // of it that lies along the token itself, times the width.
  double swing = 0;
  double along = 1;
  // What the cosine of a token with any earlier one of its sequence varies by beyond `noise`, in its units: in every draw heads look
  // elsewhere, and the fewer tokens there are the more it matters. A mean over many pairs does not feel it. Empty: none.
  std::vector<double> jitter;
  std::vector<double> fresh;  // the part of it that was made since the wire left the stream
  double thins = 0;           // in one draw the mean square falls with what tells tokens apart, to this power: heads mix what differs
  double flat = 1;  // the share of a token's square along (1, ..., 1), times the width: 1 for independent channels, 0 once centred
  Index width = 0;  // channels; the walk fills it in
  // what happened to the heads since the projection, for an attention that samples them
  std::optional<Kernel> before_heads;  // kernel before a norm of heads or a rotation
  bool unit_heads = false;             // each head was put on a sphere
  const Rotary* rotary = nullptr;
  std::optional<Tail> tail;
  std::optional<BeforeFunction> before_function;  // for a maximum, which samples what it is the maximum of
  std::optional<AttentionSummary> attention;
  AttentionSummary attention_spread;  // standard deviation of the same in one draw
  std::shared_ptr<const void> keep;   // what push leaves for the pull of the same op; empty: it is made again

  // variance over draws of the logarithm of the mean square
  [[nodiscard]] double level() const { return drift + (width > 0 ? sampling * K.sameness() / static_cast<double>(width) : 0); }
  // how much smaller a cosine rho is in the mean over draws than that of the mean kernel: rho (1 - (1 - rho^2)/2 shrink)
  [[nodiscard]] double shrink(Index channels) const { return drift + (sampling - along) / static_cast<double>(channels); }
  // E (u_t u_s)^(-1/2) for sizes u that vary on their own: how much larger a cosine is than that of the mean kernel
  [[nodiscard]] double lift() const { return lone != 0 ? std::pow(1 + lone, 0.75) : 1; }
  // the noise of what the channels are drawn from: a mean over the channels feels no other
  [[nodiscard]] double shared_noise() const { return width > 0 ? std::max(0.0, noise - 1 / static_cast<double>(width)) : 0; }
  // ... and all that a pair of tokens feels
  [[nodiscard]] double pair_noise() const { return shared_noise() + mean_jitter(); }
  [[nodiscard]] double jitter_at(Index t) const { return jitter.empty() ? 0 : jitter[static_cast<std::size_t>(t)]; }
  [[nodiscard]] double fresh_at(Index t) const { return fresh.empty() ? 0 : fresh[static_cast<std::size_t>(t)]; }
  [[nodiscard]] double mean_jitter() const {
    return std::accumulate(jitter.begin(), jitter.end(), 0.0) / static_cast<double>(std::max<std::size_t>(jitter.size(), 1));
  }
  // the jitter of the wire that x was, grown by `factor`
  void take_jitter(const Moment& x, double factor = 1) {
    jitter = x.jitter;
    fresh = x.fresh;
    for (double& j : jitter) j *= factor;
    for (double& j : fresh) j *= factor;
  }
  // Of one draw nothing varies: what a rule says of other draws is dropped.
  void settle() {
    noise = drift = token_drift = lone = sampling = swing = along = thins = 0;
    jitter.clear();
    fresh.clear();
  }
  [[nodiscard]] double own_sampling() const { return width > 0 ? sampling / static_cast<double>(width) : 0; }
  [[nodiscard]] double mean_at(Index t) const { return mean.empty() ? 0 : mean[static_cast<std::size_t>(t)]; }
  [[nodiscard]] double own_at(Index t) const { return own.empty() ? 0 : own[static_cast<std::size_t>(t)]; }
};

// A wire on the way up.
struct Adjoint {
  Kernel G;
  std::optional<Kernel> before_rotary = std::nullopt;    // of the same heads before they turned, where an attention knows it exactly
  std::optional<Kernel> before_function = std::nullopt;  // of what the function that made the wire read, where a maximum knows it
  std::optional<BehindFunction> behind_function = std::nullopt;  // where one reads the wire: a batch norm feels that its slopes know x
  std::optional<Kernel> tail = std::nullopt;  // what of G belongs to the heads' tails, before they turned, where an attention knows it
  std::vector<double> radial =
      {};  // E<d_t, x_t>: what the gradient has along the token itself; empty: 0. Products keep it, norms absorb it
  // (t, s): E<d_t, x_s> from the embeddings that x shares with a tied head; none: 0. Kept and absorbed likewise
  std::shared_ptr<const Matrix> shared = nullptr;
  double along = 1;        // the share of the gradient's square along its own token, times the width: 1 at random, 0 behind a norm
  double twin = 0;         // the correlation of <d, x> with a number that it shares with the gradient of the other factor of a product
  double flat = 1;         // along (1, ..., 1)
  double damp = 0;         // the gradient at a token falls as the token grows in one draw: G_tt ~ |x_t|^(-2 damp)
  double stretch = 0;      // in one draw the gradient grows with what tells tokens apart, to this power; carried like level
  double level = 0;        // variance over draws of ln trace(G). A pull sets what it adds; the walk carries the rest
  double noise = 0;        // like Moment::noise, likewise carried by the walk
  double weight_gain = 1;  // E<K, G> over draws, in units of the product of the means: the weight's gradient feels their covariance

  void settle() { damp = stretch = level = noise = 0; }  // as of a Moment
};

// For rules that draw: a stream of the node's own, and how many floating-point operations it may spend.
struct Draws {
  std::uint64_t place = 0;
  double effort = 1e10;
  Index single = -1;  // the kernels are those of this one draw of a model, and so is what the rule yields; -1: the mean over draws

  [[nodiscard]] bool of_one() const { return single >= 0; }
};

struct PushDoor {
  const Batch& batch;
  std::span<const Moment* const> x;
  std::span<const Law> theta;
  Draws draws = {};
};

struct PullDoor {
  const Batch& batch;
  std::span<const Moment* const> x;
  std::span<const Law> theta;
  const Moment& y;
  const Adjoint& dy;
  Draws draws = {};
};

struct Pulled {
  std::vector<Adjoint> dx;
  std::vector<double> dtheta;       // E ||dtheta||^2 of each parameter
  std::vector<double> levels = {};  // relative variance of the same over draws, beyond what the wires' levels say; empty: 0
};

}  // namespace stepzero
