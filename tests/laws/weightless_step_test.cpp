// A matrix that is not made, met again after its first update: identities that hold for every draw.
#include <cstdlib>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "stepzero/pass/first_update.hpp"
#include "weightless_law.hpp"

namespace stepzero::laws {
namespace {

Tensor<double> draw(Index rows, Index cols, std::uint64_t seed, double size = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Tensor<double> x(rows, cols);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(size * normal(random));
  return x;
}

Tensor<double> product(View<const double> a, View<const double> b, Trans ta = Trans::no, Trans tb = Trans::yes) {
  Tensor<double> c(ta == Trans::no ? a.rows : a.cols, tb == Trans::no ? b.cols : b.rows);
  gemm_reference<double>(ta, tb, 1, a, b, 0, c.view());
  return c;
}

double distance(View<const double> a, View<const double> b) {
  double most = 0;
  for (Index r = 0; r < a.rows; ++r) {
    for (Index c = 0; c < a.cols; ++c) most = std::max(most, std::abs(a(r, c) - b(r, c)));
  }
  return most;
}

double largest(View<const double> a) {
  double most = 0;
  for (Index r = 0; r < a.rows; ++r) {
    for (Index c = 0; c < a.cols; ++c) most = std::max(most, std::abs(a(r, c)));
  }
  return most;
}

struct OneThread {
  int before = threads();
  OneThread() { set_threads(1); }
  ~OneThread() { set_threads(before); }
};

struct Shape {
  Index tokens, in, out;
};

// One matrix with a bias, and explicit rows where asked for: both doors, then an update, then other inputs.
struct Bench {
  WeightlessLinear op;
  Batch batch;
  Tensor<double> x, y, dy, dx, table, new_table, bias, new_bias;
  FirstPass<double> first;
  bool same = true;

  Bench(const Shape& s, std::vector<Index> rows = {}, double mean = 0)
      : op{.in = s.in, .out = s.out, .bias = true, .s = 0.4, .u = mean, .rows = std::move(rows)},
        x(draw(s.tokens, s.in, 1)),
        y(s.tokens, s.out),
        dy(draw(s.tokens, s.out, 2)),
        dx(s.tokens, s.in),
        table(draw(std::ssize(op.rows), s.in, 3)),
        new_table(draw(std::ssize(op.rows), s.in, 4)),
        bias(draw(1, s.out, 5)),
        new_bias(draw(1, s.out, 6)) {
    op.seen = make_stream(1, "seen");
    op.unseen = make_stream(1, "unseen");
    op.fresh = make_stream(1, "fresh");
    op.first = &first;
    batch.length = s.tokens;
    const std::vector<View<const double>> xs = {x.view()}, thetas = {table.view(), bias.view()};
    const RowSpace space = row_space(View<const double>(x));
    op.forward(Down<double>{batch, xs, thetas, y.view(), {}}, space);
    Tensor<double> dtable(table.rows(), s.in), dbias(1, s.out);
    const std::vector<Into<double>> dxs = {{dx.view()}}, dthetas = {{dtable.view()}, {dbias.view()}};
    op.backward(Up<double>{batch, xs, thetas, y.view(), {}, dy.view(), dxs, dthetas}, space);
  }

  void update(const TensorPlan& plan, double shrink = 1) {
    FirstPass<double>* const blocks[] = {&first};
    plan_first_update<double>(plan, shrink, blocks);
  }

  Tensor<double> again(const Tensor<double>& x_now) {
    op.again = true;
    first.same_tokens = same;
    Tensor<double> y_now(x_now.rows(), op.out);
    const std::vector<View<const double>> xs = {x_now.view()}, thetas = {new_table.view(), new_bias.view()};
    op.forward(Down<double>{batch, xs, thetas, y_now.view(), {}}, {});
    return y_now;
  }

  // Without biases.
  [[nodiscard]] Tensor<double> bare(const Tensor<double>& of, const Tensor<double>& b) const {
    Tensor<double> out(of.rows(), of.cols());
    for (Index t = 0; t < of.rows(); ++t) {
      for (Index c = 0; c < of.cols(); ++c) out(t, c) = of(t, c) - b(0, c);
    }
    return out;
  }
};

const TensorPlan still = {.rule = Sgd{}, .rate = {.rate = 0}};

std::vector<Shape> shapes() { return {{1, 9, 5}, {6, 20, 15}, {6, 20, 3}, {7, 7, 40}, {5, 700, 1100}, {9, 1100, 300}}; }

// Whatever W is: dY (X~ W')' = (dY W) X~' = dX X~', and M X goes to M Y. A step of rate 0 leaves W as it is.
TEST(WeightlessStep, MeetsTheMatrixThatBothDoorsSaw) {
  const OneThread quiet;
  for (const Shape& s : shapes()) {
    for (const double mean : {0.0, 0.3}) {
      for (const bool same : {true, false}) {
        Bench b(s, {}, mean);
        b.update(still);
        b.same = same;
        const Tensor<double> other = draw(s.tokens, s.in, 7), y = b.bare(b.again(other), b.new_bias);
        const Tensor<double> up = product(b.dx, other), down = product(b.dy, y);
        EXPECT_TRUE(distance(up, down) <= 1e-9 * largest(down))
            << fmt::format("T {} n {} m {}: {}", s.tokens, s.in, s.out, distance(up, down));
        const Tensor<double> mix = draw(s.tokens, s.tokens, 8);
        const Tensor<double> mixed = product(mix, b.x, Trans::no, Trans::no);
        const Tensor<double> want = product(mix, b.bare(b.y, b.bias), Trans::no, Trans::no), got = b.bare(b.again(mixed), b.new_bias);
        EXPECT_TRUE(distance(want, got) <= 1e-9 * largest(want))
            << fmt::format("T {} n {} m {}: {}", s.tokens, s.in, s.out, distance(want, got));
        b.op.recall = false;
        if (s.in > s.tokens) {
          const Tensor<double> forgotten = product(b.dy, b.bare(b.again(other), b.new_bias));
          EXPECT_TRUE(distance(up, forgotten) > 1e-3 * largest(down)) << "a mistake was not seen";
        }
      }
    }
  }
}

// What neither door saw has the size it should have: X~ orthogonal to X, through rows of W orthogonal to dY.
TEST(WeightlessStep, FreshPartHasItsVariance) {
  const OneThread quiet;
  const Shape s{4, 40, 3000};
  Bench b(s);
  b.update(still);
  const Tensor<double> other = draw(s.tokens, s.in, 7), y = b.bare(b.again(other), b.new_bias);
  b.op.renew = false;
  const Tensor<double> known = b.bare(b.again(other), b.new_bias);
  Tensor<double> p = draw(s.tokens, s.in, 7);
  std::vector<double> inner = inner_products<double>(p.view(), b.x.view());
  const View<double> a(inner.data(), s.tokens, s.tokens);
  b.first.space.project(a);
  b.first.space.lift(a);
  wide_product<double>(narrow<double>(a, s.tokens, -1).view(), b.x.view(), true, p.view());
  for (Index t = 0; t < s.tokens; ++t) {
    double got = 0, size = 0;
    for (Index c = 0; c < s.out; ++c) got += (y(t, c) - known(t, c)) * (y(t, c) - known(t, c));
    for (Index i = 0; i < s.in; ++i) size += p(t, i) * p(t, i);
    const double want = 0.4 * 0.4 * size * static_cast<double>(s.out - s.tokens);
    EXPECT_NEAR(got / want, 1, 6 * std::sqrt(2.0 / static_cast<double>(s.out)));
  }
}

std::vector<std::pair<const char*, TensorPlan>> plans() {
  const TensorRate rate{.rate = 0.03, .decay = 0.2, .eps = 0.5};
  return {{"sgd", {Sgd{}, rate}},
          {"sgd, Nesterov", {Sgd{0.9, true}, rate}},
          {"adamw", {AdamW{}, rate}},
          {"lion", {Lion{}, rate}},
          {"muon", {Muon{.momentum = 0.95, .nesterov = true, .scale = 1.3}, rate}},
          {"muon, Newton-Schulz", {Muon{.momentum = 0.95, .newton_schulz = 5, .scale = 0.7}, rate}}};
}

// With as many tokens as inputs the two doors know all of W: the step is that of a real matrix, to rounding.
TEST(WeightlessStep, EqualsARealStepWhereAllIsKnown) {
  const OneThread quiet;
  for (const Shape& s : {Shape{12, 12, 20}, Shape{14, 9, 700}, Shape{40, 30, 8}}) {
    for (const auto& [name, plan] : plans()) {
      for (const double shrink : {1.0, 0.3}) {
        for (const bool same : {true, false}) {
          Bench b(s);
          b.same = same;
          // W from Y = X W'
          const RowSpace& space = b.first.space;
          const Tensor<double> y = b.bare(b.y, b.bias);
          std::vector<double> rows(static_cast<std::size_t>(s.out * s.tokens));
          const View<double> wl(rows.data(), s.out, s.tokens);
          for (Index i = 0; i < s.out; ++i) {
            for (Index k = 0; k < space.rank; ++k) {  // s Z' = Y' L_p^-T
              const Index p = space.pivots[static_cast<std::size_t>(k)];
              double sum = y(p, i);
              for (Index j = 0; j < k; ++j) sum -= wl(i, j) * space.row(p)[j];
              wl(i, k) = sum / space.row(p)[k];
            }
          }
          space.lift(wl);
          Tensor<double> w = product(wl, b.x, Trans::no, Trans::no);
          Tensor<double> g = product(b.dy, b.x, Trans::yes, Trans::no);
          Tensor<double> w_now = met_again::copy<double>(w.view());
          update_first<double>(plan, w_now.view(), g.view(), shrink);
          b.update(plan, shrink);
          const Tensor<double> other = draw(s.tokens, s.in, 7);
          const Tensor<double> got = b.bare(b.again(other), b.new_bias), want = product(other, w_now);
          EXPECT_TRUE(distance(got, want) <= 1e-8 * largest(want)) << name << ": " << distance(got, want) / largest(want);
          // the sums of the update
          double squares = 0, along = 0;
          for (Index i = 0; i < w.size(); ++i) {
            const double u = (w.data()[i] * (1 - plan.rate.rate * plan.rate.decay) - w_now.data()[i]) / plan.rate.rate;
            squares += u * u;
            along += u * g.data()[i];
          }
          EXPECT_NEAR(b.first.sums.update_squares, squares, 1e-8 * squares) << name;
          EXPECT_NEAR(b.first.sums.along, along, 1e-8 * std::abs(along)) << name;
          if (!same) continue;
          // and its parts
          Tensor<double> change = met_again::copy<double>(w_now.view()), moved = met_again::copy<double>(other.view());
          for (Index i = 0; i < w.size(); ++i) change.data()[i] -= w.data()[i];
          for (Index i = 0; i < moved.size(); ++i) moved.data()[i] -= b.x.data()[i];
          const Tensor<double> direct = product(b.x, change), carried = product(moved, w);
          const auto size = [](const Tensor<double>& a) {
            double sum = 0;
            for (Index i = 0; i < a.size(); ++i) sum += a.data()[i] * a.data()[i];
            return sum;
          };
          EXPECT_NEAR(b.first.sums.direct, size(direct), 1e-8 * size(direct)) << name;
          EXPECT_NEAR(b.first.sums.carried, size(carried), 1e-8 * size(carried)) << name;
        }
      }
    }
  }
}

// A tensor of several blocks that read one wire: Muon turns it as a whole.
TEST(WeightlessStep, MuonTurnsAFusedTensorAsAWhole) {
  const Shape s{10, 10, 14};
  Bench a(s), b(s);
  b.first.dy = draw(s.tokens, s.out, 12);
  b.first.down = row_space(View<const double>(b.first.dy));
  const TensorPlan plan{Muon{.scale = 1}, {.rate = 1}};
  FirstPass<double>* const blocks[] = {&a.first, &b.first};
  plan_first_update<double>(plan, 1, blocks);
  Tensor<double> dy(s.tokens, 2 * s.out);
  for (Index t = 0; t < s.tokens; ++t) {
    std::copy_n(a.dy.view().row(t), s.out, dy.view().row(t));
    std::copy_n(b.first.dy.view().row(t), s.out, dy.view().row(t) + s.out);
  }
  const Tensor<double> g = product(dy, a.x, Trans::yes, Trans::no), u = polar_factor<double>(g.view());
  const Tensor<double> want = product(a.x, u);
  Tensor<double> got(s.tokens, s.out);
  for (int k = 0; k < 2; ++k) {
    met_again::products<double>(a.op, *blocks[k], a.x.view(), got.view());
    EXPECT_TRUE(distance(got, want.view().columns(k * s.out, s.out)) <= 1e-9);
  }
}

// Explicit rows of a tied table: their columns are products with the rows themselves.
TEST(WeightlessStep, ExplicitRows) {
  for (const auto& [name, plan] : plans()) {
    if (std::holds_alternative<Muon>(plan.rule)) continue;  // tables are not its own
    for (const bool same : {true, false}) {
      const std::vector<Index> rows = {0, 7, 14};
      Bench b({6, 20, 15}, rows);
      b.same = same;
      b.update(plan);
      const Tensor<double> other = draw(6, 20, 7), got = b.bare(b.again(other), b.new_bias), want = product(other, b.new_table);
      for (Index t = 0; t < 6; ++t) {
        for (Index k = 0; k < 3; ++k) EXPECT_NEAR(got(t, rows[static_cast<std::size_t>(k)]), want(t, k), 1e-9) << name;
      }
    }
  }
}

// An expert that no token chose in the first pass: as fresh as a matrix can be.
TEST(WeightlessStep, NeverSeen) {
  FirstPass<double> first;
  WeightlessLinear op{.in = 50, .out = 4000, .s = 0.3, .fresh = make_stream(2, "fresh"), .first = &first, .again = true};
  FirstPass<double>* const blocks[] = {&first};
  plan_first_update<double>({AdamW{}, {.rate = 1, .decay = 1}, true}, 1, blocks);
  const Tensor<double> x = draw(3, 50, 1);
  Tensor<double> y(3, 4000);
  const std::vector<View<const double>> xs = {x.view()}, thetas = {View<const double>()};
  Batch batch;
  op.forward(Down<double>{batch, xs, thetas, y.view(), {}}, {});
  const Tensor<double> got = product(y, y), size = product(x, x);
  for (Index t = 0; t < 3; ++t) EXPECT_NEAR(got(t, t) / (4000 * 0.09 * size(t, t)), 1, 6 * std::sqrt(2.0 / 4000));
}

// ---- the law

// Spoils every matrix, those of experts too.
Mutant of_matrices(const std::function<void(WeightlessLinear&)>& spoil) {
  return [spoil](const Graph&, Weightless& w) {
    for (auto& node : w.nodes) {
      if (auto* linear = std::get_if<WeightlessLinear>(&node)) spoil(*linear);
      if (auto* lora = std::get_if<WeightlessLora>(&node)) spoil(lora->base);
      if (auto* experts = std::get_if<WeightlessExperts>(&node)) std::ranges::for_each(experts->matrices, spoil);
    }
  };
}
const Mutant without_recall = of_matrices([](WeightlessLinear& w) { w.recall = false; });
const Mutant without_fresh = of_matrices([](WeightlessLinear& w) { w.renew = false; });

std::string worst_rows(const Agreement& agreement) {
  std::string out;
  for (const Comparison& row : agreement.rows) {
    if (std::max(std::abs(row.z_mean), std::abs(row.z_variance)) < 3.5) continue;
    out += fmt::format("{:<56} {:>12.5g} {:>12.5g} {:>7.2f} {:>7.2f}\n", row.what, row.real, row.weightless, row.z_mean, row.z_variance);
  }
  return out + "run again: stepzero_tests --gtest_filter='WeightlessStepLaw.*'\n";
}

// One optimizer each for three architectures: GPT-2 by AdamW, LLaMA by Muon, Mixtral by SGD.
TEST(WeightlessStepLaw, HoldsForThreeSteps) {
  const OneThread quiet;
  for (const int line : {1, 11, 15}) {
    const WeightlessCase c = weightless_step_cases()[static_cast<std::size_t>(line)];
    const Agreement agreement = compare(step_ensemble(c, false, 120, line), step_ensemble(c, true, 120, line));
    EXPECT_TRUE(agreement.largest <= 5) << c.name << ": " << agreement.largest_at << "\n" << worst_rows(agreement);
    EXPECT_TRUE(agreement.rms_mean <= 1.5 && agreement.rms_variance <= 1.5)
        << c.name << " " << agreement.rms_mean << " " << agreement.rms_variance;
  }
}

TEST(WeightlessStepLaw, SeesEveryMutant) {
  const OneThread quiet;
  for (const int line : {1, 11, 15}) {
    const WeightlessCase c = weightless_step_cases()[static_cast<std::size_t>(line)];
    const Draws real = step_ensemble(c, false, 100, line);
    for (const Mutant& mutant : {without_recall, without_fresh}) {
      EXPECT_GT(compare(real, step_ensemble(c, true, 100, line, mutant)).largest, 6) << c.name;
    }
  }
}

// The whole grid, as the table of docs/weightless.md: ./dev weightless
TEST(WeightlessStepLaw, Grid) {
  const char* wanted = std::getenv("STEPZERO_WEIGHTLESS_STEP_SEEDS");
  if (wanted == nullptr) GTEST_SKIP() << "run by ./dev weightless";
  const OneThread quiet;
  const int seeds = std::atoi(wanted);
  fmt::print(
      "| model | optimizer | numbers | means: rms z | real against real | variances: rms z | real against real | largest z | way up "
      "forgotten | nothing new |\n|---|---|---|---|---|---|---|---|---|---|\n");
  double means = 0, variances = 0, count = 0;
  const std::vector<WeightlessCase> cases = weightless_step_cases();
  for (int line = 0; line < static_cast<int>(cases.size()); ++line) {
    const WeightlessCase& c = cases[static_cast<std::size_t>(line)];
    const Draws real = step_ensemble(c, false, seeds, line);
    const Agreement agreement = compare(real, step_ensemble(c, true, seeds, line));
    const Agreement control = compare(real, step_ensemble(c, false, seeds, line + 100));
    const auto mutated = [&](const Mutant& mutant) { return compare(real, step_ensemble(c, true, seeds, line, mutant)).largest; };
    const double forgotten = mutated(without_recall), stale = mutated(without_fresh);
    fmt::print("| {} | {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.1f} | {:.0f} | {:.0f} |\n", c.name, c.step.optimizer.name,
               agreement.rows.size(), agreement.rms_mean, control.rms_mean, agreement.rms_variance, control.rms_variance, agreement.largest,
               forgotten, stale);
    std::fflush(stdout);
    const auto n = static_cast<double>(agreement.rows.size());
    means += agreement.rms_mean * agreement.rms_mean * n;
    variances += agreement.rms_variance * agreement.rms_variance * n;
    count += n;
    EXPECT_TRUE(agreement.largest <= 5) << c.name << ": " << agreement.largest_at << "\n" << worst_rows(agreement);
    EXPECT_TRUE(std::min(forgotten, stale) > 6) << c.name;
  }
  fmt::print("| all | | {:.0f} | {:.2f} | | {:.2f} | | | | |\n", count, std::sqrt(means / count), std::sqrt(variances / count));
  for (const double squares : {means, variances}) EXPECT_TRUE(std::sqrt(squares / count) >= 0.85 && std::sqrt(squares / count) <= 1.15);
}

}  // namespace
}  // namespace stepzero::laws
