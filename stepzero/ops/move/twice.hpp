#pragma once
// Functions and gates in a step, in closed form. The channels before and after are one normal batch of twice as many tokens, with kernel
//
//     [ K             K (I + E)'          ]
//     [ (I + E) K     (I + E) K (I + E)' + C ],   E the stretch, C the kernel of what knows nothing of the channel           (1)
//
// so the ops' own push and pull say all of what changes: size = K''+ K - X - X' of the output, slopes E J'_t J_s across.          (2)
// What is not normal about it: a channel moves by its gradient, d_u = f'(u) o dh, and meets the same slope. By drawn channels (3) that
// dependence multiplies the diagonal and the rest of that part of C by a number each.
#include <vector>

#include "stepzero/ops/move/chain.hpp"

namespace stepzero {

class Twice {
 public:
  Twice(const Batch& batch, std::vector<ChainNode> nodes, std::span<const DrawnFrom> inputs);

  // Changes of every node; of each input its C and its response.
  [[nodiscard]] std::vector<WireChange> run(std::span<const WireChange* const> dx, std::span<const Square> kernels,
                                            std::span<const Square> responses) const;

  [[nodiscard]] const Square& kernel(std::size_t input) const { return K_[input]; }

 private:
  struct Values {
    std::vector<DownWire> x, y;
  };
  [[nodiscard]] Values down(std::vector<DownWire> x) const;
  [[nodiscard]] std::vector<const DownWire*> inputs_of(const Values& v, const ChainNode& node) const;

  Batch batch_;
  std::vector<ChainNode> nodes_;
  std::vector<Square> K_;  // of the inputs
  Square inverse_;         // of the output's kernel
};

}  // namespace stepzero
