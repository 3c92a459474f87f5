// The products of two matrices and the rule for the variance of a product.
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "stepzero/core/law.hpp"
#include "stepzero/core/running.hpp"
#include "stepzero/kernels/products.hpp"
#include "stepzero/report/plot.hpp"

namespace stepzero {
namespace {

TEST(Products, AreSumsOfEachOther) {
  // 1 2 3     2 0 1        a o b = 2 0 3      a (-) b = 5
  // 4 5 6     1 3 0                4 15 0               19      <a, b> = 24
  const double a[] = {1, 2, 3, 4, 5, 6}, b[] = {2, 0, 1, 1, 3, 0};
  const View<const double> x(a, 2, 3), y(b, 2, 3);
  Tensor<double> h(2, 3);
  hadamard(x, y, h.view());
  EXPECT_EQ(std::vector<double>(h.data(), h.data() + 6), (std::vector<double>{2, 0, 3, 4, 15, 0}));
  hadamard(x, y, h.view(), true);
  EXPECT_EQ(h(1, 1), 30);
  double rows[2];
  row_dots(x, y, rows);
  EXPECT_EQ(rows[0], 5);
  EXPECT_EQ(rows[1], 19);
  EXPECT_EQ(frobenius(x, y), 24);
  EXPECT_EQ(frobenius(x.columns(0, 2), y.columns(0, 2)), 2 + 4 + 15);  // a view with gaps between its rows
}

TEST(Products, WorkForEveryScalarAndSize) {
  for (const Index rows : {1, 3, 70}) {
    for (const Index cols : {1, 15, 16, 33, 500}) {
      Tensor<float> a(rows, cols), b(rows, cols), h(rows, cols);
      double want = 0;
      for (Index i = 0; i < a.size(); ++i) {
        a.data()[i] = static_cast<float>(i % 7 - 3);
        b.data()[i] = static_cast<float>(i % 5 - 1);
        want += static_cast<double>(a.data()[i] * b.data()[i]);
      }
      EXPECT_EQ(static_cast<double>(frobenius(View<const float>(a), View<const float>(b))), want);
      hadamard(View<const float>(a), View<const float>(b), h.view());
      for (Index i = 0; i < a.size(); ++i) ASSERT_EQ(h.data()[i], a.data()[i] * b.data()[i]);
    }
  }
}

TEST(Law, OfAProductIsThatOfDraws) {
  const Law x{0.7, 0.25}, y{-1.2, 0.81};
  std::mt19937_64 rng(1);
  std::normal_distribution<double> dx(x.mean, 0.5), dy(y.mean, 0.9);
  Running mean, square;
  const Law p = product(x, y);
  for (int i = 0; i < 200000; ++i) {
    const double z = dx(rng) * dy(rng);
    mean.add(z);
    square.add((z - p.mean) * (z - p.mean));
  }
  EXPECT_LT(std::abs(mean.mean - p.mean), 5 * mean.error());
  EXPECT_LT(std::abs(square.mean - p.variance), 5 * square.error());
  EXPECT_LT(square.error(), 0.01 * p.variance);
  const Law sum = sum_of_products(12, x, y);
  EXPECT_DOUBLE_EQ(sum.mean, 12 * p.mean);
  EXPECT_DOUBLE_EQ(sum.variance, 12 * p.variance);
  EXPECT_DOUBLE_EQ(product({0, 4}, {0, 9}).variance, 36);
  EXPECT_DOUBLE_EQ(product({3, 0}, {0, 2}).variance, 18);  // a constant times a random number
}

TEST(Plots, HoldTheirPoints) {
  Plot plot{"title <&>", "x", "y", false, true, {{"line", {0, 1, 2}, {1, 10, 100}}, {"dots", {0, 2}, {100, 1}, false}}};
  const std::string text = plot_text(plot, 21, 5);
  EXPECT_NE(text.find("100 |o                   *"), std::string::npos) << text;
  EXPECT_NE(text.find("  1 |*                   o"), std::string::npos) << text;
  const std::string svg = plot_svg(plot);
  EXPECT_NE(svg.find("title &lt;&amp;&gt;"), std::string::npos);
  EXPECT_NE(svg.find("<path d=\"M62.0 270.0L272.0 150.0L482.0 30.0\""), std::string::npos) << svg;
  EXPECT_TRUE(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
  plot.curves = {{"nothing to show", {0, 1}, {-1, NAN}}};  // a logarithm of what has none
  EXPECT_EQ(plot_svg(plot).find("nan"), std::string::npos);
  EXPECT_FALSE(plot_text(plot).empty());
  EXPECT_TRUE(plot_text({}).empty());
}

}  // namespace
}  // namespace stepzero
