#pragma once
// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//
// What       a keyed bijection of 128-bit counters whose outputs pass every known test of randomness: there is no
//            state, so the n-th number needs none of those before it.
// Round      (hi0, lo0) = M0 * c0,  (hi1, lo1) = M1 * c2                   (1)
//            c0' = hi1 ^ c1 ^ k0,   c1' = lo1                              (2)
//            c2' = hi0 ^ c3 ^ k1,   c3' = lo0                              (3)
// Key        k0 += W0, k1 += W1 after each of the ten rounds               (4)
#include <array>
#include <cstdint>

namespace stepzero::philox {

inline constexpr std::uint32_t kM0 = 0xD2511F53;
inline constexpr std::uint32_t kM1 = 0xCD9E8D57;
inline constexpr std::uint32_t kW0 = 0x9E3779B9;  // the golden ratio
inline constexpr std::uint32_t kW1 = 0xBB67AE85;  // sqrt(3) - 1
inline constexpr int kRounds = 10;

using Counter = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;

}  // namespace stepzero::philox

namespace stepzero {

constexpr philox::Counter philox4x32_10(philox::Counter counter, philox::Key key) {
  auto [c0, c1, c2, c3] = counter;
  auto [k0, k1] = key;
  for (int round = 0; round < philox::kRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{philox::kM0} * c0;  // (1)
    const std::uint64_t product1 = std::uint64_t{philox::kM1} * c2;  // (1)
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;       // (2)
    c1 = static_cast<std::uint32_t>(product1);                       // (2)
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;       // (3)
    c3 = static_cast<std::uint32_t>(product0);                       // (3)
    k0 += philox::kW0;                                               // (4)
    k1 += philox::kW1;                                               // (4)
  }
  return {c0, c1, c2, c3};
}

}  // namespace stepzero
