#pragma once
// oneDNN and OpenBLAS, opened by whoever first multiplies: they take longer to start than most verbs run, and OpenBLAS never starts
// where it is given too little memory to reserve.
#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>

namespace stepzero::kernels {

struct Dnnl {
  decltype(&dnnl_sgemm) sgemm;
  decltype(&dnnl_get_effective_cpu_isa) effective_isa;
};
const Dnnl& dnnl();

struct OpenBlas {
  decltype(&cblas_dgemm) dgemm;
  decltype(&cblas_dsyrk) dsyrk;
  // LAPACK's, of which its headers say nothing
  void (*dsyevd)(const char* job, const char* triangle, const blasint* n, double* a, const blasint* stride, double* values, double* work,
                 const blasint* work_size, blasint* whole_work, const blasint* whole_size, blasint* info);
};
const OpenBlas& openblas();

}  // namespace stepzero::kernels
