#pragma once
// Sums that several waves carry side by side, each with its cosine and its sine: the inner loops of ops/attention_sight.cpp.
#include <array>
#include <cstddef>
#include <cstdint>

namespace stepzero::kernels {

constexpr std::size_t waves_together = 8;
using Lanes = std::array<double, waves_together>;

// to[l] += factor b[l] turns[l], cosines and sines alike
void add_turned(const double* b, double factor, const Lanes* cos, const Lanes* sin, Lanes* to_cos, Lanes* to_sin, std::size_t n);

// to[l + 1] = to[l] + weights[l] from[l]
void sum_along(const double* weights, const Lanes* from_cos, const Lanes* from_sin, Lanes* to_cos, Lanes* to_sin, std::size_t n);

// out[s] += the sum over the waves of cos[-s] (c[ends[s]] - c[begins[s]]) - sin[-s] (the same of the sines)
void add_real_parts(const Lanes* cos, const Lanes* sin, const Lanes* c, const Lanes* s, const std::int64_t* begins,
                    const std::int64_t* ends, double* out, std::size_t n);

}  // namespace stepzero::kernels
