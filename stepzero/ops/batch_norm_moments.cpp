// The moment doors of batch norm: expectations over one Gaussian channel of R numbers, exact for any eigenvalues. Where a function
// follows, whose slopes depend on the channel, the pull is a mean over drawn channels.
#include <cmath>

#include "stepzero/kernels/eigen.hpp"
#include "stepzero/ops/batch_norm.hpp"
#include "stepzero/ops/drawn_channels.hpp"
#include "stepzero/ops/function_kernel.hpp"
#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {

namespace {

Matrix centred(const Kernel& K) {
  const Index n = K.tokens();
  Matrix m(n, n);
  std::vector<double> mean(static_cast<std::size_t>(n), 0.0);
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s < n; ++s) mean[static_cast<std::size_t>(t)] += K(t, s) / static_cast<double>(n);
  }
  const double all = K.sum() / static_cast<double>(n * n);
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s < n; ++s) m(t, s) = K(t, s) - mean[static_cast<std::size_t>(t)] - mean[static_cast<std::size_t>(s)] + all;
  }
  return m;
}

// What push and pull share: P K P by its eigenvalues l_i and eigenvectors, and under each weight of a quadrature over s
//     phi(s) = E exp(-s D) = exp(-s eps) prod_i (1 + 2 s l_i / R)^(-1/2),    m_i(s) = l_i / (1 + 2 s l_i / R)
// the variance of u_i under exp(-s D). With 1/D^k = int s^(k-1) exp(-s D) ds / (k-1)! all moments are sums over s. The step in
// ln s is fine enough for rounding: the integrand is smooth and vanishes at both ends.
struct Spectrum {
  kernels::Eigen eigen;
  std::vector<double> s, weight;  // weight: s phi(s) times the step
  Matrix m;                       // (i, quadrature)

  Spectrum(const Kernel& K, double eps) : eigen(kernels::eigen(centred(K))) {
    const Index n = K.tokens();
    const double rows = static_cast<double>(n);
    double mean = eps;
    for (double& l : eigen.values) {
      l = std::max(l, 0.0);
      mean += l / rows;
    }
    if (!(mean > 0)) mean = 1;  // a wire of zeros: any scale will do
    constexpr double step = 0.25;
    for (double at = -36; at <= 36; at += step) {
      const double x = std::exp(at) / mean;
      double log = -x * eps;
      for (const double l : eigen.values) log -= std::log1p(2 * x * l / rows) / 2;
      if (at + log < -45) continue;
      s.push_back(x);
      weight.push_back(x * std::exp(log) * step);
    }
    m = Matrix(n, static_cast<Index>(s.size()));
    for (Index i = 0; i < n; ++i) {
      const double l = eigen.values[static_cast<std::size_t>(i)];
      for (Index q = 0; q < m.cols(); ++q) m(i, q) = l / (1 + 2 * s[static_cast<std::size_t>(q)] * l / rows);
    }
  }

  // E of 1/D, and of u_i^2 / D^power
  [[nodiscard]] double inverse() const {
    double sum = 0;
    for (const double w : weight) sum += w;
    return sum;
  }
  [[nodiscard]] std::vector<double> squares(int power) const {
    std::vector<double> out;
    for (Index i = 0; i < m.rows(); ++i) {
      double sum = 0;
      for (Index q = 0; q < m.cols(); ++q) {
        const auto k = static_cast<std::size_t>(q);
        sum += weight[k] * (power == 2 ? s[k] : 1) * m(i, q);
      }
      out.push_back(sum);
    }
    return out;
  }
  // E u_i^2 u_j^2 / D^3; on the diagonal a third of it
  [[nodiscard]] Matrix fourths() const {
    Matrix weighted(m.rows(), m.cols()), out(m.rows(), m.rows());
    for (Index i = 0; i < m.rows(); ++i) {
      for (Index q = 0; q < m.cols(); ++q) {
        const auto k = static_cast<std::size_t>(q);
        weighted(i, q) = weight[k] * s[k] * s[k] / 2 * m(i, q);
      }
    }
    gemm(Trans::no, Trans::yes, 1.0, View<const double>(weighted), View<const double>(m), 0.0, out.view());
    return out;
  }
  // into the eigenvectors' coordinates, and back
  [[nodiscard]] Matrix turned(const Matrix& x, bool back) const {
    Matrix half(x.rows(), x.rows()), out(x.rows(), x.rows());
    const View<const double> v = eigen.vectors;
    gemm(back ? Trans::yes : Trans::no, Trans::no, 1.0, v, View<const double>(x), 0.0, half.view());
    gemm(Trans::no, back ? Trans::no : Trans::yes, 1.0, View<const double>(half), v, 0.0, out.view());
    return out;
  }
  // E[u u' / D]
  [[nodiscard]] Kernel normed() const {
    const std::vector<double> b = squares(1);
    Matrix x(m.rows(), m.rows()), out(m.rows(), m.rows());
    for (Index i = 0; i < x.rows(); ++i) {
      for (Index t = 0; t < x.cols(); ++t) x(i, t) = b[static_cast<std::size_t>(i)] * eigen.vectors(i, t);
    }
    gemm(Trans::yes, Trans::no, 1.0, View<const double>(eigen.vectors), View<const double>(x), 0.0, out.view());
    return Kernel(std::move(out));
  }
};

// What push keeps for pull.
struct Kept {
  Spectrum spectrum;
  Kernel normed;
  Kept(const Kernel& K, double eps) : spectrum(K, eps), normed(spectrum.normed()) {}
};

// dy = f'(y) o d with d independent of x: with B = f'(y) f'(y)' o G_d for the covariance of dy in one channel,
//     dx dx' = g^2 (P B P - (P B h h' + h h' B P) / R + h (h' B h) h' / R^2) / D,     dg^2 = h' B h
class BehindSlopes {
 public:
  BehindSlopes(const BehindFunction& f, const Law& gain, const Law& bias, double eps, std::uint64_t place)
      : f_(f),
        gain_(gain),
        bias_(bias),
        eps_(eps),
        place_(place),
        size_(f.G.trace() > 0 ? f.G.trace() : 1),
        rows_(f.G.tokens()),
        G_(rows_, rows_),
        slopes_(rows_, rows_),
        rest_(rows_, rows_) {
    for (Index t = 0; t < rows_; ++t) {
      for (Index s = 0; s < rows_; ++s) G_(t, s) = static_cast<float>(f.G(t, s) / size_);
    }
  }

  Pulled pull(const Kernel& K) {
    const Tensor<float> u = Channels(Kernel(centred(K)), place_).block(0);
    add(u, 1, 0.0F);
    add(u, -1, 1.0F);
    const double draws = 2 * static_cast<double>(u.rows()), rows = static_cast<double>(rows_);
    const Kernel B = Kernel::from(rows_, [&](Index t, Index s) { return static_cast<double>(slopes_(t, s)) * f_.G(t, s) / draws; });
    const Matrix PBP = centred(B);
    const Kernel H = Kernel::from(rows_, [&](Index t, Index s) {
      return PBP(t, s) - size_ * (static_cast<double>(rest_(t, s)) + static_cast<double>(rest_(s, t))) / (draws * rows);  // (6)
    });
    return {{UpWire(H)}, {size_ * dgain_ / draws, 0}};
  }

 private:
  void add(const Tensor<float>& u, float sign, float beta) {
    const Index draws = u.rows();
    const Tensor<float> laws = node_normals(place_, "laws", static_cast<Index>(beta), draws, 2);
    Tensor<float> h(draws, rows_), s(draws, rows_), sh(draws, rows_);
    std::vector<float> weight(static_cast<std::size_t>(draws));  // g / sqrt(D)
    for (Index i = 0; i < draws; ++i) {
      double squares = 0;
      for (Index t = 0; t < rows_; ++t) squares += static_cast<double>(u(i, t)) * static_cast<double>(u(i, t));
      const double inverse = 1 / std::sqrt(squares / static_cast<double>(rows_) + eps_);
      const double g = gain_.mean + std::sqrt(gain_.variance) * static_cast<double>(laws(i, 0));
      const double b = bias_.mean + std::sqrt(bias_.variance) * static_cast<double>(laws(i, 1));
      weight[static_cast<std::size_t>(i)] = static_cast<float>(std::abs(g) * inverse);
      for (Index t = 0; t < rows_; ++t) {
        h(i, t) = static_cast<float>(inverse) * sign * u(i, t);
        s(i, t) = static_cast<float>(f_.slope(g * static_cast<double>(h(i, t)) + b));
        sh(i, t) = s(i, t) * h(i, t);
      }
    }
    Tensor<float> v = product(Trans::no, Trans::no, sh, G_);
    for (Index i = 0; i < draws; ++i) finish(v.view().row(i), s.view().row(i), h.view().row(i), weight[static_cast<std::size_t>(i)]);
    gemm(Trans::yes, Trans::no, 1.0F, View<const float>(s), View<const float>(s), beta, slopes_.view());
    gemm(Trans::yes, Trans::no, 1.0F, View<const float>(v), View<const float>(h), beta, rest_.view());
  }

  // s becomes w s; v, which is G (s o h), becomes w^2 (P B h - h (h' B h) / 2 R).
  void finish(float* v, float* s, const float* h, float w) {
    double square = 0, mean = 0;
    for (Index t = 0; t < rows_; ++t) {
      v[t] *= s[t];
      square += static_cast<double>(v[t]) * static_cast<double>(h[t]);
      mean += static_cast<double>(v[t]) / static_cast<double>(rows_);
    }
    dgain_ += square;
    const auto half = static_cast<float>(square / (2 * static_cast<double>(rows_)));
    for (Index t = 0; t < rows_; ++t) {
      v[t] = w * w * (v[t] - static_cast<float>(mean) - h[t] * half);
      s[t] *= w;
    }
  }

  const BehindFunction& f_;
  const Law &gain_, &bias_;
  double eps_;
  std::uint64_t place_;
  double size_;  // the size of G, divided out: floats have no room for small gradients
  Index rows_;
  Tensor<float> G_, slopes_, rest_;
  double dgain_ = 0;
};

}  // namespace

DownWire BatchNorm::push(const PushDoor& p) const {
  const auto kept = std::make_shared<const Kept>(p.x[0]->K, eps);
  const Law& b = p.theta[1];
  DownWire y;
  y.K = kept->normed.scaled(p.theta[0].second_moment()).shifted(b.second_moment());  // (5)
  if (b.mean != 0) y.mean.assign(static_cast<std::size_t>(y.K.tokens()), b.mean);
  y.f.noise = p.x[0]->f.noise;
  y.f.sampling = 0;
  y.note = kept;
  return y;
}

Pulled BatchNorm::pull(const PullDoor& p) const {
  if (const auto* function = note_of<BehindFunction>(p.dy)) {
    Pulled up = BehindSlopes(*function, p.theta[0], p.theta[1], eps, p.draws.place).pull(p.x[0]->K);
    up.dtheta[1] = p.dy.G.sum();
    return up;
  }
  const auto* known = note_of<std::shared_ptr<const Kept>>(p.y);
  const auto kept = known != nullptr ? *known : std::make_shared<const Kept>(p.x[0]->K, eps);
  const Spectrum& spectrum = kept->spectrum;
  const Index n = p.dy.G.tokens();
  const double rows = static_cast<double>(n);
  const Matrix C = spectrum.turned(centred(p.dy.G), false);
  const double zeroth = spectrum.inverse();
  const std::vector<double> second = spectrum.squares(2);
  const Matrix fourth = spectrum.fourths();
  Matrix H(n, n);
  for (Index i = 0; i < n; ++i) {
    const double a = second[static_cast<std::size_t>(i)];
    double all = 0;
    for (Index j = 0; j < n; ++j) {
      const double b = second[static_cast<std::size_t>(j)];
      H(i, j) = C(i, j) * (zeroth - (a + b) / rows + 2 * fourth(i, j) / (rows * rows));  // (6)
      all += fourth(i, j) * C(j, j);
    }
    H(i, i) += all / (rows * rows);
  }
  Kernel G = Kernel(spectrum.turned(H, true)).scaled(p.theta[0].second_moment());
  return {{UpWire(std::move(G))}, {frobenius(kept->normed, p.dy.G), p.dy.G.sum()}};  // (7)
}

}  // namespace stepzero
