// Law L5: over draws of inputs and parameters, the Gram matrix of
//
//     forward(x + D; theta - rate U) - forward(x; theta),     U what an optimizer makes of backward's own gradients,
//
// is what move says, and so are its overlap with the old output, the norm of U and what it takes from the loss to first order. Wrong
// rules must be seen to fail.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "stepzero/graph/graph.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/ops/move/experts.hpp"
#include "stepzero/ops/move/heads.hpp"
#include "stepzero/ops/move/linear.hpp"
#include "stepzero/ops/move/lora.hpp"
#include "stepzero/ops/move/norm.hpp"
#include "stepzero/ops/move/pointwise.hpp"
#include "stepzero/ops/move/sums.hpp"
#include "stepzero/ops/move/tables.hpp"
#include "stepzero/optim/polar.hpp"

namespace stepzero::laws {
namespace {

constexpr Index tokens = 6;

Batch small_batch() {
  Batch batch;
  batch.sequences = 2;
  batch.length = 3;
  batch.ids = {3, 1, 3, 1, 5, 9};
  batch.targets = {1, 3, 1, 5, 9, 2};
  return batch;
}

class Normals {
 public:
  explicit Normals(std::uint64_t seed) : stream_(make_stream(seed, "move")) {}

  Tensor<double> draw(Index rows, Index cols, double std = 1) {
    Tensor<double> z(rows, cols);
    fill(Distribution::normal(std), stream_, next_, std::span<double>(z.data(), static_cast<std::size_t>(z.size())));
    next_ += static_cast<std::uint64_t>((z.size() + 31) / 32 * 32);
    return z;
  }

 private:
  Stream stream_;
  std::uint64_t next_ = 0;
};

Kernel cosines(double size, double near, double far) {
  return Kernel::from(tokens, [&](Index t, Index s) {
    const double a = size * (1 + 0.1 * static_cast<double>(t)), b = size * (1 + 0.1 * static_cast<double>(s));
    return std::sqrt(a * b) * (t == s ? 1 : far + near * std::exp(-std::abs(static_cast<double>(t - s))));
  });
}

Tensor<double> times_root(const Square& root, const Tensor<double>& z) {
  Tensor<double> out(z.rows(), z.cols());
  gemm<double>(Trans::no, Trans::no, 1.0, root.view(), z.view(), 0.0, out.view());
  return out;
}

// What an optimizer makes of a gradient; `ones`: the mutant whose sign of 0 is 1.
Tensor<double> update_for(const Update& u, const Tensor<double>& g, bool ones = false) {
  Tensor<double> out(g.rows(), g.cols());
  if (u.rule == Update::Rule::none) {
    std::fill_n(out.data(), out.size(), 0.0);
    return out;
  }
  if (u.rule == Update::Rule::polar) {
    out = u.newton_schulz > 0 ? newton_schulz_factor(g.view(), u.newton_schulz) : polar_factor(g.view());
    for (Index i = 0; i < out.size(); ++i) out.data()[i] *= u.times;
    return out;
  }
  for (Index i = 0; i < g.size(); ++i) {
    const double x = g.data()[i];
    out.data()[i] = u.rule == Update::Rule::sgd ? u.times * x : x == 0 ? (ones ? 1 : 0) : x / (std::abs(x) + u.eps);
  }
  return out;
}

// Mean and error of every entry of a (T, T) matrix over draws.
struct Entries {
  Square sum = Square(tokens), squares = Square(tokens);
  double count = 0;

  void add(const Square& m) {
    sum += m;
    squares += by_entry(m, m);
    count += 1;
  }
  [[nodiscard]] double mean(Index t, Index s) const { return sum(t, s) / count; }
  [[nodiscard]] double error(Index t, Index s) const {
    return std::sqrt(std::max(squares(t, s) / count - mean(t, s) * mean(t, s), 0.0) / count);
  }
};

struct Number {
  double sum = 0, squares = 0, count = 0;
  void add(double x) { sum += x, squares += x * x, count += 1; }
  [[nodiscard]] double mean() const { return sum / count; }
  [[nodiscard]] double error() const { return std::sqrt(std::max(squares / count - mean() * mean(), 0.0) / count); }
};

// The largest deviation beyond six standard errors, in units of the tokens' sizes. A rule of large width may be off by c / n.
double miss(const Entries& measured, const Square& predicted, const Square& sizes) {
  double worst = 0;
  for (Index t = 0; t < tokens; ++t) {
    for (Index s = 0; s < tokens; ++s) {
      const double unit = std::sqrt(sizes(t, t) * sizes(s, s));
      const double off = std::abs(measured.mean(t, s) - predicted(t, s)) - 6 * measured.error(t, s);
      worst = std::max(worst, std::isfinite(off) && unit > 0 ? off / unit : INFINITY);
    }
  }
  return worst;
}

double miss(const Number& measured, double predicted) {
  const double off = std::abs(measured.mean() - predicted) - 6 * measured.error();
  return std::isfinite(off) ? std::max(off, 0.0) / std::abs(predicted) : INFINITY;
}

Square gram(const Tensor<double>& a, const Tensor<double>& b) {
  Square out(tokens);
  gemm<double>(Trans::no, Trans::yes, 1 / static_cast<double>(a.cols()), a.view(), b.view(), 0.0, out.view());
  return out;
}

// How the input of an op has changed before: D = stretch x - response dx + noise.
struct Before {
  double stretch = 0, response = 0, noise = 0;

  [[nodiscard]] WireChange change(const Kernel& K, const Kernel& G, double n) const {
    WireChange c{.response = Square(tokens), .size = Square(tokens), .stretch = Square(tokens)};
    for (Index t = 0; t < tokens; ++t) {
      c.stretch(t, t) = stretch;
      for (Index s = 0; s <= t; ++s) c.response(t, s) = response / static_cast<double>(1 + t - s);
    }
    c.size = between(c.stretch, Square::of(K)) + (1 / n) * between(c.response, Square::of(G)) + (noise * noise) * Square::of(K);
    return c;
  }
};

struct Findings {
  double size = 0, overlap = 0, norm = 0, decrease = 0;
};

struct Subject {
  Index n_in = 0, n_out = 0;
  std::vector<Update> updates;
  double scale = 0.05;  // standard deviation of the weights
  Before before = {};
  int draws = 120;
  bool ones = false;    // the update's sign of 0 is 1
  bool silent = false;  // the last token has no gradient
  Batch batch = small_batch();
};

// One op, all of whose parameters have a law of their own.
template <class Op>
Findings law_of(const Op& op, const Subject& c, const std::vector<Law>& laws, const std::function<void(WireChange&)>& spoil = {},
                std::uint64_t seed = 1) {
  const Batch& batch = c.batch;
  const Kernel K = cosines(1, 0.5, 0.3);
  const Kernel G = Kernel::from(
      tokens, [&](Index t, Index s) { return c.silent && (t + 1 == tokens || s + 1 == tokens) ? 0 : cosines(1, 0.4, 0.1)(t, s); });
  const auto inputs = static_cast<std::size_t>(op.inputs());
  DownWire x{Moment{.K = K}};
  x.width = c.n_in;
  x.f.noise = c.n_in > 0 ? 1 / static_cast<double>(c.n_in) : 0;
  std::vector<const DownWire*> wires(inputs, &x);
  DownWire y = op.push({batch, wires, laws});
  y.width = c.n_out;
  UpWire dy(G);
  const Pulled up = op.pull({batch, wires, laws, y, dy});
  const Mover mover = move(op, MoveDoor{.batch = batch, .x = wires, .y = y, .G = G, .theta = laws, .updates = c.updates});
  std::vector<WireChange> changes;
  for (std::size_t k = 0; k < inputs; ++k) changes.push_back(c.before.change(K, up.dx[k].G, static_cast<double>(c.n_in)));
  std::vector<const WireChange*> list;
  for (const WireChange& one : changes) list.push_back(&one);
  WireChange predicted = mover.run(list, 1);
  if (spoil) spoil(predicted);
  double norm = 0, decrease = 0;
  for (const ParameterMove& p : mover.params) norm += p.norm2, decrease += p.decrease;

  Normals normals(seed);
  const Square root = root_of(Square::of(K)), up_root = (1 / std::sqrt(static_cast<double>(c.n_out))) * root_of(Square::of(G));
  Entries size, overlap;
  Number norms, decreases;
  for (int draw = 0; draw < c.draws; ++draw) {
    std::vector<Tensor<double>> xs, theta, after, dx, dtheta;
    for (std::size_t k = 0; k < inputs; ++k) {
      xs.push_back(times_root(root, normals.draw(tokens, c.n_in)));
      dx.emplace_back(tokens, c.n_in);
    }
    const std::vector<ParamShape> shapes = op.params();
    for (std::size_t k = 0; k < shapes.size(); ++k) {
      theta.push_back(normals.draw(shapes[k].rows, shapes[k].cols, std::sqrt(laws[k].variance)));
      for (Index i = 0; i < theta[k].size(); ++i) theta[k].data()[i] += laws[k].mean;
      dtheta.emplace_back(shapes[k].rows, shapes[k].cols);
    }
    const auto views = [](const std::vector<Tensor<double>>& from) {
      std::vector<View<const double>> out;
      for (const Tensor<double>& t : from) out.push_back(t.view());
      return out;
    };
    Tensor<double> y0(tokens, c.n_out), y1(tokens, c.n_out), keep(tokens, std::max<Index>(op.keep(), 1));
    op.forward(Down<double>{batch, views(xs), views(theta), y0.view(), keep.view()});
    const Tensor<double> d = times_root(up_root, normals.draw(tokens, c.n_out));
    std::vector<Into<double>> into, into_theta;
    for (auto& t : dx) into.push_back({t.view()});
    for (auto& t : dtheta) into_theta.push_back({t.view()});
    const auto x_views = views(xs), theta_views = views(theta);
    op.backward(Up<double>{batch, x_views, theta_views, y0.view(), keep.view(), d.view(), into, into_theta});
    double norm_here = 0, decrease_here = 0;
    for (std::size_t k = 0; k < theta.size(); ++k) {
      const Tensor<double> U = update_for(c.updates[k], dtheta[k], c.ones);
      for (Index i = 0; i < U.size(); ++i) {
        norm_here += U.data()[i] * U.data()[i];
        decrease_here += U.data()[i] * dtheta[k].data()[i];
        theta[k].data()[i] -= c.updates[k].rate * U.data()[i];
      }
    }
    for (std::size_t k = 0; k < inputs; ++k) {
      Tensor<double> moved = times_root(changes[k].response, dx[k]);
      const Tensor<double> noise = times_root(root, normals.draw(tokens, c.n_in, c.before.noise));
      for (Index i = 0; i < moved.size(); ++i) {
        xs[k].data()[i] += c.before.stretch * xs[k].data()[i] - moved.data()[i] + noise.data()[i];
      }
    }
    op.forward(Down<double>{batch, views(xs), views(theta), y1.view(), keep.view()});
    for (Index i = 0; i < y1.size(); ++i) y1.data()[i] -= y0.data()[i];
    size.add(gram(y1, y1));
    overlap.add(gram(y1, y0));
    norms.add(norm_here);
    decreases.add(decrease_here);
  }
  Findings out;
  out.size = miss(size, predicted.size, predicted.size);
  Square both = Square::of(y.K);
  out.overlap = 0;
  const Square Y = predicted.stretch * both;
  for (Index t = 0; t < tokens; ++t) {
    for (Index s = 0; s < tokens; ++s) {
      const double unit = std::sqrt(predicted.size(t, t) * both(s, s));
      const double off = std::abs(overlap.mean(t, s) - Y(t, s)) - 6 * overlap.error(t, s);
      out.overlap = std::max(out.overlap, unit > 0 ? off / unit : 0);
    }
  }
  if (norm > 0) out.norm = miss(norms, norm);
  if (decrease > 0) out.decrease = miss(decreases, decrease);
  return out;
}

constexpr Index n = 128;
constexpr double width_bias = 6.0 / static_cast<double>(n);  // of a rule of large width

Update sgd(double rate) { return {.rule = Update::Rule::sgd, .rate = rate}; }
Update sign(double rate, double eps = 0) { return {.rule = Update::Rule::sign, .rate = rate, .eps = eps}; }
Update polar(double rate, int newton_schulz = 0) { return {.rule = Update::Rule::polar, .rate = rate, .newton_schulz = newton_schulz}; }

const char* name_of(const Update& u) { return u.rule == Update::Rule::sgd ? "sgd" : u.rule == Update::Rule::sign ? "sign" : "polar"; }

const std::vector<Law> matrix_law = {{0, 0.05 * 0.05}, {0, 0}};

void expect_law(const Findings& f, const char* what) {
  EXPECT_LE(f.size, width_bias) << what << ": size";
  EXPECT_LE(f.overlap, width_bias) << what << ": overlap";
  EXPECT_LE(f.norm, width_bias) << what << ": norm of the update";
  EXPECT_LE(f.decrease, width_bias) << what << ": decrease of the loss";
}

TEST(Move, LinearUnderEveryOptimizer) {
  const Linear op{.in = n, .out = n, .bias = true};
  const Before before{.stretch = -0.2, .response = 0.1, .noise = 0.3};
  expect_law(law_of(op, {n, n, {sgd(1e-3), sgd(1e-3)}, 0.05, before}, matrix_law), "sgd");
  expect_law(law_of(op, {n, n, {sign(1e-2), sign(1e-2)}, 0.05, before}, matrix_law), "sign");
  expect_law(law_of(op, {n, n, {sign(1e-2, 0.1), sign(1e-2, 0.1)}, 0.05, before}, matrix_law), "sign with a large eps");
  expect_law(law_of(op, {n, n, {polar(0.5), sign(1e-2)}, 0.05, before, 30}, matrix_law), "polar");
  expect_law(law_of(op, {n, n, {polar(0.5, 5), sign(1e-2)}, 0.05, before, 30}, matrix_law), "Newton-Schulz");
}

// An adapter that begins at 0, beside a frozen matrix: only its second matrix has a gradient.
TEST(Move, Adapters) {
  const LoraLinear op{.base = {.in = n, .out = n, .bias = false}, .rank = 8, .scale = 2};
  const std::vector<Law> laws = {{0, 0.05 * 0.05}, {0, 1.0 / n}, {0, 0}};
  const Before before{.stretch = -0.2, .response = 0.1, .noise = 0.3};
  expect_law(law_of(op, {n, n, {{}, sgd(1e-2), sgd(1e-2)}, 0.05, before}, laws), "sgd");
  expect_law(law_of(op, {n, n, {{}, sign(1e-2), sign(1e-2)}, 0.05, before}, laws), "sign");
}

// The parameters alone: what the input brings does not cover them up.
TEST(Move, DirectChanges) {
  const Linear op{.in = n, .out = 2 * n, .storage = Storage::in_out};
  expect_law(law_of(op, {n, 2 * n, {sgd(1)}}, matrix_law), "sgd");
  expect_law(law_of(op, {n, 2 * n, {sign(1)}}, matrix_law), "sign");
  expect_law(law_of(op, {n, 2 * n, {sign(1, 0.05)}}, matrix_law), "sign with eps");
  expect_law(law_of(op, {n, 2 * n, {polar(1)}, 0.05, {}, 30}, matrix_law), "polar");
}

TEST(Move, NormsAndTheirGains) {
  const Before before{.stretch = -0.2, .response = 5, .noise = 0.5};
  const std::vector<Law> ones = {{1, 0}, {0, 0}};
  expect_law(law_of(LayerNorm{.width = n}, {n, n, {sign(0.02), sign(0.02)}, 0, before}, ones), "layer norm, sign");
  expect_law(law_of(LayerNorm{.width = n}, {n, n, {sgd(0.2), sgd(0.2)}, 0, before}, ones), "layer norm, sgd");
  expect_law(law_of(RmsNorm{.width = n, .bias = false}, {n, n, {sign(0.02)}, 0, before}, ones), "rms norm");
}

TEST(Move, Tables) {
  const std::vector<Law> law = {{0, 0.02 * 0.02}};
  expect_law(law_of(TokenEmbedding{.vocab = 11, .width = n}, {0, n, {sign(0.01)}}, law), "tokens, sign");
  expect_law(law_of(TokenEmbedding{.vocab = 11, .width = n}, {0, n, {sgd(0.1)}}, law), "tokens, sgd");
  const Before before{.stretch = 0, .response = 0.2, .noise = 0.1};
  expect_law(law_of(LearnedPosition{.positions = 3, .width = n}, {n, n, {sign(0.01)}, 0, before}, law), "positions");
}

// Three images of a class token and one patch.
TEST(Move, Patches) {
  Batch images;
  images.sequences = 3;
  images.length = 2;
  for (int i = 0; i < 3 * 3 * 16; ++i) images.pixels.push_back(static_cast<float>(std::sin(0.7 * i) + 0.3 * (i % 5)));
  const PatchEmbedding op{.side = 4, .patch = 4, .colours = 3, .width = n};
  const std::vector<Law> laws = {{0, 0.05 * 0.05}, {0, 0.01}, {0, 0.02}};
  expect_law(law_of(op, {.n_out = n, .updates = {sign(0.01), sign(0.01), sign(0.02)}, .batch = images}, laws), "sign");
  expect_law(law_of(op, {.n_out = n, .updates = {sgd(1e-3), sgd(0.1), sgd(0.1)}, .batch = images}, laws), "sgd");
  expect_law(law_of(op, {.n_out = n, .updates = {sign(0.01, 1), sign(0.01), sign(0.02)}, .batch = images}, laws), "sign with eps");
}

// Of rows that are taken the change is theirs; of a mean it is the mean of theirs.
TEST(Move, Pooling) {
  const Batch batch = small_batch();
  const Kernel K = cosines(1, 0.5, 0.3), G = cosines(1, 0.4, 0.1);
  const WireChange x = Before{.stretch = -0.2, .response = 0.5, .noise = 0.3}.change(K, G, n);
  const auto pooled = [&](const TokenPool& op) {
    DownWire wire{Moment{.K = K}};
    const DownWire* const from[] = {&wire};
    const DownWire y = op.push({batch, from, {}});
    const Mover mover = move(op, MoveDoor{.batch = batch, .x = from, .y = y, .G = y.K, .theta = {}, .updates = {}});
    const WireChange* const list[] = {&x};
    WireChange out = mover.run(list, 1);
    out.stretch = out.stretch * Square::of(y.K);
    return out;
  };
  const Square Y = x.stretch * Square::of(K);
  const WireChange last = pooled({.width = n, .last = true}), mean = pooled({.width = n, .count = 0});
  for (Index r = 0; r < 2; ++r) {
    for (Index s = 0; s < 2; ++s) {
      EXPECT_NEAR(last.size(r, s), x.size(3 * r + 2, 3 * s + 2), 1e-12);
      EXPECT_NEAR(last.response(r, s), x.response(3 * r + 2, 3 * s + 2), 1e-12);
      EXPECT_NEAR(last.stretch(r, s), Y(3 * r + 2, 3 * s + 2), 1e-9);
      double block = 0;
      for (Index t = 0; t < 3; ++t) {
        for (Index u = 0; u < 3; ++u) block += x.size(3 * r + t, 3 * s + u) / 9;
      }
      EXPECT_NEAR(mean.size(r, s), block, 1e-12);
    }
  }
}

TEST(Move, Sums) {
  const Before before{.stretch = -0.3, .response = 3, .noise = 0.2};
  expect_law(law_of(Residual{.width = n, .skip_scale = 1.5, .branch_scale = 0.5}, {n, n, {}, 0, before}, {}), "residual");
  expect_law(law_of(Scale{.width = n, .factor = 2.5}, {n, n, {}, 0, before}, {}), "scale");
}

// Wrong rules, each of which someone has written.
TEST(Move, MutantsFail) {
  const Linear op{.in = n, .out = n};
  // sign(g) = g over its root mean square, and white noise: the ratio of means, not the mean of ratios
  const auto ratio_of_means = [](WireChange& y) {
    const Square K = Square::of(cosines(1, 0.5, 0.3)), G = Square::of(cosines(1, 0.4, 0.1));
    const double c = std::sqrt(2 / std::numbers::pi), width = n;
    const Square A = (width * c * std::sqrt(width) / std::sqrt(inner(K, G))) * K;
    y.size = (1 / width) * between(A, G) + (width * (1 - c * c)) * K;
  };
  EXPECT_GT(law_of(op, {n, n, {sign(1)}}, matrix_law, ratio_of_means).size, 3 * width_bias);
  // sign(0) = 1: tokens without a gradient
  const TokenEmbedding table{.vocab = 11, .width = n};
  const Subject silent{.n_in = 0, .n_out = n, .updates = {sign(0.01)}, .silent = true};
  Subject ones = silent;
  ones.ones = true;
  const std::vector<Law> law = {{0, 0.02 * 0.02}};
  EXPECT_LE(law_of(table, silent, law).norm, width_bias);
  EXPECT_GT(law_of(table, ones, law).norm, 3 * width_bias);
  // only the mean of a change comes through a matrix
  const Before before{.stretch = 0, .response = 1, .noise = 0};
  const auto no_push = [](WireChange& y) { y.size = (1 / static_cast<double>(n)) * between(y.response, Square::of(cosines(1, 0.4, 0.1))); };
  expect_law(law_of(op, {n, n, {sign(1e-4)}, 0.05, before}, matrix_law), "as it is");
  EXPECT_GT(law_of(op, {n, n, {sign(1e-4)}, 0.05, before}, matrix_law, no_push).size, 3 * width_bias);
}

// Matrices over one input, then what is drawn; compared by the mean square of the change of the output, and what is measured of it.
struct Branch {
  std::vector<Index> widths;            // of the inputs of the chain
  std::vector<ChainNode> model, drawn;  // the model's own ops; what the chain is told
  bool heads = false;
  Update table = {};  // of the attention's table, if it has one
  std::vector<TableUse> tables = {};

  [[nodiscard]] std::vector<std::vector<Update>> updates() const {
    std::vector<std::vector<Update>> out(model.size());
    if (table.moves()) out.back() = {table};
    return out;
  }
};

Findings law_of_branch(const Branch& b, const Update& u, const Before& before, int draws, std::uint64_t seed = 2) {
  const Batch batch = small_batch();
  const Kernel K = cosines(1, 0.5, 0.3), G = cosines(1, 0.4, 0.1);
  const double std = 1 / std::sqrt(static_cast<double>(n));
  DownWire x{Moment{.K = K}};
  x.width = n;
  x.f.noise = 1 / static_cast<double>(n);
  const std::size_t inputs = b.widths.size();
  // gradients of the inputs' kernels as they are measured
  Chain model(batch, b.model);
  const Index out = channels_of(b.model.back().op);
  const Square root = root_of(Square::of(K)), up_root = (1 / std::sqrt(static_cast<double>(out))) * root_of(Square::of(G));
  const std::vector<Law> law = {{0, std * std}};
  const WireChange stem = before.change(K, cosines(1, 0.2, 0.2), n);
  std::vector<Entries> pulled(inputs);
  Entries size, overlap;
  Number decreases;
  Normals normals(seed);
  for (int draw = 0; draw < draws; ++draw) {
    const Tensor<double> x0 = times_root(root, normals.draw(tokens, n));
    std::vector<Tensor<double>> W, u0;
    for (std::size_t k = 0; k < inputs; ++k) {
      W.push_back(normals.draw(n, b.widths[k], std));
      u0.emplace_back(tokens, b.widths[k]);
      gemm<double>(Trans::no, Trans::no, 1.0, x0.view(), W[k].view(), 0.0, u0[k].view());
    }
    const Chain::Values was = model.forward(std::move(u0));
    const Tensor<double> dy = times_root(up_root, normals.draw(tokens, out));
    Chain::Parameters dtheta;
    const std::vector<Tensor<double>> d = model.backward(was, dy, &dtheta);
    Tensor<double> dx(tokens, n);
    double decrease = 0;
    std::vector<Tensor<double>> U;
    for (std::size_t k = 0; k < inputs; ++k) {
      pulled[k].add(static_cast<double>(b.widths[k]) * gram(d[k], d[k]));
      Tensor<double> g(n, b.widths[k]);
      gemm<double>(Trans::yes, Trans::no, 1.0, x0.view(), d[k].view(), 0.0, g.view());
      U.push_back(update_for(u, g));
      for (Index i = 0; i < g.size(); ++i) decrease += g.data()[i] * U[k].data()[i];
      gemm<double>(Trans::no, Trans::yes, 1.0, d[k].view(), W[k].view(), k == 0 ? 0.0 : 1.0, dx.view());
      for (Index i = 0; i < g.size(); ++i) W[k].data()[i] -= u.rate * U[k].data()[i];
    }
    decreases.add(decrease);
    Tensor<double> x1 = times_root(stem.response, dx);
    const Tensor<double> noise = times_root(root, normals.draw(tokens, n, before.noise));
    for (Index i = 0; i < x1.size(); ++i) x1.data()[i] = (1 + before.stretch) * x0.data()[i] - x1.data()[i] + noise.data()[i];
    std::vector<Tensor<double>> u1;
    for (std::size_t k = 0; k < inputs; ++k) {
      u1.emplace_back(tokens, b.widths[k]);
      gemm<double>(Trans::no, Trans::no, 1.0, x1.view(), W[k].view(), 0.0, u1[k].view());
    }
    Chain::Parameters theta = copy_of(model.theta());
    if (b.table.moves()) {
      const Tensor<double> step = update_for(b.table, dtheta.back()[0]);
      for (Index i = 0; i < step.size(); ++i) theta.back()[0].data()[i] -= b.table.rate * step.data()[i];
    }
    const Chain::Values now = model.forward(std::move(u1), theta);
    Tensor<double> D(tokens, out);
    for (Index i = 0; i < D.size(); ++i) D.data()[i] = now.y.back().data()[i] - was.y.back().data()[i];
    size.add(gram(D, D));
    overlap.add(gram(D, was.y.back()));
  }
  std::vector<Mover> movers;
  std::vector<DownWire> wires(inputs);
  std::vector<Kernel> gradients;
  Kernel back = K.scaled(0);
  for (std::size_t k = 0; k < inputs; ++k) {
    gradients.push_back(to_kernel((1 / pulled[k].count) * pulled[k].sum));
    back = back + gradients[k];
  }
  const WireChange input = before.change(K, back, n);
  std::vector<WireChange> changes;
  for (std::size_t k = 0; k < inputs; ++k) {
    const Linear op{.in = n, .out = b.widths[k], .storage = Storage::in_out};
    const DownWire* const from[] = {&x};
    wires[k] = op.push({batch, from, law});
    wires[k].width = b.widths[k];
    wires[k].f.noise = 2 / static_cast<double>(n);
    const Update list[] = {u};
    movers.push_back(move(
        op,
        MoveDoor{
            .batch = batch, .x = from, .y = wires[k], .G = gradients[k], .theta = law, .updates = list, .tensor = static_cast<int>(k)}));
    const WireChange* const in[] = {&input};
    changes.push_back(movers[k].run(in, 1));
  }
  std::vector<DrawnFrom> from;
  std::vector<const WireChange*> in;
  for (std::size_t k = 0; k < inputs; ++k) {
    from.push_back({&wires[k], &gradients[k], movers[k].matrix.get(), &x, 1});
    in.push_back(&changes[k]);
  }
  Likeness alike;
  const ChainMover mover = b.heads ? move_heads(batch, b.drawn, from, b.updates(), b.tables, G, K, 3, 12, alike)
                                   : move_pointwise(batch, b.drawn, from, G, out, 3, 4, in, alike);
  const WireChange predicted = mover.run(in, 1).back();
  double decrease = 0;
  for (const double one : mover.decreases) decrease += one;
  Findings f;
  f.decrease = miss(decreases, decrease);
  f.size = miss(size, predicted.size, predicted.size);
  return f;
}

// Drawn channels and heads: their own sampling beside the width's bias.
constexpr double drawn_bias = 0.06;

TEST(Move, FunctionsAndGates) {
  const Branch gelu{{n}, {{Elementwise<GeluTanh>{.width = n}, {-1}, {}}}, {{Elementwise<GeluTanh>{.width = n}, {-1}, {}}}};
  const std::vector<ChainNode> gate = {{Elementwise<Silu>{.width = n}, {-1}, {}}, {Multiply{.width = n}, {0, -2}, {}}};
  const Branch gated{{n, n}, gate, gate};
  for (const Update& u : {sgd(0.02), sign(0.01), polar(0.3)}) {
    const Before before{.stretch = -0.1, .response = 0.5, .noise = 0.2};
    const Findings one = law_of_branch(gelu, u, before, 60), two = law_of_branch(gated, u, before, 60);
    EXPECT_LE(one.size, drawn_bias) << name_of(u);
    EXPECT_LE(one.decrease, drawn_bias) << name_of(u);
    EXPECT_LE(two.size, drawn_bias) << name_of(u) << ", gated";
    EXPECT_LE(two.decrease, drawn_bias) << name_of(u) << ", gated";
  }
}

TEST(Move, Heads) {
  const Attention op{.heads = 4, .kv_heads = 4, .key_dim = 32, .value_dim = 32, .scale = 0.177};
  const std::vector<ChainNode> nodes = {{op, {-1, -2, -3}, {}}};
  const Branch heads{{n, n, n}, nodes, nodes, true};
  for (const Update& u : {sgd(0.5), sign(0.01), polar(0.5)}) {
    const Findings f = law_of_branch(heads, u, {.stretch = -0.1, .response = 0.5, .noise = 0.2}, 60);
    EXPECT_LE(f.size, drawn_bias) << name_of(u);
    EXPECT_LE(f.decrease, drawn_bias) << name_of(u);
  }
}

// Biases of scores that are learned, and sinks: the table's own update beside those of the matrices.
TEST(Move, HeadsWithTables) {
  const Attention biased{.heads = 4, .kv_heads = 4, .key_dim = 32, .value_dim = 32, .scale = 0.177, .causal = false, .buckets = 4};
  const Attention sunk{.heads = 4, .kv_heads = 4, .key_dim = 32, .value_dim = 32, .scale = 0.177, .sinks = true};
  for (const Attention& op : {biased, sunk}) {
    const std::vector<ChainNode> nodes = {{op, {-1, -2, -3}, {0.3}}};
    for (const Update& u : {sgd(5), sign(0.5)}) {
      const Branch heads{{n, n, n}, nodes, nodes, true, u, {{}}};
      const Findings f = law_of_branch(heads, {}, {}, 120),
                     both = law_of_branch(heads, sign(0.01), {.stretch = -0.1, .response = 0.5, .noise = 0.2}, 60);
      EXPECT_LE(f.size, drawn_bias) << name_of(u) << (op.sinks ? ", sinks" : ", biases");
      EXPECT_LE(both.size, drawn_bias) << name_of(u) << (op.sinks ? ", sinks" : ", biases");
    }
  }
}

// Keys of which a part is the same for all heads, and gets the gradients of all.
TEST(Move, HeadsThatShareAPartOfTheirKeys) {
  constexpr Index h = 4, own = 16, shared = 16;
  const Attention op{.heads = h, .kv_heads = h, .key_dim = own + shared, .value_dim = 32, .scale = 0.177};
  const std::vector<ChainNode> nodes = {{Join{.heads = h, .own = own, .shared = shared}, {-2, -3}, {}}, {op, {-1, 0, -4}, {}}};
  const Branch heads{{n, h * own, shared, n}, nodes, nodes, true};
  for (const Update& u : {sgd(0.5), sign(0.01)}) {
    const Findings f = law_of_branch(heads, u, {.stretch = -0.1, .response = 0.5, .noise = 0.2}, 60);
    EXPECT_LE(f.size, drawn_bias) << name_of(u);
    EXPECT_LE(f.decrease, drawn_bias) << name_of(u);
  }
}

// A router over the same input as its experts: the change of y in the mean over tokens (what the experts' last matrices read has heavy
// tails, so that small tokens move more and large ones less than the law of normal inputs says), the norm of the experts' update and what
// all take from the loss.
Findings law_of_experts(const Update& u, const Before& before, int draws) {
  constexpr Index ffn = 96, E = 4;
  const Batch batch = small_batch();
  const Kernel K = cosines(1, 0.5, 0.3), G = cosines(1, 0.4, 0.1);
  const Experts op{.width = n, .ffn = ffn, .routing = {.experts = E, .chosen = 2}, .act = Elementwise<Silu>{.width = ffn}};
  const Linear router{.in = n, .out = E};
  const double std = 1 / std::sqrt(static_cast<double>(n));
  const std::vector<Law> law = {{0, std * std}}, laws(3 * E, law[0]);
  DownWire x{Moment{.K = K}};
  x.width = n;
  x.f.noise = 1 / static_cast<double>(n);
  const DownWire* const from[] = {&x};
  DownWire r = router.push({batch, from, law});
  r.width = E;
  r.f.noise = 1 / static_cast<double>(n);
  const DownWire* const wires[] = {&x, &r};
  DownWire y = op.push({batch, wires, laws, {.place = 3, .effort = 1e9}});
  y.width = n;
  const Pulled up = op.pull({batch, wires, laws, y, UpWire(G), {.place = 3, .effort = 1e9}});
  const Update list[] = {u};
  const Mover of_router = move(router, MoveDoor{.batch = batch, .x = from, .y = r, .G = up.dx[1].G, .theta = law, .updates = list});
  const WireChange input = before.change(K, up.dx[0].G, n);
  const WireChange* const in[] = {&input};
  const WireChange logits = of_router.run(in, 1);
  const std::vector<Update> updates(3 * E, u);
  const DrawnFrom stems[] = {{&x, &up.dx[0].G, nullptr, nullptr, 1}, {&r, &up.dx[1].G, of_router.matrix.get(), &x, 1}};
  const WireChange* const both[] = {&input, &logits};
  Likeness alike;
  const ChainMover mover = move_experts(
      op, {.batch = batch, .inputs = stems, .theta = laws, .updates = updates, .G = G, .y = y.K, .given = both, .place = 5, .effort = 16},
      alike);
  const WireChange predicted = mover.run(both, 1).back();
  double norm = 0, decrease = mover.decreases[1];
  for (const ParameterMove& p : mover.params[0]) norm += p.norm2, decrease += p.decrease;

  Normals normals(7);
  const Square root = root_of(Square::of(K)), up_root = std * root_of(Square::of(G));
  Number own, between_tokens, norms, decreases;
  const auto beside = [](const Square& m) {
    double sum = -m.trace();
    for (Index t = 0; t < tokens; ++t) {
      for (Index s = 0; s < tokens; ++s) sum += m(t, s);
    }
    return sum;
  };
  for (int draw = 0; draw < draws; ++draw) {
    std::vector<Tensor<double>> x0, theta, dtheta;
    x0.push_back(times_root(root, normals.draw(tokens, n)));
    Tensor<double> W = normals.draw(E, n, std), dW(E, n), r0(tokens, E);
    gemm<double>(Trans::no, Trans::yes, 1.0, x0[0].view(), W.view(), 0.0, r0.view());
    x0.push_back(std::move(r0));
    for (const ParamShape& shape : op.params()) {
      theta.push_back(normals.draw(shape.rows, shape.cols, std));
      dtheta.emplace_back(shape.rows, shape.cols);
    }
    const auto views = [](const std::vector<Tensor<double>>& of) {
      std::vector<View<const double>> out;
      for (const Tensor<double>& t : of) out.push_back(t.view());
      return out;
    };
    Tensor<double> y0(tokens, n), y1(tokens, n), keep(tokens, op.keep());
    op.forward(Down<double>{batch, views(x0), views(theta), y0.view(), keep.view()});
    const Tensor<double> dy = times_root(up_root, normals.draw(tokens, n));
    Tensor<double> dx(tokens, n), dr(tokens, E);
    std::vector<Into<double>> into = {{dx.view()}, {dr.view()}}, into_theta;
    for (auto& t : dtheta) into_theta.push_back({t.view()});
    const auto x_views = views(x0), theta_views = views(theta);
    op.backward(Up<double>{batch, x_views, theta_views, y0.view(), keep.view(), dy.view(), into, into_theta});
    gemm<double>(Trans::yes, Trans::no, 1.0, dr.view(), x0[0].view(), 0.0, dW.view());
    double norm_here = 0, decrease_here = 0;
    const auto step = [&](Tensor<double>& t, const Tensor<double>& g, bool counts) {
      const Tensor<double> U = update_for(u, g);
      for (Index i = 0; i < U.size(); ++i) {
        if (counts) norm_here += U.data()[i] * U.data()[i];
        decrease_here += U.data()[i] * g.data()[i];
        t.data()[i] -= u.rate * U.data()[i];
      }
    };
    step(W, dW, false);
    for (std::size_t k = 0; k < theta.size(); ++k) step(theta[k], dtheta[k], true);
    const Tensor<double> noise = times_root(root, normals.draw(tokens, n, before.noise));
    std::vector<Tensor<double>> x1;
    x1.emplace_back(tokens, n);
    for (Index i = 0; i < noise.size(); ++i) x1[0].data()[i] = (1 + before.stretch) * x0[0].data()[i] + noise.data()[i];
    Tensor<double> r1(tokens, E);
    gemm<double>(Trans::no, Trans::yes, 1.0, x1[0].view(), W.view(), 0.0, r1.view());
    x1.push_back(std::move(r1));
    op.forward(Down<double>{batch, views(x1), views(theta), y1.view(), keep.view()});
    for (Index i = 0; i < y1.size(); ++i) y1.data()[i] -= y0.data()[i];
    const Square moved = gram(y1, y1);
    own.add(moved.trace());
    between_tokens.add(beside(moved));
    norms.add(norm_here);
    decreases.add(decrease_here);
  }
  return {.size = miss(own, predicted.size.trace()),
          .overlap = miss(between_tokens, beside(predicted.size)),
          .norm = miss(norms, norm),
          .decrease = miss(decreases, decrease)};
}

TEST(Move, Experts) {
  for (const Update& u : {sgd(0.05), sign(2e-3)}) {
    const Findings alone = law_of_experts(u, {}, 300), after = law_of_experts(u, {.stretch = -0.1, .response = 0, .noise = 0.1}, 300);
    for (const Findings& f : {alone, after}) {
      EXPECT_LE(f.size, drawn_bias) << name_of(u);
      EXPECT_LE(f.overlap, drawn_bias) << name_of(u) << ", between tokens";
      EXPECT_LE(f.norm, drawn_bias) << name_of(u);
      EXPECT_LE(f.decrease, drawn_bias) << name_of(u);
    }
  }
}

// A frozen matrix moves its output by what came in; polar's direct change is n_in K / n_out at any gradient of full rank.
TEST(Move, Limits) {
  const Kernel K = cosines(1, 0.5, 0.3), G = cosines(1, 0.4, 0.1);
  const Direct d = direct(polar(1), {.K = Square::of(K), .G = Square::of(G), .whole = {}, .n_in = 128, .n_out = 512, .noise = 1.0 / 128});
  const Square size = d.size(Square::of(G), 512);
  for (Index t = 0; t < tokens; ++t) EXPECT_NEAR(size(t, t), 128 * K(t, t) / 512, 1e-5 * size(t, t));
  const Direct none = direct({}, {.K = Square::of(K), .G = Square::of(G), .whole = {}, .n_in = 128, .n_out = 512});
  EXPECT_EQ(none.size(Square::of(G), 512).trace(), 0);
}

}  // namespace
}  // namespace stepzero::laws
