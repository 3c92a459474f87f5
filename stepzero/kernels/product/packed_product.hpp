#pragma once
// C = alpha op(A) op(B) + beta C for floats, in all threads. Every entry of C is summed in an order that depends on the inner
// dimension alone: cutting C into pieces leaves the bits as they are, and so does the number of threads.
#include "stepzero/kernels/product/gemm.hpp"

namespace stepzero::kernels {

void packed_product(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c);

}  // namespace stepzero::kernels
