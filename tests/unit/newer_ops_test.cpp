// The numbers that the pages of docs/derivations work out by hand: scans, convolutions over time, pooling, sinks, xIELU.
#include <cmath>

#include <gtest/gtest.h>

#include "stepzero/ops/all.hpp"

namespace stepzero {
namespace {

using Numbers = std::vector<double>;

struct Rows {
  Index count;
  Numbers numbers;
};
Rows rows(Index count, Numbers numbers) { return {count, std::move(numbers)}; }

Tensor<double> tensor(const Rows& from) {
  Tensor<double> x(from.count, std::ssize(from.numbers) / from.count);
  std::ranges::copy(from.numbers, x.data());
  return x;
}

Batch batch_of(Index sequences, Index length) {
  Batch batch;
  batch.sequences = sequences;
  batch.length = length;
  batch.ids.assign(static_cast<std::size_t>(batch.tokens()), 0);
  return batch;
}

struct Done {
  Numbers y;
  std::vector<Numbers> dx, dtheta;
};

template <class O>
Done run(const O& op, const Batch& batch, const std::vector<Rows>& inputs, const std::vector<Rows>& params, const Numbers& dy) {
  std::vector<Tensor<double>> x, theta;
  for (const Rows& r : inputs) x.push_back(tensor(r));
  for (const Rows& r : params) theta.push_back(tensor(r));
  const std::vector<View<const double>> xv(x.begin(), x.end()), tv(theta.begin(), theta.end());
  const Index after = rows_after(op, batch, x.empty() ? batch.tokens() : x[0].rows());
  Tensor<double> y(after, op.channels()), keep(after, std::max<Index>(op.keep(), 1));
  const View<double> kept(keep.data(), after, op.keep());
  op.forward(Down<double>{batch, xv, tv, y.view(), kept});
  std::vector<Tensor<double>> dx, dtheta;
  std::vector<Into<double>> dxi, dti;
  for (const auto& t : x) dxi.push_back({dx.emplace_back(t.rows(), t.cols()).view()});
  for (const auto& t : theta) dti.push_back({dtheta.emplace_back(t.rows(), t.cols()).view()});
  const Tensor<double> up = tensor({after, dy.empty() ? Numbers(static_cast<std::size_t>(y.size()), 1.0) : dy});
  op.backward(Up<double>{batch, xv, tv, y.view(), kept, up.view(), dxi, dti});
  const auto numbers = [](const Tensor<double>& t) { return Numbers(t.data(), t.data() + t.size()); };
  Done out{numbers(y), {}, {}};
  for (const auto& t : dx) out.dx.push_back(numbers(t));
  for (const auto& t : dtheta) out.dtheta.push_back(numbers(t));
  return out;
}

void expect_near(const Numbers& a, const Numbers& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << i;
}

TEST(NewerOps, AScanFadesByHalf) {
  // softplus(r + b) = 1 and exp(-exp(l)) = 1/2
  const double r = std::log(std::exp(1.0) - 1), l = std::log(std::log(2.0));
  const Batch batch = batch_of(1, 3);
  const Done done = run(Scan{}, batch, {rows(3, {1, 0, 0}), rows(3, {r, r, r}), rows(3, {1, 1, 1}), rows(3, {1, 1, 1})},
                        {rows(1, {l}), rows(1, {0}), rows(1, {0})}, {0, 0, 1});
  expect_near(done.y, {1, 0.5, 0.25});
  expect_near(done.dx[0], {0.25, 0.5, 1});
  EXPECT_NEAR(done.dtheta[1][0], 0, 1e-12);  // D: what came in last was 0
}

TEST(NewerOps, AScanWithoutMemoryIsEachTokenByItself) {
  const double r = std::log(std::exp(1.0) - 1);
  const Done done =
      run(Scan{.states = 2}, batch_of(2, 2),
          {rows(4, {1, 2, 3, 4}), rows(4, {r, r, r, r}), rows(4, {1, 2, 1, 0, 0, 1, 3, 1}), rows(4, {1, 1, 2, 5, 1, 1, 1, 1})},
          {rows(1, {20, 20}), rows(1, {0.5}), rows(1, {0})}, {});
  expect_near(done.y, {3.5, 5, 4.5, 18});  // (<C, B> + 1/2) x
}

TEST(NewerOps, AWindowOverTimeLooksBack) {
  const Done one =
      run(TimeConv{.size = 2, .before = 1, .depthwise = true}, batch_of(1, 3), {rows(3, {1, 2, 3})}, {rows(1, {1, 10})}, {1, 0, 0});
  expect_near(one.y, {10, 21, 32});
  expect_near(one.dx[0], {10, 0, 0});
  expect_near(one.dtheta[0], {0, 1});
  // every second place, a matrix of two channels
  const Done two = run(TimeConv{.in = 2, .out = 1, .size = 2, .stride = 2, .bias = true}, batch_of(1, 4),
                       {rows(4, {1, 10, 2, 20, 3, 30, 4, 40})}, {rows(2, {1, 2, 3, 4}), rows(1, {0.5})}, {});
  expect_near(two.y, {1 + 4 + 30 + 80 + 0.5, 3 + 8 + 90 + 160 + 0.5});
}

TEST(NewerOps, PoolingTakesWhatItSays) {
  Batch batch = batch_of(2, 3);
  batch.ids = {4, 9, 9, 7, 1, 2};
  const std::vector<Rows> x = {rows(6, {1, 2, 6, 0, 3, 3})};
  const auto pooled = [&](const TokenPool& op) { return run(op, batch, x, {}, {3, 6}); };
  expect_near(pooled({}).y, {1, 0});
  expect_near(pooled({.count = 0}).y, {3, 2});
  expect_near(pooled({.count = 0}).dx[0], {1, 1, 1, 2, 2, 2});
  expect_near(pooled({.first = 1, .count = 0}).y, {4, 3});
  expect_near(pooled({.last = true}).y, {6, 3});
  expect_near(pooled({.largest = true}).y, {2, 0});
  expect_near(pooled({.id = 2}).y, {1, 3});  // the first sequence has none: its first token
}

TEST(NewerOps, XIeluHasOneSlopeAtZero) {
  const double a = std::log(std::exp(1.0) - 1), c = std::log(std::exp(0.5) - 1);  // softplus: 1, and 0.5 + 0.5
  const Done done = run(XIelu{.width = 4}, batch_of(1, 1), {rows(1, {2, -1, 1e-9, -1e-9})},
                        {rows(1, {a}), rows(1, {c}), rows(1, {0.5}), rows(1, {0})}, {});
  EXPECT_NEAR(done.y[0], 5, 1e-12);
  EXPECT_NEAR(done.y[1], std::exp(-1.0) - 0.5, 1e-12);
  EXPECT_NEAR(done.dx[0][0], 4.5, 1e-12);
  EXPECT_NEAR(done.dx[0][1], std::exp(-1.0) - 0.5, 1e-12);
  EXPECT_NEAR(done.dx[0][2], 0.5, 1e-8);
  EXPECT_NEAR(done.dx[0][3], 0.5, 1e-8);
}

TEST(NewerOps, ASinkTakesItsShareOfTheWeights) {
  // equal scores of 0 and a sink of ln 2: of the first token's weight 1/3 is left, of the second's 2/4
  const Done done =
      run(Attention{.sinks = true}, batch_of(1, 2), {rows(2, {0, 0}), rows(2, {1, 1}), rows(2, {3, 5})}, {rows(1, {std::log(2.0)})}, {});
  expect_near(done.y, {1, 2});
  EXPECT_NEAR(done.dtheta[0][0], -(2.0 / 3 * 1 + 0.5 * 2), 1e-12);  // -A_sink D of each token
}

TEST(NewerOps, AChunkHidesWhatIsInAnother) {
  const Done done =
      run(Attention{.chunk = 2}, batch_of(1, 4), {rows(4, {0, 0, 0, 0}), rows(4, {1, 1, 1, 1}), rows(4, {2, 4, 6, 8})}, {}, {});
  expect_near(done.y, {2, 3, 6, 7});
}

TEST(NewerOps, QueriesMayBeFewerThanKeys) {
  Batch batch = batch_of(1, 4);
  const Done done =
      run(Attention{.causal = false, .cross = true}, batch, {rows(1, {0}), rows(4, {1, 1, 1, 1}), rows(4, {2, 4, 6, 8})}, {}, {});
  expect_near(done.y, {5});
  expect_near(done.dx[2], {0.25, 0.25, 0.25, 0.25});
}

TEST(NewerOps, QueriesGrowInSteps) {
  const Done done = run(Temperature{.width = 1, .by = 1, .every = 2}, batch_of(1, 4), {rows(4, {1, 1, 1, 1})}, {}, {});
  expect_near(done.y, {1, 1 + std::log(2.0), 1 + std::log(2.0), 1 + std::log(3.0)});
}

TEST(NewerOps, ChannelsAreTakenAndJoined) {
  expect_near(run(Concat{.n = 2, .m = 1}, batch_of(1, 1), {rows(1, {1, 2}), rows(1, {3})}, {}, {4, 5, 6}).dx[1], {6});
  expect_near(run(Take{.from = 4, .first = 1, .width = 2}, batch_of(1, 1), {rows(1, {1, 2, 3, 4})}, {}, {5, 6}).dx[0], {0, 5, 6, 0});
  const Done shifted = run(Shift{.width = 1}, batch_of(2, 2), {rows(4, {1, 2, 3, 4})}, {}, {1, 10, 100, 1000});
  expect_near(shifted.y, {0, 1, 0, 3});
  expect_near(shifted.dx[0], {10, 0, 1000, 0});
}

}  // namespace
}  // namespace stepzero
