#include "stepzero/ops/single_draw.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/kernels/decompose.hpp"
#include "stepzero/ops/drawn_sums.hpp"
#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {

namespace {

Tensor<float> normals(const Draws& draws, const char* name, Index rows, Index columns) {
  return opposite_normals(draws.place, name, draws.single, rows, columns);
}

// (T, columns) with E x x' = degrees I, like `degrees` columns of normals
Tensor<float> many_columns(const Draws& draws, const char* name, Index rows, Index degrees) {
  const bool thin = degrees <= rows;
  Tensor<float> b = normals(draws, name, rows, thin ? degrees : rows);
  if (!thin) to_bartlett(b, static_cast<double>(degrees));
  return b;
}

// L Q = N for the transpose of an upper triangle, L = U': Q in place of N
void solve_lower(const Tensor<float>& U, Tensor<float>& N) {
  const Index columns = N.cols();
  for (Index t = 0; t < U.rows(); ++t) {
    float* const row = N.view().row(t);
    for (Index s = 0; s < t; ++s) {
      const float x = U(s, t);
      const float* const from = N.view().row(s);
      for (Index c = 0; c < columns; ++c) row[c] -= x * from[c];
    }
    const float inverse = U(t, t) > 0 ? 1 / U(t, t) : 0;
    for (Index c = 0; c < columns; ++c) row[c] *= inverse;
  }
}

}  // namespace

void to_bartlett(Tensor<float>& b, double degrees) {
  for (Index t = 0; t < b.rows(); ++t) {
    // on the diagonal chi of falling degrees, here by its normal limit (Wilson-Hilferty), which with few degrees may fall below 0
    const double own = degrees - static_cast<double>(t);
    const double cube = std::max(1 - 2 / (9 * own) + static_cast<double>(b(t, t)) * std::sqrt(2 / (9 * own)), 0.0);
    b(t, t) = static_cast<float>(std::sqrt(own * cube * cube * cube));
    for (Index s = t + 1; s < b.cols(); ++s) b(t, s) = 0;
  }
}

Kernel gram_in_double(View<const float> x, double factor) {
  Matrix rows(x.rows, x.cols), out(x.rows, x.rows);
  for (Index t = 0; t < x.rows; ++t) std::copy_n(x.row(t), x.cols, rows.view().row(t));
  gram_product(rows, out.view());
  return Kernel::from(x.rows, [&](Index t, Index s) { return factor * out(t, s); });
}

Kernel gram_of_channels(const Kernel& K, Index channels, const Draws& draws) {
  const Tensor<float> b = many_columns(draws, "channels", K.tokens(), channels);
  return gram_in_double(product(Trans::yes, Trans::no, kernels::root(K, 1), b), 1 / static_cast<double>(channels));
}

// x = U_x' E and f = U_f' H, T orthonormal rows each (times sqrt(n)). H is [N M] made orthonormal, N along E and M across it: in these
// 2 T directions the sum is a U_x' + b U_f' H.
Kernel gram_of_sum(const Kernel& x, const Kernel& f, double a, double b, Index channels, const Draws& draws) {
  const Index n = x.tokens();
  if (channels <= 2 * n) return Kernel::from(n, [&](Index t, Index s) { return a * a * x(t, s) + b * b * f(t, s); });
  const Tensor<float> along = normals(draws, "along", n, n), across = many_columns(draws, "across", n, channels - n);
  Tensor<float> directions(n, 2 * n);
  for (Index t = 0; t < n; ++t) {
    std::copy_n(along.view().row(t), n, directions.view().row(t));
    std::copy_n(across.view().row(t), n, directions.view().row(t) + n);
  }
  solve_lower(kernels::root(gram_in_double(directions, 1), 1), directions);
  Tensor<float> sum = product(Trans::yes, Trans::no, kernels::root(f, b), directions);
  const Tensor<float> stream = kernels::root(x, a);
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s <= t; ++s) sum(t, s) += stream(s, t);
  }
  return gram_in_double(sum, 1);
}

}  // namespace stepzero
