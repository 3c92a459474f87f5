#pragma once
// What a wire carries on the third walk, beside its kernels K and G: the change D = x' - x that a step has made of it.
//
//     response   D_t = - sum_s response_ts d_s + what does not know d,  d = dLoss/dx of the wire                        (1)
//     size       E <D_t, D_s> / n, everything in it                                                                  (2)
//     stretch    D_t = sum_s stretch_ts x_s + what does not know x:  E <D_t, x_s> / n = stretch K                    (3)
#include <memory>

#include "stepzero/ops/move/direct.hpp"

namespace stepzero {

// A matrix in front of a wire, and a bias: what their updates make of a single channel of the wire, given that channel's gradient.
struct MatrixMove {
  MatrixUse use;
  Update weight, bias;
  Direct direct, of_bias;
  Square root;            // L L' = K
  double w = 0;           // n_in E[w^2]
  int tensor = -1;        // of the checkpoint
  std::size_t param = 0;  // which of the node's parameters it is
  double reads = 1;       // K over that of the wire in front: an adapter's matrix reads what its first one makes of it
};

// How single channels of a wire move: for rules that draw them.
struct ChannelMove {
  std::shared_ptr<const MatrixMove> matrix;  // null: none in front
  Square carried;                            // response by what came from before the matrix
  Square left;                               // kernel of what knows neither the channel nor its gradient
  Factor factor = {};
};

struct WireChange {
  Square response, size, stretch;
  Square apart = {};  // size - stretch K stretch', where its maker knows it
  // mean over tokens of the square, by the node's own parameters and by what came in
  double direct = 0, carried = 0;
  std::shared_ptr<ChannelMove> channels = nullptr;
  // of attention: root mean square change of its scores; of the loss: after the step
  double scores = 0, loss = 0;
};

}  // namespace stepzero
