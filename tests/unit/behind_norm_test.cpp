// What comes up behind a norm: a gradient orthogonal to the token y, and the smaller the larger y came out,
//
//     d = P z / |y|,   P = 1 - y y' / |y|^2,   z iid normal
//
// The ops before the norm feel it to the order of 1/n and of the drift of sizes. Tokens are drawn and the mean over z is known: an
// op that hands J d on has E|J d|^2 = |J P|^2 / |y|^2, where a gradient that knows nothing of y has |J|^2 / n for each |d|^2.
#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "stepzero/core/running.hpp"
#include "stepzero/ops/elementwise.hpp"
#include "stepzero/ops/finite/all.hpp"
#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/linear.hpp"
#include "stepzero/ops/multiply.hpp"

namespace stepzero {
namespace {

constexpr Index kWidth = 1024;
constexpr Index draws = 2000;
constexpr double token_square = 1.5, drift = 0.01;  // of a token: its mean square, and how that varies over draws
// The rules are of first order in 1/n and drift. What they take off here is up to 4 %.
constexpr double second_order = 0.001;

using Token = std::vector<double>;

Kernel one(double x) {
  return Kernel::from(1, [&](Index, Index) { return x; });
}

DownWire wire(Index width, double token_drift) {
  DownWire m;
  m.K = one(token_square);
  m.width = width;
  m.f.drift = m.f.token_drift = token_drift;
  return m;
}

UpWire behind_norm() { return {{.G = one(1)}, {.along = 0, .damp = 1}}; }

// The logarithm of a token's mean square in a draw, in standard deviations.
double size_of(Index draw) { return static_cast<double>(node_normals(9, "size", draw, 1, 1)(0, 0)); }

Token token(const char* name, Index draw, Index width, double token_drift, double z) {
  const Tensor<float> g = node_normals(9, name, draw, 1, width);
  const double size = std::sqrt(token_square * std::exp(std::sqrt(token_drift) * z - token_drift / 2));
  Token x;
  for (Index i = 0; i < width; ++i) x.push_back(size * static_cast<double>(g(0, i)));
  return x;
}

double dot(const Token& a, const Token& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

template <class F>
Token each(const Token& x, const F& f) {
  Token y;
  for (const double a : x) y.push_back(f(a));
  return y;
}

// E|J d|^2 / E|d|^2, in units of the same for a gradient that knows nothing of y.
class MeasuredGain {
 public:
  void add(double behind, double gradient, double plain) {
    seen_.push_back({behind, gradient, plain});
    for (std::size_t k = 0; k < 3; ++k) mean_[k].add(seen_.back()[k]);
  }
  // J = diag(j)
  void add(const Token& j, const Token& y) {
    const double size = dot(y, y), all = dot(j, j);
    double along = 0;
    for (std::size_t i = 0; i < y.size(); ++i) along += j[i] * j[i] * y[i] * y[i] / size;
    add((all - along) / size, static_cast<double>(y.size() - 1) / size, all / static_cast<double>(y.size()));
  }
  [[nodiscard]] double value() const { return mean_[0].mean / (mean_[1].mean * mean_[2].mean); }
  [[nodiscard]] double behind() const { return mean_[0].mean; }
  void expect(double rule, const char* what, double left_out = 0) const {
    Running r;  // of the first order of value()
    for (const auto& s : seen_) r.add(s[0] / mean_[0].mean - s[1] / mean_[1].mean - s[2] / mean_[2].mean);
    const double error = value() * r.error();
    const double bound = 6 * error + second_order + left_out;
    EXPECT_TRUE(std::abs(value() - rule) <= bound) << what << ": measured " << value() << " +- " << error << ", rule " << rule;
    EXPECT_LE(bound, 0.01) << what << ": too few draws to see a rule that is 2 % off";
  }

 private:
  std::vector<std::array<double, 3>> seen_;
  std::array<Running, 3> mean_;
};

TEST(BehindNorm, Multiply) {
  constexpr Index width = 256, many = 6000;
  // one input moves the sizes of both factors, of one twice as far
  const DownWire a = wire(width, drift), b = wire(width, drift / 4);
  const Batch batch;
  const Multiply op{.width = width};
  const std::array<const DownWire*, 2> x = {&a, &b};
  DownWire y = push_finite(op, PushDoor{batch, x, {}});
  y.width = width;
  const UpWire plain(one(1));
  const Pulled rule = pull_finite(op, PullDoor{batch, x, {}, y, behind_norm()}), free = pull_finite(op, PullDoor{batch, x, {}, y, plain});
  MeasuredGain to_a, to_b;
  for (Index i = 0; i < many; ++i) {
    const double z = size_of(i);
    const Token u = token("a", i, width, a.f.token_drift, z), v = token("b", i, width, b.f.token_drift, z);
    Token product;
    for (std::size_t k = 0; k < u.size(); ++k) product.push_back(u[k] * v[k]);
    to_a.add(v, product);
    to_b.add(u, product);
  }
  to_a.expect(rule.dx[0].G(0, 0) / free.dx[0].G(0, 0), "a");
  to_b.expect(rule.dx[1].G(0, 0) / free.dx[1].G(0, 0), "b");
  EXPECT_EQ(rule.dx[0].r.along, 0);  // <da, a> = <dy, y>
  // |da|^2 = |b|^2 / |a o b|^2: with the size of a, that of b goes half as far
  EXPECT_NEAR(rule.dx[0].r.damp, 1.5 - 0.5, 1e-12);
  EXPECT_NEAR(rule.dx[1].r.damp, 3 - 2, 1e-12);
}

template <class Phi>
class ElementwiseBehindNorm : public ::testing::Test {};
using Functions = ::testing::Types<Relu, GeluTanh, Tanh, Sigmoid, ReluSquared>;
TYPED_TEST_SUITE(ElementwiseBehindNorm, Functions);

TYPED_TEST(ElementwiseBehindNorm, KnowsTheSize) {
  const auto value = [](double u) { return TypeParam::value(u); };
  const auto slope = [](double u) { return TypeParam::slope(u); };
  const DownWire m = wire(kWidth, drift);
  const Batch batch;
  const Elementwise<TypeParam> op{.width = kWidth};
  const std::array<const DownWire*, 1> x = {&m};
  DownWire y = push_finite(op, PushDoor{batch, x, {}});
  y.width = kWidth;
  const UpWire plain(one(1));
  const Pulled rule = pull_finite(op, PullDoor{batch, x, {}, y, behind_norm()}), free = pull_finite(op, PullDoor{batch, x, {}, y, plain});
  MeasuredGain to_x;
  Running along, smaller, larger;
  constexpr double h = 0.05;  // by as much the logarithm of |x|^2 is moved to either side
  for (Index i = 0; i < draws; ++i) {
    const double z = size_of(i);
    const Token u = token("x", i, kWidth, drift, z);
    const Token f = each(u, value), j = each(u, slope);
    to_x.add(j, f);
    const Token radial = each(u, [&](double a) { return slope(a) * a; });  // <J d, x> = <d, J x>
    const double size = dot(f, f), meet = dot(radial, f);
    along.add((dot(radial, radial) - meet * meet / size) / size / dot(u, u));
    for (const double side : {-1.0, 1.0}) {
      const Token moved = each(u, [&](double a) { return a * std::exp(side * h / 2); });
      const Token from = each(moved, value), by = each(moved, slope);
      (side < 0 ? smaller : larger).add(dot(by, by) / dot(from, from));
    }
  }
  to_x.expect(rule.dx[0].G(0, 0) / free.dx[0].G(0, 0), TypeParam::name);
  const double share = static_cast<double>(kWidth) * along.mean / to_x.behind();
  EXPECT_NEAR(share, rule.dx[0].r.along, 0.008);
  EXPECT_NEAR(-std::log(larger.mean / smaller.mean) / (2 * h), rule.dx[0].r.damp, 0.008);
}

TEST(BehindNorm, Linear) {
  constexpr Index out = 32, few = 1000;
  const DownWire m = wire(kWidth, drift);
  const Batch batch;
  const Linear op{.in = kWidth, .out = out};
  const std::array<const DownWire*, 1> x = {&m};
  const std::array<Law, 1> theta = {Law{0, 1.0 / kWidth}};
  const DownWire y = push_finite(op, PushDoor{batch, x, theta});
  const UpWire plain(one(1));
  const Pulled rule = pull_finite(op, PullDoor{batch, x, theta, y, behind_norm()}),
               free = pull_finite(op, PullDoor{batch, x, theta, y, plain});
  MeasuredGain to_x, to_weight;
  for (Index i = 0; i < few; ++i) {
    const Token u = token("x", i, kWidth, drift, size_of(i));
    const Tensor<float> W = node_normals(9, "W", i, out, kWidth);
    Token w(out), back(kWidth, 0.0);
    double all = 0;
    for (Index r = 0; r < out; ++r) {
      for (Index c = 0; c < kWidth; ++c)
        w[r] += static_cast<double>(W(r, c)) * u[c], all += static_cast<double>(W(r, c)) * static_cast<double>(W(r, c));
    }
    for (Index r = 0; r < out; ++r) {
      for (Index c = 0; c < kWidth; ++c) back[c] += static_cast<double>(W(r, c)) * w[r];
    }
    const double size = dot(w, w), gradient = static_cast<double>(out - 1) / size;
    to_x.add((all - dot(back, back) / size) / size, gradient, all / out);
    to_weight.add(gradient * dot(u, u), gradient, dot(u, u));
  }
  to_x.expect(rule.dx[0].G(0, 0) / free.dx[0].G(0, 0), "x");  // nothing comes back along x, one direction of n
  to_weight.expect(rule.dtheta[0] / free.dtheta[0], "W");
  EXPECT_EQ(rule.dx[0].r.along, 0);
  EXPECT_EQ(rule.dx[0].r.damp, 1);
}

}  // namespace
}  // namespace stepzero
