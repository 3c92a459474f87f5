#pragma once
// Inner products and combinations of two rows, summed in one order on every SIMD level: the building blocks of
// decompositions whose bits are promised (weights/structured_draw.cpp).
#include <cstddef>

namespace stepzero::kernels {

// Sixteen partial sums, element i in sum i mod 16, then added up pairwise.
float dot(const float* a, const float* b, std::size_t n);
double dot(const double* a, const double* b, std::size_t n);

// b -= f a
void subtract(const double* a, double f, double* b, std::size_t n);

// to -= f a + g b
void subtract_two(double f, const double* a, double g, const double* b, double* to, std::size_t n);

}  // namespace stepzero::kernels
