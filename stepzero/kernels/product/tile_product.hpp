#pragma once
// C = alpha op(A) op(B) + beta C for floats, on a processor's tiles of bfloat16 (AMX), no less exact than by floats:
//
//     x = x1 + x2 + x3, each a bfloat16        exact: |x2| <= 2^-8 |x|, |x3| <= 2^-17 |x|                       (1)
//     x y = x1 y1 + x1 y2 + x2 y1 + x1 y3 + x2 y2 + x3 y1 + rest,              |rest| <= 2^-24 |x y|            (2)
//
// A product of two bfloat16 is a float, and the six of them are summed as floats. A tile takes 16 times as many products as the
// vectors do in the same time: 2.7 times the speed is left. Tiles take numbers below 2^-126 for 0, hence
//
//     panels of 16 rows of op(A) or columns of op(B) whose largest number is outside of 2^-30 .. 2^31 are multiplied by a
//     power of 2 that brings it nearer to 1, up to 2^50                                                         (3)
//
// which leaves floats their range. A number may lose bits where its panel holds one that is 2^40 times as large. What is not finite
// makes NaN.
//
// Every entry of C is summed in an order that depends on the inner dimension alone, and so do its bits where (3) loses none. X X' need
// not be symmetric to the last bit. No side may be 0.
#include "stepzero/kernels/product/gemm.hpp"

namespace stepzero::kernels {

// Whether processor and system have them. ONEDNN_MAX_CPU_ISA=AVX512_CORE in the environment says no.
bool has_tiles();

void tile_product(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c);

}  // namespace stepzero::kernels
