#pragma once
// What an optimizer's first update of one parameter does, by itself, to the op's output.
//
// For y = x W with x (T, n_in), d = dLoss/dy (T, n_out) and the gradient g = x' d, an update W - rate U changes y by - rate x U,
//
//     x U = A d + rest,    R = E <rest_t, rest_s> / n_out,    loss decreases by rate <A, G> to first order          (1)
//
// SGD     U = g            A = n_in K,  R = (K <K, G> + K G K) n_in^2 noise / n_out: the Gram matrix of one draw, of noise 1/nu (2) sign U
// = g / (|g| + eps): Adam's first step, and with eps = 0 Lion's. x ~ N(0, K), d ~ N(0, G / n_out):
//             A = n_in c1 sqrt(n_out) M,   M = E x x' / sqrt(x' G x)                                     (3)
//             R = c1^2 n_in^2 (F + noise (K - F) - M G M) + n_in (c2 - c1^2) K,   F = E K d d' K / (d' K d)             (4)
//             c1 = E s z^2 / (|z| + q) / E s,  c2 = E z^2 / (|z| + q)^2,  q = eps / s,  s^2 = x' G x / n_out    (5)
// polar   U = polar(g), Muon: with L L' = n_in K and L' G L = V s^2 V',
//             A = L V s^-1 V' L',  A G A = n_in K at full rank;  Newton-Schulz: p(s) / s in the place of 1 / s              (6)
//         In one draw L and G differ from their means, and n_in or n_out may be less than the tokens: a few draws tell R and <A, G>.
// Derived in docs/derivations/move.md
#include <cstdint>

#include "stepzero/ops/move/square.hpp"

namespace stepzero {

// One parameter's update.
struct Update {
  enum class Rule : std::uint8_t { none, sgd, sign, polar };
  Rule rule = Rule::none;
  double rate = 0;
  double decay = 0;       // times the rate, of the weight itself
  double eps = 0;         // sign: in units of the gradient before it was clipped
  double times = 1;       // sgd: clipping and momentum; polar: its scale
  int newton_schulz = 0;  // polar: steps; 0: exact
  int group = 0;          // of parameters that can be left out together

  [[nodiscard]] bool moves() const { return rule != Rule::none && rate != 0; }
};

// Which step of those that are looked at: all rates times `times`, but for a group that is left out.
struct Factor {
  double times = 1;
  int without = -1;
  std::size_t place = 0;  // in a list of steps that are looked at; the first is the one that is told of in full

  Factor(double all = 1, int left_out = -1, std::size_t in_list = 0)
      : times(all), without(left_out), place(in_list) {}  // NOLINT: a number is one
  [[nodiscard]] bool told() const { return place == 0; }
  [[nodiscard]] double of(const Update& u) const { return u.group == without ? 0 : times * u.rate; }
};

// (3), (4) with c1 = c2 = 1 and no factors: M and F of a pair of kernels.
struct SignMeans {
  Square M, F;
};
SignMeans sign_means(const Square& K, const Square& G);

// (5)
struct SignNumbers {
  double first = 0.7978845608028654, second = 1;  // c1, c2
};
SignNumbers sign_numbers(double eps_over_deviation);
SignNumbers numbers_at(double eps_over_deviation);  // between points of a table

struct Direct {
  Square A, R;
  double norm2 = 0;     // ||U||^2
  double decrease = 0;  // <A, G>
  SignNumbers numbers = {};
  [[nodiscard]] Square size(const Square& G, double n_out) const;  // E <(x U)_t, (x U)_s> / n_out
};

// What the law knows of the matrix.
struct MatrixUse {
  Square K, G;   // of the input, and of the gradient of the output
  Square whole;  // of the gradient of all outputs of the tensor, of which G may be a part; empty: G
  double n_in = 1, n_out = 1, whole_out = 1;
  double noise = 0;                // of the input's Gram matrix: as that of 1 / noise channels, at least 1 / n_in
  double noise_up = 0;             // of that of the output's gradient
  std::vector<Square> grams = {};  // of draws of the input, where they are known: SGD feels their square
  double lean = 1;                 // sign: E |x.d| of the channels as they are, over that of normal ones
};

Direct direct(const Update& update, const MatrixUse& use);

// A of (6), for kernels as they are.
Square polar_response(const Update& update, const Square& K, const Square& G, double n_in, double n_out);

// What Newton-Schulz makes of a singular value, in units of the norm.
double newton_schulz_value(double s, int steps);

}  // namespace stepzero
