#pragma once
// The moment doors' side of the contract: what a wire carries when tensors are replaced by their Gram kernels.
//
//     down   K[t,s] = E <x_t, x_s> / n       per channel
//     up     G[t,s] = E <d_t, d_s>           summed over channels, d = dLoss/dx
//
// over the draw of the parameters, for the tokens that are really there. Moment and Adjoint are the limit of infinite width, and all
// that the push and pull of a textbook rule know. How one draw of a model of finite width differs travels beside them (finite/).
#include <any>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stepzero/core/kernel.hpp"
#include "stepzero/core/law.hpp"
#include "stepzero/ops/finite/fluctuation.hpp"

namespace stepzero {

struct Batch;

// How far a rule can be trusted. A node's grade is the worst on its way.
enum class Grade : std::uint8_t { exact, large_width, approximate, sampled };
const char* to_string(Grade grade);

// A wire on the way down, in the limit.
struct Moment {
  Kernel K;
  std::vector<double> mean = {};  // E x_t in any one channel; empty: 0
  std::vector<double> own = {};   // how much of the token's own embedding is in x_t; empty: none. Of logits: the mean logit of the own id
  Index width = 0;                // channels; the walk fills it in

  [[nodiscard]] double mean_at(Index t) const { return mean.empty() ? 0 : mean[static_cast<std::size_t>(t)]; }
  [[nodiscard]] double own_at(Index t) const { return own.empty() ? 0 : own[static_cast<std::size_t>(t)]; }
};

// How the gradient behind a head is correlated with the head's input. Products with a matrix keep it, norms absorb it.
struct TiedHead {
  std::vector<double> radial;  // E<d_t, x_t>: what the gradient has along the token itself
  Matrix shared;               // (t, s): E<d_t, x_s> from the embeddings that x shares with a tied head; of no size: none

  [[nodiscard]] bool is_shared() const { return shared.size() > 0; }
  [[nodiscard]] double shared_at(Index t, Index s) const { return is_shared() ? shared(t, s) : 0; }
};

// A wire on the way up, in the limit.
struct Adjoint {
  Kernel G;
  std::shared_ptr<const TiedHead> tied = nullptr;
};

// All that a wire carries: the limit, how one draw differs from it, and a note from the op that made the wire to those that read it.
struct DownWire : Moment {
  Fluctuation f;
  std::any note;

  DownWire() = default;
  DownWire(Moment limit, Fluctuation fluctuation = {}) : Moment(std::move(limit)), f(std::move(fluctuation)) {}

  // variance over draws of the logarithm of the mean square
  [[nodiscard]] double level() const { return f.drift + (width > 0 ? f.sampling * K.sameness() / static_cast<double>(width) : 0); }
  // noise without the sampling of the wire's own channels, which a mean over them averages out
  [[nodiscard]] double shared_noise() const { return width > 0 ? std::max(0.0, f.noise - 1 / static_cast<double>(width)) : 0; }
  // the same for a single pair of tokens, which jitter adds to
  [[nodiscard]] double pair_noise() const { return shared_noise() + f.mean_jitter(); }
  // variance of a token's mean square by the draw of the wire's own channels
  [[nodiscard]] double own_sampling() const { return width > 0 ? f.sampling / static_cast<double>(width) : 0; }
};

// The same on the way up; the note goes to the op that made the wire.
struct UpWire : Adjoint {
  Response r;
  std::any note;

  UpWire() = default;
  UpWire(Adjoint limit, Response response = {}) : Adjoint(std::move(limit)), r(response) {}
  explicit UpWire(Kernel gradient) : Adjoint{std::move(gradient)} {}
};

// The note, if it is of this kind; null: none.
template <class T, class Wire>
const T* note_of(const Wire& wire) {
  return std::any_cast<T>(&wire.note);
}

// For rules that draw: a stream of the node's own, and how many floating-point operations it may spend.
struct Draws {
  std::uint64_t place = 0;
  double effort = 1e10;
  Index single = -1;  // the kernels are those of this one draw of a model, and so is what the rule yields; -1: the mean over draws

  [[nodiscard]] bool of_one() const { return single >= 0; }
};

struct PushDoor {
  const Batch& batch;
  std::span<const DownWire* const> x;
  std::span<const Law> theta;
  Draws draws = {};
};

struct PullDoor {
  const Batch& batch;
  std::span<const DownWire* const> x;
  std::span<const Law> theta;
  const DownWire& y;
  const UpWire& dy;
  Draws draws = {};
};

struct Pulled {
  std::vector<UpWire> dx;
  std::vector<double> dtheta;       // E ||dtheta||^2 of each parameter
  std::vector<Spread> spread = {};  // of each dx: what the op adds to how single draws differ; empty: nothing
  std::vector<double> levels = {};  // relative variance of dtheta over draws, beyond what the wires' spreads say; empty: 0
};

}  // namespace stepzero
