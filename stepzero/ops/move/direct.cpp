#include "stepzero/ops/move/direct.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "stepzero/core/gauss.hpp"
#include "stepzero/kernels/eigen.hpp"
#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {

SignNumbers numbers_at(double q) {
  constexpr double low = -12, high = 12, step = 0.1;
  static const std::vector<SignNumbers> table = [] {
    std::vector<SignNumbers> list;
    for (int i = 0; low + i * step <= high + step; ++i) list.push_back(sign_numbers(std::exp(low + i * step)));
    return list;
  }();
  if (!(q > 0)) return table.front();
  const double x = (std::log(q) - low) / step;
  if (x <= 0) return table.front();
  if (!(x < static_cast<double>(table.size() - 1))) return {0, 0};
  const auto i = static_cast<std::size_t>(x);
  const double u = x - static_cast<double>(i);
  return {table[i].first * (1 - u) + table[i + 1].first * u, table[i].second * (1 - u) + table[i + 1].second * u};
}

namespace {

struct Spectrum {
  std::vector<double> values;
  Square vectors;  // columns
};

Spectrum spectrum(const Square& m) {
  const Index n = m.tokens();
  Matrix a(n, n);
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s < n; ++s) a(t, s) = (m(t, s) + m(s, t)) / 2;
  }
  const kernels::Eigen e = kernels::eigen(std::move(a));
  return {e.values, Square::from(n, [&](Index t, Index i) { return e.vectors(i, t); })};
}

// B diag(c) B'
Square weighted(const Square& B, const std::vector<double>& c) {
  const Index n = B.tokens();
  const Square scaled = Square::from(n, [&](Index t, Index i) { return B(t, i) * c[static_cast<std::size_t>(i)]; });
  Square out(n);
  gemm<double>(Trans::no, Trans::yes, 1.0, scaled.view(), B.view(), 0.0, out.view());
  return out;
}

}  // namespace

namespace {

// (5) over x: of the gradient's entries g = x' d, each input's have a deviation s = sqrt(x' G x / n_out) of their own.
SignNumbers mixed_numbers(const Square& K, const Square& G, double n_out, double eps) {
  const double top = inner(K, G);
  if (!(eps > 1e-4 * std::sqrt(top / n_out))) return sign_numbers(0);
  const Spectrum e = spectrum(between(root_of(K).transposed(), G));
  constexpr Index draws = 512;
  const Tensor<float> z = node_normals(0, "eps", 0, draws, K.tokens());
  double sizes = 0, first = 0, second = 0;
  for (Index i = 0; i < draws; ++i) {
    double square = 0;
    for (Index k = 0; k < z.cols(); ++k)
      square += std::max(e.values[static_cast<std::size_t>(k)], 0.0) * std::pow(static_cast<double>(z(i, k)), 2);
    const double size = std::sqrt(square / n_out);
    const SignNumbers numbers = numbers_at(size > 0 ? eps / size : INFINITY);
    sizes += size;
    first += size * numbers.first;
    second += numbers.second / draws;
  }
  return {first / sizes, second};
}

}  // namespace

// With L L' = K, L' G L = U diag(l) U' and B = L U both are B diag(.) B': integrals over t of
// prod_k (1 + 2 t l_k)^(-1/2) / (1 + 2 t l_i), with weight t^(-1/2) / sqrt(pi) or l_i; by t = e^s and equal steps.
SignMeans sign_means(const Square& K, const Square& G) {
  const Index n = K.tokens();
  const Square L = root_of(K);
  const Spectrum e = spectrum(between(L.transposed(), G));
  double total = 0;
  for (const double l : e.values) total += std::max(l, 0.0);
  if (!(total > 0)) return {Square(n), Square(n)};
  std::vector<double> l, m(static_cast<std::size_t>(n), 0.0), f(static_cast<std::size_t>(n), 0.0);
  for (const double x : e.values) l.push_back(std::max(x, 0.0) / total);
  constexpr double from = -40, to = 80, step = 0.5;
  for (double s = from; s <= to; s += step) {
    const double t = 2 * std::exp(s);
    double log_product = 0;
    for (std::size_t k = 0; k < l.size(); k += 8) {  // eight factors of at most 1e35 are a number
      double product = 1;
      for (std::size_t i = k; i < std::min(k + 8, l.size()); ++i) product *= 1 + t * l[i];
      log_product -= 0.5 * std::log(product);
    }
    const double base = step * std::exp(s + log_product);
    const double root = base * std::exp(-s / 2) / std::sqrt(std::numbers::pi);
    for (std::size_t i = 0; i < l.size(); ++i) {
      const double share = 1 / (1 + t * l[i]);
      m[i] += root * share;
      f[i] += base * share * l[i];
    }
  }
  for (double& x : m) x /= std::sqrt(total);
  const Square B = L * e.vectors;
  return {weighted(B, m), weighted(B, f)};
}

SignNumbers sign_numbers(double q) {
  if (!(q > 0)) return {std::sqrt(2 / std::numbers::pi), 1};
  if (!std::isfinite(q)) return {0, 0};
  return {expect([&](double z) { return z * z / (std::abs(z) + q); }, 1),
          expect([&](double z) { return z * z / ((std::abs(z) + q) * (std::abs(z) + q)); }, 1)};
}

double newton_schulz_value(double s, int steps) {
  for (int i = 0; i < steps; ++i) s *= 3.4445 + s * s * (-4.7750 + 2.0315 * s * s);
  return s;
}

Square Direct::size(const Square& G, double n_out) const { return (1 / n_out) * between(A, G) + R; }

namespace {

Direct sgd(const Update& u, const MatrixUse& x) {
  Direct out;
  const double a = u.times * x.n_in, overlap = inner(x.K, x.G);
  out.A = a * x.K;
  if (x.grams.empty()) {
    out.R = (a * a * x.noise / x.n_out) * (overlap * x.K + between(x.K, x.G));  // (2)
  } else {
    Square mean(x.K.tokens());
    for (const Square& gram : x.grams) mean += (1 / static_cast<double>(x.grams.size())) * between(gram, x.G);
    out.R = (a * a / x.n_out) * (mean - between(x.K, x.G));
  }
  out.norm2 = u.times * u.times * x.n_in * overlap;
  out.decrease = a * overlap;
  return out;
}

Direct sign(const Update& u, const MatrixUse& x) {
  Direct out;
  const double overlap = inner(x.K, x.G);
  if (!(overlap > 0)) return {Square(x.K.tokens()), Square(x.K.tokens()), 0, 0, {}};
  SignMeans means = sign_means(x.K, x.G);
  out.numbers = mixed_numbers(x.K, x.G, x.n_out, u.eps);
  const double c1 = out.numbers.first, c2 = out.numbers.second, n = x.n_in;
  const double shared = std::max(x.noise - 1 / n, 0.0);
  means.M = (x.lean * (1 - shared / 4)) * means.M;
  means.F = (x.lean * x.lean) * means.F;
  out.A = (n * c1 * std::sqrt(x.n_out)) * means.M;                                                                                  // (3)
  out.R = (c1 * c1 * n * n) * (means.F + (shared + 1 / n) * (x.K - means.F) - between(means.M, x.G)) + (n * (c2 - c1 * c1)) * x.K;  // (4)
  out.norm2 = c2 * n * x.n_out;
  out.decrease = inner(out.A, x.G);
  return out;
}

// (6) for given L and G: A, the Gram matrix of x U over all outputs, and the sum of s p(s).
struct Polar {
  Square A, gram;
  double nuclear = 0, norm2 = 0;
  Index rank = 0;
};

Polar polar_of(const Update& u, const Square& L, const Square& G, Index most) {
  const Spectrum e = spectrum(between(L.transposed(), G));
  const std::size_t n = e.values.size();
  const double top = std::max(e.values.back(), 0.0);
  double squares = 0;
  for (const double x : e.values) squares += std::max(x, 0.0);
  constexpr double least = 1e-9;  // of squares: kernels are not known better, and keys pull at no sum of tokens
  std::vector<double> slope(n, 0.0), square(n, 0.0);
  Polar out;
  for (std::size_t i = 0; i < n; ++i) {
    if (static_cast<Index>(n - i) > most || !(e.values[i] > least * top)) continue;
    const double s = std::sqrt(e.values[i]);
    const double p = u.newton_schulz > 0 ? newton_schulz_value(s / std::sqrt(squares), u.newton_schulz) : 1;
    slope[i] = p / s;
    square[i] = p * p;
    out.nuclear += s * p;
    out.norm2 += p * p;
    out.rank += 1;
  }
  const Square B = L * e.vectors;
  out.A = weighted(B, slope);
  out.gram = weighted(B, square);
  return out;
}

// A root of a sample covariance of `degrees` channels, in place of the identity. Bartlett: a lower triangle of normals, and on its diagonal
// roots of chi squares of fewer and fewer degrees, here by the cube root that is nearly normal.
Square drawn_root(Index n, double degrees, const char* name, Index draw) {
  if (degrees < static_cast<double>(n + 8)) {
    const auto columns = static_cast<Index>(std::max(degrees, 1.0));
    const Tensor<float> z = node_normals(0, name, draw, n, columns);
    return root_of(Square::from(n, [&](Index t, Index s) {
      double sum = 0;
      for (Index c = 0; c < columns; ++c) sum += static_cast<double>(z(t, c)) * static_cast<double>(z(s, c));
      return sum / static_cast<double>(columns);
    }));
  }
  const Tensor<float> z = node_normals(0, name, draw, n, n);
  return Square::from(n, [&](Index t, Index s) {
    const double x = static_cast<double>(z(t, s)), k = degrees - static_cast<double>(t), spread = 2 / (9 * k);
    const double root = 1 - spread + x * std::sqrt(spread);
    return t < s ? 0 : t == s ? std::sqrt(k * root * root * root / degrees) : x / std::sqrt(degrees);
  });
}

Direct polar(const Update& u, const MatrixUse& x) {
  const Index tokens = x.K.tokens();
  const Square& whole = x.whole.empty() ? x.G : x.whole;
  const double whole_out = x.whole.empty() ? x.n_out : x.whole_out;
  const Square L = std::sqrt(x.n_in) * root_of(x.K), LG = root_of(whole);
  const auto most = static_cast<Index>(std::min({x.n_in, whole_out, static_cast<double>(tokens)}));
  Polar mean = polar_of(u, L, whole, most);
  const double plain = inner(mean.A, whole);
  constexpr Index draws = 4;
  Square gram(tokens);
  double nuclear = 0, norm2 = 0;
  for (Index i = 0; i < draws; ++i) {
    const Square down = L * drawn_root(tokens, 1 / std::max(x.noise, 1 / x.n_in), "polar.in", i);
    const Square up = LG * drawn_root(tokens, 1 / std::max(x.noise_up, 1 / whole_out), "polar.out", i);
    const Polar one = polar_of(u, down, between(up, Square::one(tokens)), most);
    gram += (1.0 / draws) * one.gram;
    nuclear += one.nuclear / draws;
    norm2 += one.norm2 / draws;
  }
  if (u.newton_schulz == 0 && mean.rank == tokens) gram = x.n_in * x.K;  // at full rank, whatever G is
  Direct out;
  const double by = u.times * (plain > 0 ? nuclear / plain : 0);
  out.A = by * mean.A;
  const Square own = between(out.A, x.G), all = x.whole.empty() ? own : between(out.A, whole);
  const double share = all.trace() > 0 ? own.trace() / all.trace() : 0;
  out.R = (share / x.n_out) * ((u.times * u.times) * gram - all);
  out.norm2 = u.times * u.times * norm2 * share;
  out.decrease = inner(out.A, x.G);
  return out;
}

}  // namespace

Square polar_response(const Update& u, const Square& K, const Square& G, double n_in, double n_out) {
  const auto most = static_cast<Index>(std::min({n_in, n_out, static_cast<double>(K.tokens())}));
  return u.times * polar_of(u, std::sqrt(n_in) * root_of(K), G, most).A;
}

Direct direct(const Update& update, const MatrixUse& use) {
  switch (update.rule) {
    case Update::Rule::sgd:
      return sgd(update, use);
    case Update::Rule::sign:
      return sign(update, use);
    case Update::Rule::polar:
      return polar(update, use);
    case Update::Rule::none:
      break;
  }
  return {Square(use.K.tokens()), Square(use.K.tokens()), 0, 0, {}};
}

}  // namespace stepzero
