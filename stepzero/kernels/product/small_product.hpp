#pragma once
// Products of matrices that fit into the first cache: no threads, no choice of a method, about a microsecond.
#include "stepzero/kernels/product/gemm.hpp"

namespace stepzero::kernels {

inline constexpr Index small_inner = 256;
inline bool is_small(Index rows, Index columns, Index inner) { return inner <= small_inner && inner * columns <= 4096 && rows <= 64; }

// C = alpha op(A) op(B) + beta C for what is_small(), and for any number of rows.
void small_product(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c);

}  // namespace stepzero::kernels
