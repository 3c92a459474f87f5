#include "stepzero/optim/polar.hpp"

#include <cmath>
#include <utility>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/eigen.hpp"
#include "stepzero/kernels/product/gemm.hpp"

namespace stepzero {

namespace {

template <class S>
Tensor<S> transposed(View<const S> x) {
  Tensor<S> y(x.cols, x.rows);
  for (Index i = 0; i < x.rows; ++i) {
    for (Index j = 0; j < x.cols; ++j) y(j, i) = x(i, j);
  }
  return y;
}

// The same with no more rows than columns, then turned back.
template <class S, class F>
Tensor<S> lying(View<const S> g, const F& factor) {
  if (g.rows <= g.cols) return factor(g);
  const Tensor<S> flat = transposed(g);
  const Tensor<S> result = factor(flat.view());
  return transposed(result.view());
}

double norm(View<const double> x) {
  double squares = 0;
  for (Index i = 0; i < x.rows; ++i) {
    for (Index j = 0; j < x.cols; ++j) squares += x(i, j) * x(i, j);
  }
  return std::sqrt(squares);
}

// The directions of the left singular vectors that are kept, from the smaller Gram matrix: rows of `basis`. B = basis G then has rows
// that are orthogonal but for what rounding mixed among directions of like size; with unit rows, one Newton step makes them so.
Tensor<double> exact(View<const double> g) {
  constexpr double least = 1e-6;
  const Index n = g.rows;
  Tensor<double> out(n, g.cols);
  const double size = norm(g);
  if (!(size > 0) || !std::isfinite(size)) {  // nothing to turn, or a number that is none, which shall be seen
    for (Index i = 0; i < out.size(); ++i) out.data()[i] = size > 0 || std::isnan(size) ? size * 0.0 : 0.0;
    return out;
  }
  Matrix gram(n, n);
  const double shrink = 1 / size;
  gemm<double>(Trans::no, Trans::yes, shrink * shrink, g, g, 0.0, {gram.data(), n, n});
  const kernels::Eigen e = kernels::eigen(std::move(gram));
  Index dropped = 0;
  while (dropped < n && !(e.values[static_cast<std::size_t>(dropped)] > least * least * e.values.back())) ++dropped;
  const Index kept = n - dropped;
  const View<const double> basis(e.vectors.data() + dropped * n, kept, n);
  Tensor<double> b(kept, g.cols);
  gemm<double>(Trans::no, Trans::no, 1.0, basis, g, 0.0, b.view());
  for (Index i = 0; i < kept; ++i) {
    const double unit = 1 / norm(View<const double>(b.view().row(i), 1, b.cols()));
    for (Index j = 0; j < b.cols(); ++j) b(i, j) *= unit;
  }
  Tensor<double> overlap(kept, kept), even(kept, g.cols);
  gemm<double>(Trans::no, Trans::yes, -0.5, b.view(), b.view(), 0.0, overlap.view());
  for (Index i = 0; i < kept; ++i) overlap(i, i) += 1.5;
  gemm<double>(Trans::no, Trans::no, 1.0, overlap.view(), b.view(), 0.0, even.view());
  gemm<double>(Trans::yes, Trans::no, 1.0, basis, even.view(), 0.0, out.view());
  return out;
}

template <class S>
Tensor<S> five(View<const S> g, int steps) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  Tensor<S> x(g.rows, g.cols), next(g.rows, g.cols), gram(g.rows, g.rows), poly(g.rows, g.rows);
  double squares = 0;
  for (Index i = 0; i < g.size(); ++i) squares += static_cast<double>(g.data[i]) * static_cast<double>(g.data[i]);
  const S unit = S(1 / (std::sqrt(squares) + 1e-7));
  for (Index i = 0; i < g.size(); ++i) x.data()[i] = unit * g.data[i];
  for (int step = 0; step < steps; ++step) {
    gemm<S>(Trans::no, Trans::yes, S(1), x.view(), x.view(), S(0), gram.view());
    for (Index i = 0; i < gram.size(); ++i) poly.data()[i] = S(b) * gram.data()[i];
    gemm<S>(Trans::no, Trans::no, S(c), gram.view(), gram.view(), S(1), poly.view());
    for (Index i = 0; i < x.size(); ++i) next.data()[i] = S(a) * x.data()[i];
    gemm<S>(Trans::no, Trans::no, S(1), poly.view(), x.view(), S(1), next.view());
    std::swap(x, next);
  }
  return x;
}

}  // namespace

template <class S>
Tensor<S> polar_factor(View<const S> g) {
  const Alone alone;
  return lying(g, [](View<const S> flat) {
    Tensor<double> wide(flat.rows, flat.cols);
    for (Index i = 0; i < wide.size(); ++i) wide.data()[i] = static_cast<double>(flat.data[i]);
    const Tensor<double> exactly = exact(wide.view());
    Tensor<S> out(flat.rows, flat.cols);
    for (Index i = 0; i < out.size(); ++i) out.data()[i] = static_cast<S>(exactly.data()[i]);
    return out;
  });
}

template <class S>
Tensor<S> newton_schulz_factor(View<const S> g, int steps) {
  const Alone alone;
  return lying(g, [steps](View<const S> flat) { return five(flat, steps); });
}

template Tensor<float> polar_factor(View<const float>);
template Tensor<double> polar_factor(View<const double>);
template Tensor<float> newton_schulz_factor(View<const float>, int);
template Tensor<double> newton_schulz_factor(View<const double>, int);

}  // namespace stepzero
