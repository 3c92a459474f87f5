#pragma once
// A product by itself: the same shape on each library, with nothing else of the pass.
#include <algorithm>
#include <tuple>
#include <vector>

#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>

#include "bench/roof.hpp"
#include "stepzero/kernels/product/gemm.hpp"

namespace stepzero::bench {

inline double flops(const GemmRecord& r) {
  return 2.0 * static_cast<double>(r.rows) * static_cast<double>(r.cols) * static_cast<double>(r.inner);
}

using Shape = std::tuple<Trans, Trans, Index, Index, Index>;
inline Shape shape_of(const GemmRecord& r) { return {r.ta, r.tb, r.rows, r.cols, r.inner}; }

inline double median(std::vector<double> list) {
  std::ranges::sort(list);
  return list[list.size() / 2];
}

// One shape: how long it took in each pass, and alone on each library.
struct Product {
  int count = 0;  // in one pass
  std::vector<double> inside = {}, dnnl = {}, openblas = {};

  [[nodiscard]] double alone() const { return std::min(median(dnnl), median(openblas)); }
};

// Memory that the loose products share.
struct Operands {
  std::vector<float> a, b, c;
};

inline void run_alone(const Shape& shape, Product& p, Operands& memory) {
  const auto [ta, tb, m, n, k] = shape;
  const auto lda = ta == Trans::no ? k : m;
  const auto ldb = tb == Trans::no ? n : k;
  const auto room = [](std::vector<float>& list, Index size) {
    if (list.size() < static_cast<std::size_t>(size)) list.assign(static_cast<std::size_t>(size), 0.5F);
  };
  room(memory.a, m * k);
  room(memory.b, k * n);
  room(memory.c, m * n);
  double start = now();
  dnnl_sgemm(ta == Trans::no ? 'N' : 'T', tb == Trans::no ? 'N' : 'T', m, n, k, 1, memory.a.data(), lda, memory.b.data(), ldb, 0,
             memory.c.data(), n);
  p.dnnl.push_back(now() - start);
  start = now();
  cblas_sgemm(CblasRowMajor, ta == Trans::no ? CblasNoTrans : CblasTrans, tb == Trans::no ? CblasNoTrans : CblasTrans, static_cast<int>(m),
              static_cast<int>(n), static_cast<int>(k), 1, memory.a.data(), static_cast<int>(lda), memory.b.data(), static_cast<int>(ldb),
              0, memory.c.data(), static_cast<int>(n));
  p.openblas.push_back(now() - start);
}

}  // namespace stepzero::bench
