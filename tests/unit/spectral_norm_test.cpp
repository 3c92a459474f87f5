#include "stepzero/kernels/spectral_norm.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/decompose.hpp"
#include "stepzero/kernels/fill.hpp"

namespace stepzero {
namespace {

template <class S>
Tensor<S> draw(Index rows, Index cols, const char* name, double std = 1) {
  Tensor<S> a(rows, cols);
  fill(Distribution::normal(std), make_stream(1, name), 0, std::span<S>(a.data(), static_cast<std::size_t>(a.size())));
  return a;
}

// Against all singular values of the square matrix it fills.
TEST(SpectralNorm, IsTheLargestSingularValue) {
  for (const auto& [rows, cols] : {std::pair<Index, Index>{1, 7}, {7, 1}, {40, 40}, {30, 130}, {130, 30}, {200, 200}}) {
    for (const bool signs : {false, true}) {
      Tensor<float> a = draw<float>(rows, cols, "a", 1e-3);
      for (Index i = 0; signs && i < a.size(); ++i) a.data()[i] = a.data()[i] > 0 ? 1.0F : -1.0F;
      const Index n = std::max(rows, cols);
      Tensor<float> square(n, n);
      std::fill_n(square.data(), square.size(), 0.0F);
      for (Index r = 0; r < rows; ++r) std::copy_n(a.view().row(r), cols, square.view().row(r));
      const double want = static_cast<double>(kernels::svd(std::as_const(square).view()).s[0]);
      EXPECT_NEAR(spectral_norm(std::as_const(a).view()) / want, 1, 2e-5) << rows << " x " << cols;  // svd: float
    }
  }
}

// Known without another program: u s v' with a gap of one part in a thousand, and a matrix of rank one.
TEST(SpectralNorm, KnownExactly) {
  const Index n = 300, m = 500;
  Tensor<double> u = draw<double>(20, n, "u"), v = draw<double>(20, m, "v");
  kernels::orthonormalise_rows(u.view());
  kernels::orthonormalise_rows(v.view());
  Tensor<double> a(n, m);
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < m; ++j) {
      a(i, j) = 0;
      for (Index k = 0; k < 20; ++k) a(i, j) += (k == 0 ? 1.001 : 1 - 0.01 * static_cast<double>(k - 1)) * u(k, i) * v(k, j);
    }
  }
  EXPECT_NEAR(spectral_norm(std::as_const(a).view()), 1.001, 1e-9);
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < m; ++j) a(i, j) = 3 * u(0, i) * v(0, j);
  }
  EXPECT_NEAR(spectral_norm(std::as_const(a).view()), 3, 1e-12);
}

TEST(SpectralNorm, ZeroBrokenAndThreads) {
  Tensor<float> a = draw<float>(300, 700, "a");
  const int before = threads();
  set_threads(1);
  const double one = spectral_norm(std::as_const(a).view());
  set_threads(3);
  EXPECT_EQ(one, spectral_norm(std::as_const(a).view()));
  set_threads(before);
  a(3, 5) = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(spectral_norm(std::as_const(a).view())));
  std::fill_n(a.data(), a.size(), 0.0F);
  EXPECT_EQ(spectral_norm(std::as_const(a).view()), 0);
}

}  // namespace
}  // namespace stepzero
