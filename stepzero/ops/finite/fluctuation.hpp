#pragma once
// How one draw of a model differs from the limit of infinite width, to first order in 1/width: what travels beside a Moment and an
// Adjoint. The rules that change it are in this folder, one file an op; an op without one hands it on as it is (carry.hpp).
//
// A cosine rho of two tokens has the variance  noise (1 - rho^2)^2 + swing (1 - rho)^2 + jitter_t (1 - rho^2)^2  over draws.
#include <cmath>
#include <numeric>
#include <vector>

#include "stepzero/core/view.hpp"

namespace stepzero {

// Beside a Moment, on the way down. The defaults are those of independent Gaussian channels.
struct Fluctuation {
  double noise = 0;  // one draw's kernel differs from K like a sample covariance of 1/noise channels
  // How one draw's mean square varies: `drift` is the variance of its logarithm before the wire's own channels are drawn,
  // `sampling` that of x^2 / E[x^2] in one of them (2: Gaussian; 0: a norm fixes it).
  double drift = 0;
  double token_drift = 0;  // the same of a single token, which attention makes larger than that of their mean
  double lone = 0;         // the part of token_drift that is independent of all <x_t, x_s>, s != t: only attention creates it
  double sampling = 2;
  // The variance over draws of the logarithm of the contrast (the variance between tokens), beyond what `noise` says; and the share
  // of the contrast that lies along the token itself, times the width.
  double swing = 0;
  double along = 1;
  // The variance of the cosine of a token with any earlier one of its sequence beyond `noise`, in its units: in every draw heads look
  // elsewhere, and the fewer tokens there are the more it matters. A mean over many pairs does not feel it. Empty: none.
  std::vector<double> jitter = {};
  std::vector<double> fresh = {};  // the part of it that was made since the wire left the stream
  double thins = 0;                // over draws |x|^2 ~ contrast^-thins: attention averages out differences between tokens
  double flat = 1;  // the share of a token's square along (1, ..., 1), times the width: 1 for independent channels, 0 once centred

  // The limit: no draw differs.
  static Fluctuation none() {
    Fluctuation f;
    f.settle();
    f.flat = 0;
    return f;
  }
  // Of one draw nothing varies: what a rule says of other draws is dropped.
  void settle() {
    noise = drift = token_drift = lone = sampling = swing = along = thins = 0;
    jitter.clear();
    fresh.clear();
  }

  // how much smaller a cosine rho is in the mean over draws than that of the mean kernel: rho (1 - (1 - rho^2)/2 shrink)
  [[nodiscard]] double shrink(Index channels) const { return drift + (sampling - along) / static_cast<double>(channels); }
  // E (u_t u_s)^(-1/2) for sizes u that vary on their own: how much larger a cosine is than that of the mean kernel
  [[nodiscard]] double lift() const { return lone != 0 ? std::pow(1 + lone, 0.75) : 1; }
  [[nodiscard]] double jitter_at(Index t) const { return jitter.empty() ? 0 : jitter[static_cast<std::size_t>(t)]; }
  [[nodiscard]] double fresh_at(Index t) const { return fresh.empty() ? 0 : fresh[static_cast<std::size_t>(t)]; }
  [[nodiscard]] double mean_jitter() const {
    return jitter.empty() ? 0 : std::accumulate(jitter.begin(), jitter.end(), 0.0) / static_cast<double>(jitter.size());
  }
  // the jitter of the wire that x was, grown by `factor`
  void take_jitter(const Fluctuation& x, double factor = 1) {
    jitter = x.jitter;
    fresh = x.fresh;
    for (double& j : jitter) j *= factor;
    for (double& j : fresh) j *= factor;
  }
};

// Beside an Adjoint, on the way up: how the gradient goes with the activations of the same draw.
struct Response {
  double along = 1;        // the share of the gradient's square along its own token, times the width: 1 at random, 0 behind a norm
  double twin = 0;         // for y = a o b: the correlation of <da, a> with <db, b>, which both are <dy, y>
  double flat = 1;         // the share along (1, ..., 1), times the width
  double damp = 0;         // the gradient at a token falls as the token grows in one draw: G_tt ~ |x_t|^(-2 damp)
  double stretch = 0;      // in one draw the gradient grows with the contrast, to this power
  double weight_gain = 1;  // E<K, G> over draws, in units of the product of the means: the weight's gradient feels their covariance

  void settle() { damp = stretch = 0; }  // as of a Fluctuation
};

// How single draws of a gradient differ: reported, and read by no rule. The walk owns it; a pull says only what its op adds.
struct Spread {
  double level = 0;  // variance over draws of ln trace(G)
  double noise = 0;  // like that of a Fluctuation
};

}  // namespace stepzero
