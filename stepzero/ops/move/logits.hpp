#pragma once
// The head and the loss in a step. Each row v of the head has a gradient delta_v = D_z[:, v] of its own, and few of them are large (those
// of targets), so logits are drawn: the ids that occur, and some rows for all others, with weights.
//
//     z ~ N(own, w K_y),  D_z = (p - target) / N                                                                    (1)
//     dz = stretch z - w response D_z + response diag(a) z - rate (I + stretch) y U + left (sqrt(w) Z_1 - rate Z U)                    (2)
//     U = update(y' D_z), y ~ N(0, K_y) a channel at a time, Z channels of N(0, 1); left left' = size - stretch K_y stretch'            (3)
//     E y U: SGD n K_y delta;  sign n c1 K_y delta / sqrt(delta' K_y delta + e_v),  e_v of other uses of the row                        (4)
//     a_t = E <dy_t, y_t> / (n K_tt): what a norm in front of the head takes out of the gradient                     (5)
// The loss after the step is that of z + dz, on the same draws as before it.
// Derived in docs/derivations/move.md
#include <cstdint>
#include <map>

#include "stepzero/ops/move/chain.hpp"

namespace stepzero {

struct LogitsDoor {
  const Batch& batch;
  const DownWire& y;  // what the head reads
  const DownWire& z;  // the logits, before scale and cap
  Law law;            // of the head's entries
  Update weight, bias;
  Index vocab = 0;
  std::vector<AnyOp> after = {};                // scale, cap
  std::map<std::int32_t, double> lookups = {};  // tied: of each id that is looked up, the square of its row's gradient by that, over n
  double noise = 0;                             // of the Gram matrix of what the head reads
  std::uint64_t place = 0;
  double effort = 1;
};

struct LogitsMover {
  // The changes of the logits, of what comes after them, and of the loss.
  std::function<std::vector<WireChange>(const WireChange& y, const Factor&)> run;
  ParameterMove weight, bias;
  double loss = 0;                             // before, of these draws
  std::map<std::int32_t, double> row_squares;  // tied: of each id that is looked up, n times delta' K delta
  Matrix pulls;                                // tied: (t, u) E delta_u of the id of token t
};

LogitsMover move_logits(const LogitsDoor& p);

}  // namespace stepzero
