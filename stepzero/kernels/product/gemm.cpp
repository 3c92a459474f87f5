#include "stepzero/kernels/product/gemm.hpp"

#include <algorithm>
#include <chrono>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/product/libraries.hpp"
#include "stepzero/kernels/product/packed_product.hpp"
#include "stepzero/kernels/product/small_product.hpp"
#include "stepzero/kernels/product/tile_product.hpp"

namespace stepzero {

namespace {

template <class S>
bool trivial(View<const S> a, View<S> c, Trans ta, S beta) {
  const Index inner = ta == Trans::no ? a.cols : a.rows;
  if (c.rows == 0 || c.cols == 0) return true;
  if (inner != 0) return false;
  for (Index i = 0; i < c.rows; ++i) {
    for (Index j = 0; j < c.cols; ++j) c(i, j) = beta == S(0) ? S(0) : beta * c(i, j);
  }
  return true;
}

std::vector<GemmRecord>* log_of_products = nullptr;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

CBLAS_TRANSPOSE cblas_trans(Trans t) { return t == Trans::no ? CblasNoTrans : CblasTrans; }
char dnnl_trans(Trans t) { return t == Trans::no ? 'N' : 'T'; }

void multiply(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  const Index inner = ta == Trans::no ? a.cols : a.rows;
  const dnnl_status_t status = kernels::dnnl().sgemm(dnnl_trans(ta), dnnl_trans(tb), c.rows, c.cols, inner, alpha, a.data, a.stride, b.data,
                                                     b.stride, beta, c.data, c.stride);
  STEPZERO_CHECK(status == dnnl_success);
}

// The longer side in pieces, each in one thread. How many depends on the shape alone, and so do the bits: oneDNN by itself splits the
// inner dimension of some products over the threads. It also takes up to twice as long for a few rows times a transposed matrix.
void multiply_in_pieces(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  constexpr Index most = 768, unit = 16, little = Index{1} << 20;
  const bool by_rows = c.rows > c.cols;
  const Index side = by_rows ? c.rows : c.cols, inner = ta == Trans::no ? a.cols : a.rows;
  const Index pieces = c.size() * inner < little ? 1 : 2 * ((side + 2 * most - 1) / (2 * most));  // even: most machines have as many cores
  const Index piece = ((side + pieces - 1) / pieces + unit - 1) / unit * unit;
  parallel_ranges(side, piece, [&](Index begin, Index end) {
    const Alone alone;
    const Index n = end - begin;
    if (by_rows) {
      multiply(ta, tb, alpha, ta == Trans::no ? a.slice(begin, n) : a.columns(begin, n), b, beta, c.slice(begin, n));
    } else {
      multiply(ta, tb, alpha, a, tb == Trans::no ? b.columns(begin, n) : b.slice(begin, n), beta, c.columns(begin, n));
    }
  });
}

using Method = void (*)(Trans, Trans, float, View<const float>, View<const float>, float, View<float>);

// By the shape alone. Tiles are for what is long enough along all three sides. With vectors of 512 bits oneDNN is near the roof but for
// small Gram matrices, and large gradients of weights are best split by itself, over their entries; but the largest go in pieces, of the
// same bits, between which a computation can end. With shorter ones kernels of our own
// take a fifth less time at 256 tokens, and half as much for the gradients of a long sequence's keys and values (docs/performance.md).
Method method_for(Trans ta, Trans tb, Index rows, Index cols, Index inner) {
  static const bool wide = (kernels::dnnl().effective_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
  const bool worth_packing = std::min(rows, cols) >= 96 && rows * cols * inner > (Index{1} << 22);
  if (kernels::has_tiles() && std::min(rows, cols) >= 64 && inner >= 192) return kernels::tile_product;
  if (wide && tb == Trans::yes && worth_packing && std::max(rows, cols) <= 512) return kernels::packed_product;
  const bool split_by_itself = ta == Trans::yes && rows * cols >= (Index{1} << 16) && rows * cols < (Index{1} << 24);
  if (wide) return split_by_itself ? multiply : multiply_in_pieces;
  if (ta == Trans::yes && rows >= 384 && kernels::is_small(1, cols, inner)) return kernels::small_product;
  return worth_packing ? kernels::packed_product : multiply_in_pieces;
}

}  // namespace

void set_gemm_log(std::vector<GemmRecord>* log) { log_of_products = log; }

template <>
void gemm(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  if (trivial(a, c, ta, beta)) return;
  const Index inner = ta == Trans::no ? a.cols : a.rows;
  if (kernels::is_small(c.rows, c.cols, inner)) return kernels::small_product(ta, tb, alpha, a, b, beta, c);
  const bool logged = log_of_products != nullptr && !in_parallel();
  const double start = logged ? now() : 0;
  method_for(ta, tb, c.rows, c.cols, inner)(ta, tb, alpha, a, b, beta, c);
  if (logged) log_of_products->push_back({ta, tb, c.rows, c.cols, inner, now() - start});
}

template <>
void gemm(Trans ta, Trans tb, double alpha, View<const double> a, View<const double> b, double beta, View<double> c) {
  if (trivial(a, c, ta, beta)) return;
  const Index inner = ta == Trans::no ? a.cols : a.rows;
  const auto n = [](Index i) { return static_cast<blasint>(i); };
  kernels::openblas().dgemm(CblasRowMajor, cblas_trans(ta), cblas_trans(tb), n(c.rows), n(c.cols), n(inner), alpha, a.data, n(a.stride),
                            b.data, n(b.stride), beta, c.data, n(c.stride));
}

void gram_product(View<const double> a, View<double> c) {
  const auto n = [](Index i) { return static_cast<blasint>(i); };
  kernels::openblas().dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, n(c.rows), n(a.cols), 1.0, a.data, n(a.stride), 0.0, c.data,
                            n(c.stride));
}

}  // namespace stepzero
