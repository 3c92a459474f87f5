// gemm.cpp of the portable build: no libraries. Four rows of C and a strip of its columns at a time stay in registers; the compiler makes
// vectors of the strip. What lies across its lines is first copied to lie along them.
#include <algorithm>

#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/product/small_product.hpp"

namespace stepzero {

namespace {

constexpr Index strip = 16, tall = 4, deep = 256;

// C += alpha A B over `inner`, for `rows` rows of C and one strip: a(r, k) = a[r * next_row + k * next_inner], b packed.
template <Index rows, class S>
void add_strip(const S* a, Index next_row, Index next_inner, Index inner, const S* b, S alpha, View<S> c) {
  S sum[rows][strip] = {};
  for (Index k = 0; k < inner; ++k) {
    for (Index r = 0; r < rows; ++r) {
      const S x = a[r * next_row + k * next_inner];
      for (Index j = 0; j < strip; ++j) sum[r][j] += x * b[k * strip + j];
    }
  }
  for (Index r = 0; r < rows; ++r) {
    for (Index j = 0; j < c.cols; ++j) c(r, j) += alpha * sum[r][j];
  }
}

template <class S>
void scale(View<S> c, S beta) {
  for (Index i = 0; i < c.rows; ++i) {
    for (Index j = 0; j < c.cols; ++j) c(i, j) = beta == S(0) ? S(0) : beta * c(i, j);
  }
}

template <class S>
void multiply(Trans ta, Trans tb, S alpha, View<const S> a, View<const S> b, S beta, View<S> c) {
  if (beta != S(1)) scale(c, beta);
  const Index inner = ta == Trans::no ? a.cols : a.rows;
  const Index next_row = ta == Trans::no ? a.stride : 1, next_inner = ta == Trans::no ? 1 : a.stride;
  S packed[deep * strip];
  for (Index k0 = 0; k0 < inner; k0 += deep) {
    const Index depth = std::min(deep, inner - k0);
    for (Index j0 = 0; j0 < c.cols; j0 += strip) {
      const Index columns = std::min(strip, c.cols - j0);
      for (Index k = 0; k < depth; ++k) {
        for (Index j = 0; j < strip; ++j) {
          packed[k * strip + j] = j >= columns ? S(0) : tb == Trans::no ? b(k0 + k, j0 + j) : b(j0 + j, k0 + k);
        }
      }
      Index i = 0;
      const auto from = [&] { return a.data + i * next_row + k0 * next_inner; };
      const auto to = [&](Index rows) { return c.slice(i, rows).columns(j0, columns); };
      for (; i + tall <= c.rows; i += tall) add_strip<tall>(from(), next_row, next_inner, depth, packed, alpha, to(tall));
      for (; i < c.rows; ++i) add_strip<1>(from(), next_row, next_inner, depth, packed, alpha, to(1));
    }
  }
}

}  // namespace

void set_gemm_log(std::vector<GemmRecord>*) {}

template <>
void gemm(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  const Index inner = ta == Trans::no ? a.cols : a.rows;
  const bool small = inner > 0 && c.rows > 0 && c.cols > 0 && kernels::is_small(c.rows, c.cols, inner);
  (small ? kernels::small_product : multiply<float>)(ta, tb, alpha, a, b, beta, c);
}

template <>
void gemm(Trans ta, Trans tb, double alpha, View<const double> a, View<const double> b, double beta, View<double> c) {
  multiply(ta, tb, alpha, a, b, beta, c);
}

void gram_product(View<const double> a, View<double> c) {
  constexpr Index together = 64;  // rows, up to the diagonal's block
  for (Index i = 0; i < c.rows; i += together) {
    const Index rows = std::min(together, c.rows - i);
    Tensor<double> block(rows, i + rows);
    multiply<double>(Trans::no, Trans::yes, 1, a.slice(i, rows), a.slice(0, i + rows), 0, block.view());
    for (Index r = 0; r < rows; ++r) std::copy_n(block.view().row(r), i + r + 1, c.row(i + r));
  }
}

}  // namespace stepzero
