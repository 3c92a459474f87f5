#pragma once
// Channels drawn from their kernel, for rules that have no closed form.
#include <cstdint>

#include "stepzero/core/kernel.hpp"

namespace stepzero {

class Channels {
 public:
  // `place` is the node's, as for all that draws.
  Channels(const Kernel& K, std::uint64_t place);

  // A block of them, a row each. Their own covariance is the kernel to rounding, which takes most of the noise away.
  [[nodiscard]] Tensor<float> block(Index number) const;

 private:
  Tensor<float> factor_;  // (rank, rows of the wire)
  std::uint64_t place_;
};

}  // namespace stepzero
