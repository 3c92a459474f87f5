// Laws L2 and L3: over the draw of inputs and parameters, the Gram matrix of forward is push, the Gram matrix of backward is
// pull, and so is the squared norm of every parameter's gradient. A rule graded exact must show no bias at all; a rule of large
// width must lose its bias as the width doubles. Spoiled by 2 %, every rule must be seen to fail.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "stepzero/core/random.hpp"
#include "stepzero/kernels/fill.hpp"
#include "tests/laws/moment_cases.hpp"

namespace stepzero::laws {
namespace {

// Six tokens in two sequences, one id twice in a sequence and one in both.
Batch small_batch() {
  Batch batch;
  batch.sequences = 2;
  batch.length = 3;
  batch.ids = {3, 1, 3, 1, 5, 9};
  batch.targets = {1, 3, 1, 5, 9, 2};
  batch.seed = 7;
  batch.encoder_ids = {2, 2, 7, 1, 8, 2};
  for (int i = 0; i < 2 * 3 * 4 * 4; ++i) batch.pixels.push_back(static_cast<float>(i * 37 % 101) / 50 - 1);
  batch.features = batch.pixels;
  return batch;
}

// A correlation matrix with cosines from 0.3 to 0.8 between tokens and sizes that differ.
Kernel token_kernel(Index tokens, double size) {
  return Kernel::from(tokens, [&](Index t, Index s) {
    const double a = size * (1 + 0.1 * static_cast<double>(t)), b = size * (1 + 0.1 * static_cast<double>(s));
    return std::sqrt(a * b) * (t == s ? 1 : 0.3 + 0.5 * std::exp(-std::abs(static_cast<double>(t - s))));
  });
}

Tensor<double> cholesky(const Kernel& K) {
  Tensor<double> L(K.tokens(), K.tokens());
  for (Index i = 0; i < K.tokens(); ++i) {
    for (Index j = 0; j < K.tokens(); ++j) {
      double x = j <= i ? K(i, j) : 0;
      for (Index k = 0; k < j && j <= i; ++k) x -= L(i, k) * L(j, k);
      L(i, j) = j > i ? 0 : i == j ? std::sqrt(x) : x / L(j, j);
    }
  }
  return L;
}

// Normal numbers of a stream, one after the other. The program's own: those of the standard library took most of the time.
class Normals {
 public:
  explicit Normals(std::uint64_t seed) : stream_(make_stream(seed, "laws")) {}

  Tensor<double> draw(Index rows, Index cols) {
    Tensor<double> z(rows, cols);
    fill(Distribution::normal(1), stream_, next_, std::span<double>(z.data(), static_cast<std::size_t>(z.size())));
    next_ += static_cast<std::uint64_t>((z.size() + 31) / 32 * 32);
    return z;
  }

 private:
  Stream stream_;
  std::uint64_t next_ = 0;
};

// Rows of length sqrt(columns), at right angles to each other.
void orthogonalise(Tensor<double>& z) {
  const Index n = z.cols();
  for (Index t = 0; t < z.rows(); ++t) {
    double* row = z.view().row(t);
    for (Index s = 0; s < t; ++s) {
      const double* other = z.view().row(s);
      const double along = dot_row(row, other, n) / static_cast<double>(n);
      for (Index c = 0; c < n; ++c) row[c] -= along * other[c];
    }
    const double size = std::sqrt(static_cast<double>(n) / dot_row(row, row, n));
    for (Index c = 0; c < n; ++c) row[c] *= size;
  }
}

Tensor<double> draw_wire(const Tensor<double>& L, Index channels, double scale, Normals& normals, bool sharp = false) {
  Tensor<double> z = normals.draw(L.rows(), channels), x(L.rows(), channels);
  if (sharp) orthogonalise(z);
  gemm(Trans::no, Trans::no, scale, View<const double>(L.view()), View<const double>(z.view()), 0.0, x.view());
  return x;
}

// Means and standard errors of many quantities over draws.
struct Tally {
  std::vector<std::string> names;
  std::vector<double> sum, squares, predicted;
  std::size_t next = 0;
  double draws = 0;

  void add(const std::string& name, double value, double rule) {
    if (next == names.size()) {
      names.push_back(name);
      sum.push_back(0);
      squares.push_back(0);
      predicted.push_back(rule);
    }
    sum[next] += value;
    squares[next] += value * value;
    ++next;
  }
  void end_draw() {
    next = 0;
    ++draws;
  }
  [[nodiscard]] double mean(std::size_t i) const { return sum[i] / draws; }
  [[nodiscard]] double error(std::size_t i) const { return std::sqrt(std::max(squares[i] / draws - mean(i) * mean(i), 0.0) / (draws - 1)); }
  [[nodiscard]] double bias(std::size_t i) const { return mean(i) / predicted[i] - 1; }
  [[nodiscard]] double bias_error(std::size_t i) const { return error(i) / std::abs(predicted[i]); }
};

double diagonal(const Kernel& K) { return K.trace(); }
double rest(const Kernel& K) { return K.sum() - K.trace(); }

Kernel gram(const Tensor<double>& x, double scale) {
  return Kernel::from(x.rows(), [&](Index t, Index s) { return scale * dot_row(x.view().row(t), x.view().row(s), x.cols()); });
}

std::vector<double> squares_of(const std::vector<Tensor<double>>& list) {
  std::vector<double> squares;
  for (const auto& x : list) squares.push_back(dot_row(x.data(), x.data(), x.size()));
  return squares;
}

// Of experts the sum over all: one alone sees few tokens in one draw and many in the next. What only a choice sees has no gradient.
template <class O>
std::vector<double> by_part([[maybe_unused]] const O& op, const std::vector<double>& squares) {
  if constexpr (std::is_same_v<O, Experts>) {
    std::vector<double> sum(static_cast<std::size_t>(op.matrices()), 0.0);
    for (std::size_t i = 0; i < squares.size(); ++i) sum[i % sum.size()] += squares[i];
    return sum;
  }
  if constexpr (std::is_same_v<O, XIelu>) return {squares[0], squares[1]};  // the others are not trained
  return squares;
}

// Runs `draws` passes through one op and compares with its own rule.
Tally run_case(const Case& c, int draws, std::uint64_t seed) {
  const Alone alone;  // what is run is too small to share, and its waiting threads would take the other tests' core
  const Batch batch = small_batch();
  const Index tokens = batch.tokens();
  Tally tally;
  std::visit(
      [&](const auto& op) {
        Normals normals(seed);
        const Index before = rows_before(op, batch), after = rows_after(op, batch, before);
        const Kernel K = token_kernel(before, c.size);
        const Kernel G = token_kernel(after, 1);
        const Tensor<double> L = cholesky(K), U = cholesky(G);
        std::vector<DownWire> moments(c.inputs.size());
        std::vector<const DownWire*> x_moments;
        for (std::size_t i = 0; i < c.inputs.size(); ++i) {
          moments[i].K = K;
          moments[i].f.noise = 1 / static_cast<double>(c.inputs[i]);
          x_moments.push_back(&moments[i]);
        }
        std::vector<Law> laws;
        const bool centred = std::is_same_v<std::decay_t<decltype(op)>, PatchEmbedding>;  // as it assumes of its vectors too
        for (const ParamShape& shape : op.params()) {
          const bool sharp = std::is_same_v<std::decay_t<decltype(op)>, XIelu>;  // its numbers start alike in every draw
          laws.push_back(shape.rows > 1 ? Law{0, 1 / static_cast<double>(shape.fan_in)} : Law{centred ? 0.0 : 1.0, sharp ? 0.0 : 0.3});
        }
        const DownWire y_moment = op.push(PushDoor{batch, x_moments, laws});
        const UpWire up(std::is_same_v<std::decay_t<decltype(op)>, CrossEntropy> ? Kernel::from(tokens, [](Index, Index) { return 1.0; })
                                                                                 : G);
        const Pulled pulled = op.pull(PullDoor{batch, x_moments, laws, y_moment, up});
        for (int d = 0; d < draws; ++d) {
          std::vector<Tensor<double>> x, theta, dx, dtheta;
          for (const Index channels : c.inputs) x.push_back(draw_wire(L, channels, 1, normals, c.sharp && x.empty()));
          for (std::size_t i = 0; i < laws.size(); ++i) {
            const ParamShape shape = op.params()[i];
            auto& w = theta.emplace_back(normals.draw(shape.rows, shape.cols));
            for (Index j = 0; j < w.size(); ++j) w.data()[j] = laws[i].mean + std::sqrt(laws[i].variance) * w.data()[j];
          }
          Batch drawn = batch;
          drawn.seed = seed + static_cast<std::uint64_t>(d);
          Tensor<double> y(after, op.channels()), keep(after, std::max<Index>(op.keep(), 1));
          const View<double> kept(keep.data(), after, op.keep());
          const std::vector<View<const double>> xv(x.begin(), x.end()), tv(theta.begin(), theta.end());
          op.forward(Down<double>{drawn, xv, tv, y.view(), kept});
          const bool loss = std::is_same_v<std::decay_t<decltype(op)>, CrossEntropy>;
          Tensor<double> dy = draw_wire(U, op.channels(), 1 / std::sqrt(static_cast<double>(op.channels())), normals);
          if (loss) std::fill_n(dy.data(), dy.size(), 1.0);
          std::vector<Into<double>> dxi, dti;
          for (const auto& t : x) dxi.push_back({dx.emplace_back(t.rows(), t.cols()).view()});
          for (const auto& t : theta) dti.push_back({dtheta.emplace_back(t.rows(), t.cols()).view()});
          op.backward(Up<double>{drawn, xv, tv, y.view(), kept, dy.view(), dxi, dti});
          if (loss) {
            double mean = 0, rule = 0;
            for (Index t = 0; t < tokens; ++t) mean += y(t, 0), rule += y_moment.mean[static_cast<std::size_t>(t)];
            tally.add("loss", mean, rule);
          } else {
            const Kernel Ky = gram(y, 1 / static_cast<double>(op.channels()));
            tally.add("push, tokens", diagonal(Ky), diagonal(y_moment.K));
            tally.add("push, pairs", rest(Ky), rest(y_moment.K));
          }
          for (std::size_t i = 0; i < dx.size(); ++i) {
            const Kernel Gx = gram(dx[i], 1);
            tally.add(fmt::format("pull, input {}, tokens", i), diagonal(Gx), diagonal(pulled.dx[i].G));
            // the pairs' gradients of a loss, of a router or of a scan's steps nearly cancel: a sum of its own size
            const bool cancel =
                loss ||
                (i == 1 && (std::is_same_v<std::decay_t<decltype(op)>, Experts> || std::is_same_v<std::decay_t<decltype(op)>, Scan>));
            tally.add(fmt::format("pull, input {}, all", i), cancel ? Gx.sum() : rest(Gx),
                      cancel ? pulled.dx[i].G.sum() : rest(pulled.dx[i].G));
          }
          const std::vector<double> squares = by_part(op, squares_of(dtheta)), rule = by_part(op, pulled.dtheta);
          for (std::size_t i = 0; i < squares.size(); ++i) tally.add(fmt::format("pull, parameter {}", i), squares[i], rule[i]);
          tally.end_draw();
        }
      },
      c.op);
  return tally;
}

constexpr int draws = 1500;

std::string row(const Case& c, const Tally& t, std::size_t i) {
  return fmt::format("{:<18} {:<24} measured {:.6g} predicted {:.6g} bias {:+.2f} % +- {:.2f} %", c.name, t.names[i], t.mean(i),
                     t.predicted[i], 100 * t.bias(i), 100 * t.bias_error(i));
}

// Bias allowed besides 6 standard errors: none where the rule is exact.
double allowance(const Case& c) {
  switch (grade_of(c.op)) {
    case Grade::exact:
      return 1e-12;  // rounding, where nothing is drawn
    case Grade::large_width:
      return 2.0 / static_cast<double>(width_for(c.op));
    case Grade::sampled:
      return 0.01;  // the rule's own noise
    default:
      return 0.05;  // series cut
  }
}

// A test for each op: they run side by side, and one that fails names its op.
class MomentLaw : public testing::TestWithParam<Case> {};

TEST_P(MomentLaw, PushAndPullHold) {
  const Case& c = GetParam();
  const Tally t = run_case(c, draws * c.more * (grade_of(c.op) == Grade::exact ? 8 : 1), 1);
  bool sees_tokens = false;  // a rule that is 2 % (approximate ones: 20 %) too large must be seen in at least one quantity
  for (std::size_t i = 0; i < t.names.size(); ++i) {
    const double bound = 6 * t.bias_error(i) + allowance(c);
    EXPECT_TRUE(t.bias_error(i) <= 0.025) << "too few draws: " << row(c, t, i);
    EXPECT_TRUE(std::abs(t.bias(i)) <= bound) << row(c, t, i);
    const double spoiled = (1 + t.bias(i)) / (grade_of(c.op) == Grade::approximate ? 1.2 : 1.02) - 1;
    sees_tokens = sees_tokens || !(std::abs(spoiled) <= bound);
  }
  EXPECT_TRUE(sees_tokens) << "a spoiled rule would pass";
}

INSTANTIATE_TEST_SUITE_P(EveryOp, MomentLaw, testing::ValuesIn(all_cases()), [](const auto& one) {
  std::string name = one.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

// What a rule of large width is wrong by must fall at least like 0.7 when the width doubles.
TEST(MomentLaws, BiasFallsWithWidth) {
  const auto narrow = cases(width / 2), wide = cases(2 * width);
  for (std::size_t k = 0; k < narrow.size(); ++k) {
    if (grade_of(narrow[k].op) != Grade::large_width) continue;
    const Tally a = run_case(narrow[k], draws, 2), b = run_case(wide[k], draws / 2, 3);
    for (std::size_t i = 0; i < a.names.size(); ++i) {
      EXPECT_TRUE(std::abs(b.bias(i)) <= 0.5 * std::abs(a.bias(i)) + 6 * std::hypot(a.bias_error(i), b.bias_error(i)))
          << row(wide[k], b, i) << " narrow " << 100 * a.bias(i);
    }
  }
}

TEST(MomentLaws, EveryOpHasACase) {
  std::vector<bool> seen(std::variant_size_v<AnyOp>, false);
  for (const Case& c : cases(width)) seen[c.op.index()] = true;
  for (const bool s : seen) EXPECT_TRUE(s);
}

}  // namespace
}  // namespace stepzero::laws
