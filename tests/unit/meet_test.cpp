// A gated branch: two matrices read one token, and what comes back along it is one number.
#include "stepzero/ops/finite/add_adjoints.hpp"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "stepzero/core/running.hpp"
#include "stepzero/ops/elementwise.hpp"
#include "stepzero/ops/finite/all.hpp"
#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/linear.hpp"
#include "stepzero/ops/multiply.hpp"

namespace stepzero {
namespace {

TEST(Meet, GatesAndValuesComeBackAlongTheTokenTogether) {
  constexpr Index n = 12, m = 24, draws = 20000;
  const Batch batch;
  DownWire x;
  x.K = Kernel::from(1, [](Index, Index) { return 1.0; });
  x.f.sampling = 0;
  x.width = n;
  const Linear up{.in = n, .out = m};
  const Elementwise<Silu> function{.width = m};
  const Multiply product{.width = m};
  const std::array<Law, 1> theta = {Law{0, 1.0 / n}};
  const std::array<const DownWire*, 1> at_x = {&x};
  DownWire gate = push_finite(up, PushDoor{batch, at_x, theta});
  gate.width = m;
  const std::array<const DownWire*, 1> at_gate = {&gate};
  DownWire act = push_finite(function, PushDoor{batch, at_gate, {}});
  act.width = m;
  const std::array<const DownWire*, 2> factors = {&act, &gate};
  DownWire y = push_finite(product, PushDoor{batch, factors, {}});
  y.width = m;
  UpWire dy;
  dy.G = Kernel::from(1, [](Index, Index) { return 1.0; });
  const Pulled at_product = pull_finite(product, PullDoor{batch, factors, {}, y, dy});
  const Pulled at_act = pull_finite(function, PullDoor{batch, at_gate, {}, act, at_product.dx[0]});
  UpWire dx;
  add_adjoints(dx, pull_finite(up, PullDoor{batch, at_x, theta, gate, at_act.dx[0]}).dx[0], n);
  const double alone = dx.G.trace() + pull_finite(up, PullDoor{batch, at_x, theta, gate, at_product.dx[1]}).dx[0].G.trace();
  add_adjoints(dx, pull_finite(up, PullDoor{batch, at_x, theta, gate, at_product.dx[1]}).dx[0], n);

  Running seen;
  for (Index i = 0; i < draws; ++i) {
    const Tensor<float> A = node_normals(1, "a", i, m, n), B = node_normals(2, "b", i, m, n), d = node_normals(3, "d", i, 1, m);
    Tensor<float> u = node_normals(4, "u", i, 1, n);
    double size = 0;
    for (Index c = 0; c < n; ++c) size += static_cast<double>(u(0, c)) * static_cast<double>(u(0, c));
    for (Index c = 0; c < n; ++c) u(0, c) *= static_cast<float>(std::sqrt(static_cast<double>(n) / size));
    std::array<double, n> back{};
    for (Index r = 0; r < m; ++r) {
      double g = 0, v = 0;
      for (Index c = 0; c < n; ++c) {
        g += static_cast<double>(A(r, c) * u(0, c)) / std::sqrt(static_cast<double>(n));
        v += static_cast<double>(B(r, c) * u(0, c)) / std::sqrt(static_cast<double>(n));
      }
      const double s = 1 / (1 + std::exp(-g)), slope = s * (1 + g * (1 - s)),
                   z = static_cast<double>(d(0, r)) / std::sqrt(static_cast<double>(m));
      for (Index c = 0; c < n; ++c) {
        back[c] +=
            z * (v * slope * static_cast<double>(A(r, c)) + g * s * static_cast<double>(B(r, c))) / std::sqrt(static_cast<double>(n));
      }
    }
    double square = 0;
    for (const double b : back) square += b * b;
    seen.add(square);
  }
  EXPECT_NEAR(dx.G.trace() / seen.mean, 1, 4 * seen.error() / seen.mean + 0.002);
  EXPECT_LE(4 * seen.error() / seen.mean, 0.03);
  EXPECT_GT(dx.G.trace() / alone, 1.05) << "the part along the token is seen by this test";
}

}  // namespace
}  // namespace stepzero
