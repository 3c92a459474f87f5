#pragma once
// The clock, and what the machine could do at most.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "stepzero/core/parallel.hpp"

namespace stepzero::bench {

inline double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Ten independent chains of fused multiply-adds in vectors V, as many steps.
template <class V>
[[gnu::always_inline]] inline double fma_chains(Index steps) {
  V x0{}, x1{}, x2{}, x3{}, x4{}, x5{}, x6{}, x7{}, x8{}, x9{};
  const V a = V{} + 0.999F;
  const V b = V{} + 1e-3F;
  for (Index s = 0; s < steps; ++s) {
    asm volatile(
        "vfmadd213ps %11, %10, %0\n vfmadd213ps %11, %10, %1\n vfmadd213ps %11, %10, %2\n vfmadd213ps %11, %10, %3\n"
        "vfmadd213ps %11, %10, %4\n vfmadd213ps %11, %10, %5\n vfmadd213ps %11, %10, %6\n vfmadd213ps %11, %10, %7\n"
        "vfmadd213ps %11, %10, %8\n vfmadd213ps %11, %10, %9\n"
        : "+v"(x0), "+v"(x1), "+v"(x2), "+v"(x3), "+v"(x4), "+v"(x5), "+v"(x6), "+v"(x7), "+v"(x8), "+v"(x9)
        : "v"(a), "v"(b));
  }
  const V sum = x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7 + x8 + x9;
  return static_cast<double>(sum[0]);
}
__attribute__((target("avx512f"))) inline double fma_chains_512(Index steps) {
  using V = float __attribute__((vector_size(64)));
  return fma_chains<V>(steps);
}
__attribute__((target("avx2,fma"))) inline double fma_chains_256(Index steps) {
  using V = float __attribute__((vector_size(32)));
  return fma_chains<V>(steps);
}

// Fused multiply-adds the cores can do in their widest vectors, flop/s.
inline double fma_peak() {
  const bool wide = __builtin_cpu_supports("avx512f");
  if (!wide && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return 0;
  constexpr Index steps = 20'000'000;
  double best = 0;
  volatile double sink = 0;
  for (int i = 0; i < 3; ++i) {
    const double start = now();
    parallel_for(threads(), [&](Index) { sink = wide ? fma_chains_512(steps) : fma_chains_256(steps); });
    best = std::max(best, threads() * 2.0 * (wide ? 16 : 8) * 10 * static_cast<double>(steps) / (now() - start));
  }
  (void)sink;
  return best;
}

}  // namespace stepzero::bench
