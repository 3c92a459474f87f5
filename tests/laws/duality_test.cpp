// Law L1 for every op in the one list, and the test of the test: spoiled doors must be seen.
#include "tests/laws/duality.hpp"

#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace stepzero::laws {
namespace {

constexpr double bound = 1e-11;            // dual numbers: rounding only
constexpr double difference_bound = 1e-6;  // central differences: h^2 and rounding / h

std::string table_row(const Example& example, std::uint64_t seed, const Duality& row) {
  return fmt::format(
      "{:<24} {:<12} backward {:+.15e}  forward {:+.15e}  differences {:+.9e}  error {:.1e}  seed {}\n"
      "run again: stepzero_tests --gtest_filter='Duality.*'",
      example.name, row.where, row.up, row.down, row.differences, row.error(), seed);
}

TEST(Duality, HoldsForEveryOp) {
  for (const Example& example : examples()) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      for (const Duality& row : check_duality(example, seed)) {
        EXPECT_TRUE(row.error() <= bound) << table_row(example, seed, row);
        const double size = std::max(std::abs(row.down), 1e-3);
        EXPECT_TRUE(std::abs(row.differences - row.down) <= difference_bound * size) << table_row(example, seed, row);
      }
    }
  }
}

TEST(Duality, EveryOpHasAnExample) {
  std::set<std::size_t> seen;
  for (const Example& example : examples()) seen.insert(example.op.index());
  EXPECT_EQ(seen.size(), std::variant_size_v<AnyOp>) << "an op of all.hpp has no example in tests/laws/examples.hpp";
}

// Each place of each op, spoiled by 2 % and by one part in a million: the law must break, there and nowhere else. A gradient
// that is 0 (of an expert that no token chose) has nothing to spoil.
TEST(Duality, SeesEveryMutant) {
  for (const Example& example : examples()) {
    const std::size_t places = check_duality(example, 1).size();
    for (std::size_t place = 0; place < places; ++place) {
      for (const double factor : {1.02, 1.000001}) {
        const auto rows = check_duality(example, 1, {static_cast<int>(place), factor});
        for (std::size_t k = 0; k < places; ++k) {
          EXPECT_EQ(rows[k].error() > bound, k == place && rows[k].down != 0) << table_row(example, 1, rows[k]) << " spoiled by " << factor;
        }
      }
    }
  }
}

// `add` must add to what is there, and not wanting a gradient must not disturb the others.
TEST(Duality, GradientsAddToWhatIsThere) {
  for (const Example& example : examples()) {
    std::visit(
        [&](const auto& op) {
          const Stage stage(example, 3);
          std::mt19937_64 random(4);
          Tensor<double> keep;
          const Tensor<double> y = run_forward(op, stage, stage.places, keep);
          const Tensor<double> dy = Stage::draw(y.rows(), y.cols(), random);
          const auto fresh = run_backward(op, stage, stage.places, y, keep, dy, false, std::nan(""));
          const auto added = run_backward(op, stage, stage.places, y, keep, dy, true, 100.0);
          for (std::size_t k = 0; k < fresh.size(); ++k) {
            for (Index i = 0; i < fresh[k].size(); ++i) {
              const double want = fresh[k].data()[i] + 100.0;
              ASSERT_TRUE(std::abs(added[k].data()[i] - want) <= 1e-11 * std::abs(want)) << example.name << " place " << k;
            }
          }
        },
        example.op);
  }
}

// dL/db_K = 0: adding one vector to all keys shifts each row of scores by a constant, which the softmax does not see.
TEST(Duality, KeyShiftHasNoGradient) {
  const Example example{"attention", Attention{.heads = 3, .kv_heads = 3, .key_dim = 5, .value_dim = 5, .scale = 0.7}, {15, 15, 15}};
  const Stage stage(example, 5);
  const auto& op = std::get<Attention>(example.op);
  std::mt19937_64 random(6);
  Tensor<double> keep;
  const Tensor<double> y = run_forward(op, stage, stage.places, keep);
  const auto g = run_backward(op, stage, stage.places, y, keep, Stage::draw(y.rows(), y.cols(), random), false, 0.0);
  for (Index c = 0; c < 15; ++c) {
    double sum = 0;
    for (Index t = 0; t < g[1].rows(); ++t) sum += g[1](t, c);
    EXPECT_NEAR(sum, 0, 1e-14);
  }
}

}  // namespace
}  // namespace stepzero::laws
