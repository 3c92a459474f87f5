// Products on tiles of bfloat16: what they promise beyond the bound of any product (tests/unit/kernels_test.cpp holds that).
#include "stepzero/kernels/product/tile_product.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {
namespace {

class TileProduct : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::has_tiles()) GTEST_SKIP() << "this processor has no tiles of bfloat16";
  }
};

// Numbers with all their bits, of the size of 2^power.
Tensor<float> positive(const char* name, Index rows, Index cols, int power) {
  Tensor<float> x = node_normals(1, name, 0, rows, cols);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = std::ldexp(1 + std::abs(std::fmod(x.data()[i], 1.0F)), power);
  return x;
}

double exact(View<const float> a, View<const float> b, Index i, Index j) {
  double sum = 0;
  for (Index l = 0; l < a.cols; ++l) sum += static_cast<double>(a(i, l)) * static_cast<double>(b(l, j));
  return sum;
}

Tensor<float> multiply(View<const float> a, View<const float> b) {
  Tensor<float> c(a.rows, b.cols);
  kernels::tile_product(Trans::no, Trans::no, 1.0F, a, b, 0.0F, c.view());
  return c;
}

// One product at a time: what (2) leaves out and one rounding, 2^-24 each.
TEST_F(TileProduct, OneProductIsThatOfFloats) {
  const Tensor<float> a = positive("a", 200, 1, 0), b = positive("b", 1, 300, 0), c = multiply(a, b);
  for (Index i = 0; i < 200; ++i) {
    for (Index j = 0; j < 300; ++j) {
      ASSERT_LE(std::abs(static_cast<double>(c(i, j)) / exact(a, b, i, j) - 1), std::ldexp(1.001, -23)) << i << ", " << j;
    }
  }
}

// Sums without cancellation, where tiles by themselves would flush or overflow. A row and a column are far from the others of their panels:
// they lose nothing while that is less than 2^40.
TEST_F(TileProduct, ReachesOverTheRangeOfFloats) {
  constexpr Index m = 70, n = 50, k = 100;
  struct Case {
    int x, y, odd_row, odd_column;
  };
  for (const auto& [x, y, odd_row, odd_column] : {Case{0, 0, 0, 0},
                                                  {0, 0, 35, 35},
                                                  {0, 0, -35, -35},
                                                  {-100, 0, 30, 0},
                                                  {0, -100, 0, 30},
                                                  {-110, 90, 20, 10},
                                                  {100, 10, -10, 5},
                                                  {10, 100, 5, -10},
                                                  {-60, -45, 0, 0},
                                                  {126, -100, 0, 3},
                                                  {-40, -40, -20, 0},
                                                  {40, 40, 20, -20}}) {
    for (const bool wide : {false, true}) {
      Tensor<float> a = positive("a", wide ? n : m, k, x), b = positive("b", k, wide ? m : n, y);
      for (Index l = 0; l < k; ++l) {
        a(20, l) = std::ldexp(a(20, l), odd_row);
        b(l, 18) = std::ldexp(b(l, 18), odd_column);
        for (Index i = 0; i < a.rows(); ++i) a(i, l) = -a(i, l);  // sizes count, not signs
      }
      const Tensor<float> c = multiply(a, b);
      for (Index i = 0; i < c.rows(); ++i) {
        for (Index j = 0; j < c.cols(); ++j) {
          ASSERT_LE(std::abs(static_cast<double>(c(i, j)) / exact(a, b, i, j) - 1), 4e-7)
              << "2^" << x << " times 2^" << y << ", entry " << i << ", " << j;
        }
      }
    }
  }
}

TEST_F(TileProduct, TakesTheLargestNumbers) {
  Tensor<float> a = positive("a", 20, 40, 0), b = positive("b", 40, 20, -100);
  a(3, 4) = std::numeric_limits<float>::max();
  const Tensor<float> c = multiply(a, b);
  for (Index j = 0; j < 20; ++j) EXPECT_NEAR(static_cast<double>(c(3, j)) / exact(a, b, 3, j), 1, 4e-7);
}

TEST_F(TileProduct, WhatIsNotFiniteMakesNan) {
  for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0x7fffffffU), std::bit_cast<float>(0xff800001U)}) {
    Tensor<float> a = node_normals(1, "a", 0, 20, 64), b = node_normals(1, "b", 0, 64, 40);
    a(3, 40) = odd;
    b(5, 30) = odd;
    const Tensor<float> c = multiply(a, b);
    for (Index i = 0; i < 20; ++i) {
      for (Index j = 0; j < 40; ++j) {
        const bool broken = i == 3 || j == 30;
        EXPECT_TRUE(broken ? std::isnan(c(i, j)) : std::isfinite(c(i, j))) << i << ", " << j;
      }
    }
  }
}

// A matrix that ends where memory does.
class AtTheEnd {
 public:
  explicit AtTheEnd(View<const float> from) : bytes_(static_cast<std::size_t>(from.size()) * sizeof(float)) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    length_ = (bytes_ + page - 1) / page * page;
    base_ = static_cast<char*>(mmap(nullptr, length_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + length_, page, PROT_NONE);
    length_ += page;
    view = {reinterpret_cast<float*>(base_ + length_ - page - bytes_), from.rows, from.cols};
    std::memcpy(view.data, from.data, bytes_);
  }
  ~AtTheEnd() { munmap(base_, length_); }
  AtTheEnd(const AtTheEnd&) = delete;
  AtTheEnd& operator=(const AtTheEnd&) = delete;

  View<float> view;

 private:
  std::size_t bytes_, length_ = 0;
  char* base_ = nullptr;
};

TEST_F(TileProduct, ReadsAndWritesNothingBeyondItsMatrices) {
  for (const auto& [m, n, k] : {std::array<Index, 3>{1, 1, 1}, {17, 35, 33}, {35, 17, 47}, {40, 3, 50}}) {
    for (const Trans ta : {Trans::no, Trans::yes}) {
      for (const Trans tb : {Trans::no, Trans::yes}) {
        const AtTheEnd a(node_normals(1, "a", 0, ta == Trans::no ? m : k, ta == Trans::no ? k : m));
        const AtTheEnd b(node_normals(1, "b", 0, tb == Trans::no ? k : n, tb == Trans::no ? n : k));
        const AtTheEnd c(Tensor<float>(m, n));
        kernels::tile_product(ta, tb, 1.0F, a.view, b.view, 0.0F, c.view);
        EXPECT_TRUE(std::isfinite(c.view(m - 1, n - 1)));
      }
    }
  }
}

TEST_F(TileProduct, RunsSideBySide) {
  constexpr Index count = 8, m = 70, n = 90, k = 800;
  std::array<Tensor<float>, count> alone, together;
  const auto product = [&](Index i) {
    return multiply(node_normals(static_cast<std::uint64_t>(i), "a", 0, m, k), node_normals(static_cast<std::uint64_t>(i), "b", 0, k, n));
  };
  const int before = threads();
  set_threads(4);
  for (Index i = 0; i < count; ++i) alone[static_cast<std::size_t>(i)] = product(i);
  parallel_for(count, [&](Index i) { together[static_cast<std::size_t>(i)] = product(i); });
  set_threads(before);
  for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(std::memcmp(alone[i].data(), together[i].data(), m * n * sizeof(float)), 0) << i;
}

}  // namespace
}  // namespace stepzero
