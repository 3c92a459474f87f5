#include "stepzero/kernels/gemm.hpp"

#include <algorithm>
#include <chrono>

#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>

#include "stepzero/core/parallel.hpp"

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

// oneDNN splits the inner dimension of some small products over the threads, and the bits then depend on how many there are.
bool small(View<float> c, Index inner) { return c.rows < 8 || c.size() * inner < (Index{1} << 20); }

CBLAS_TRANSPOSE cblas_trans(Trans t) { return t == Trans::no ? CblasNoTrans : CblasTrans; }
char dnnl_trans(Trans t) { return t == Trans::no ? 'N' : 'T'; }

void multiply(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  const Index inner = ta == Trans::no ? a.cols : a.rows;
  const dnnl_status_t status =
      dnnl_sgemm(dnnl_trans(ta), dnnl_trans(tb), c.rows, c.cols, inner, alpha, a.data, a.stride, b.data, b.stride, beta, c.data, c.stride);
  STEPZERO_CHECK(status == dnnl_success);
}

// Columns in pieces of fixed size, each in one thread.
void multiply_in_pieces(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  constexpr Index piece = 512;
  parallel_ranges(c.cols, piece, [&](Index begin, Index end) {
    const Alone alone;
    const Index n = end - begin;
    multiply(ta, tb, alpha, a, tb == Trans::no ? b.columns(begin, n) : b.slice(begin, n), beta, c.columns(begin, n));
  });
}

}  // namespace

void set_gemm_log(std::vector<GemmRecord>* log) { log_of_products = log; }

template <>
void gemm(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  if (trivial(a, c, ta, beta)) return;
  const Index inner = ta == Trans::no ? a.cols : a.rows;
  if (small(c, inner)) return multiply_in_pieces(ta, tb, alpha, a, b, beta, c);
  const bool logged = log_of_products != nullptr && !in_parallel();
  const double start = logged ? now() : 0;
  multiply(ta, tb, alpha, a, b, beta, c);
  if (logged) log_of_products->push_back({ta, tb, c.rows, c.cols, inner, now() - start});
}

template <>
void gemm(Trans ta, Trans tb, double alpha, View<const double> a, View<const double> b, double beta, View<double> c) {
  if (trivial(a, c, ta, beta)) return;
  const Index inner = ta == Trans::no ? a.cols : a.rows;
  const auto n = [](Index i) { return static_cast<blasint>(i); };
  cblas_dgemm(CblasRowMajor, cblas_trans(ta), cblas_trans(tb), n(c.rows), n(c.cols), n(inner), alpha, a.data, n(a.stride), b.data,
              n(b.stride), beta, c.data, n(c.stride));
}

void gram_product(View<const double> a, View<double> c) {
  const auto n = [](Index i) { return static_cast<blasint>(i); };
  cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, n(c.rows), n(a.cols), 1.0, a.data, n(a.stride), 0.0, c.data, n(c.stride));
}

}  // namespace stepzero
