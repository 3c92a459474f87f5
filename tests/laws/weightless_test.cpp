// The weightless pass: identities that hold for every draw, the law over draws, and mutants that must be seen.
#include "weightless_law.hpp"

#include <cstdlib>
#include <numeric>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "stepzero/kernels/statistics.hpp"
#include "stepzero/pass/fill_pass.hpp"
#include "stepzero/signal/describe.hpp"

namespace stepzero::laws {
namespace {

// One op, in S, with everything it reads and writes.
template <class S>
struct Bench {
  WeightlessLinear op;
  Batch batch;
  Tensor<S> x, y, dy, dx, table, dtable;
  double squares = 0;

  Bench(WeightlessLinear op_, const Tensor<double>& x_, const Tensor<double>& table_ = {}) : op(std::move(op_)) {
    op.seen = make_stream(1, "seen");
    op.unseen = make_stream(1, "unseen");
    batch.length = x_.rows();
    x = as(x_);
    table = as(table_);
    dtable = Tensor<S>(table_.rows(), table_.cols());
    y = Tensor<S>(x_.rows(), op.out);
    dx = Tensor<S>(x_.rows(), op.in);
  }

  static Tensor<S> as(const Tensor<double>& from) {
    Tensor<S> to(from.rows(), from.cols());
    std::copy_n(from.data(), from.size(), to.data());
    return to;
  }

  void run(const Tensor<double>& dy_, bool add = false) {
    dy = as(dy_);
    const std::vector<View<const S>> xs = {x.view()}, thetas = {table.view()};
    const RowSpace space = row_space(View<const S>(x));
    op.forward(Down<S>{batch, xs, thetas, y.view(), {}}, space);
    const std::vector<Into<S>> dxs = {{dx.view(), add}}, dthetas = {{dtable.view(), add}};
    squares = op.backward(Up<S>{batch, xs, thetas, y.view(), {}, dy.view(), dxs, dthetas}, space)[0];
  }
};

Tensor<double> draw(Index rows, Index cols, std::uint64_t seed, double shared = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Tensor<double> x(rows, cols);
  std::vector<double> common(static_cast<std::size_t>(cols));
  for (double& c : common) c = normal(random);
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < cols; ++c) {
      // through float, so that both scalars see the same numbers
      x(r, c) = static_cast<float>(std::sqrt(shared) * common[static_cast<std::size_t>(c)] + std::sqrt(1 - shared) * normal(random));
    }
  }
  return x;
}

template <class S>
Tensor<double> product(const Tensor<S>& a, const Tensor<S>& b) {  // A B'
  Tensor<double> c(a.rows(), b.rows());
  for (Index i = 0; i < a.rows(); ++i) {
    for (Index j = 0; j < b.rows(); ++j) {
      double sum = 0;
      for (Index k = 0; k < a.cols(); ++k) sum += static_cast<double>(a(i, k)) * static_cast<double>(b(j, k));
      c(i, j) = sum;
    }
  }
  return c;
}

double largest(const Tensor<double>& a) {
  double most = 0;
  for (Index i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a.data()[i]));
  return most;
}

template <class S>
double distance(const Tensor<S>& a, const Tensor<S>& b) {
  double most = 0;
  for (Index i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a.data()[i]) - static_cast<double>(b.data()[i])));
  return most;
}

struct Shape {
  Index tokens, in, out;
  double shared;
};

// dX = dY W and Y = X W' for one and the same W, so dX X' = dY Y', whatever W is: the two doors agree on what X sees.
// Holds for T = 1, T below, at and above both widths, repeated tokens, and tokens that are nearly one.
TEST(WeightlessLinear, BothDoorsUseOneMatrix) {
  for (const Shape& s :
       {Shape{1, 9, 5, 0}, {6, 20, 15, 0}, {6, 20, 3, 0}, {7, 7, 40, 0}, {12, 7, 40, 0}, {10, 700, 1100, 0.9}, {10, 700, 1100, 0.99999}}) {
    for (const double u : {0.0, 0.3}) {
      Tensor<double> x = draw(s.tokens, s.in, 1, s.shared);
      if (s.tokens > 4) std::copy_n(x.data(), s.in, x.data() + 3 * s.in);  // token 3 repeats token 0
      Bench<double> b({.in = s.in, .out = s.out, .s = 0.7, .u = u}, x);
      const Tensor<double> dy = draw(s.tokens, s.out, 2);
      b.run(dy);
      const Tensor<double> up = product(b.dx, b.x), down = product(b.dy, b.y);
      EXPECT_TRUE(distance(up, down) <= 1e-9 * largest(down))
          << fmt::format("T {} n {} m {} shared {} u {}: {}", s.tokens, s.in, s.out, s.shared, u, distance(up, down));
      if (s.tokens > 4) {
        for (Index c = 0; c < s.out; ++c) ASSERT_NEAR(b.y(3, c), b.y(0, c), 1e-12 * static_cast<double>(s.in));
      }
      // a mistake in one of the terms of (5) is seen
      b.op.project = false;
      b.run(dy);
      EXPECT_TRUE(distance(product(b.dx, b.x), down) > 1e-3 * largest(down));
    }
  }
}

TEST(WeightlessLinear, GradientNormIsThatOfTheExplicitGradient) {
  const Tensor<double> x = draw(8, 30, 1, 0.5), dy = draw(8, 20, 2);
  Bench<double> b({.in = 30, .out = 20, .s = 1}, x);
  b.run(dy);
  double squares = 0;
  for (Index i = 0; i < 20; ++i) {
    for (Index j = 0; j < 30; ++j) {
      double g = 0;
      for (Index t = 0; t < 8; ++t) g += dy(t, i) * x(t, j);
      squares += g * g;
    }
  }
  EXPECT_NEAR(b.squares, squares, 1e-12 * squares);
}

// Known rows of W: their columns of Y, their part of dX and their gradient are those of a real matrix.
TEST(WeightlessLinear, ExplicitRows) {
  const Tensor<double> x = draw(8, 30, 1), dy = draw(8, 20, 2), table = draw(3, 30, 3);
  const std::vector<Index> rows = {0, 7, 19};
  Bench<double> b({.in = 30, .out = 20, .s = 0.4, .rows = rows}, x, table);
  b.run(dy);
  const Tensor<double> want = product(x, table);
  double squares = 0, all = 0;
  for (Index k = 0; k < 3; ++k) {
    for (Index t = 0; t < 8; ++t) EXPECT_NEAR(b.y(t, rows[k]), want(t, k), 1e-12);
    for (Index j = 0; j < 30; ++j) {
      double g = 0;
      for (Index t = 0; t < 8; ++t) g += dy(t, rows[k]) * x(t, j);
      EXPECT_NEAR(b.dtable(k, j), g, 1e-12);
      squares += g * g;
    }
  }
  const Tensor<double> up = product(b.dx, b.x), down = product(b.dy, b.y);
  EXPECT_TRUE(distance(up, down) <= 1e-11 * largest(down));
  const Tensor<double> xx = product(x, x), dd = product(dy, dy);
  for (Index i = 0; i < xx.size(); ++i) all += xx.data()[i] * dd.data()[i];
  EXPECT_NEAR(b.squares + squares, all, 1e-12 * all);
}

// Constant matrices have nothing to sample: s = 0.
TEST(WeightlessLinear, ConstantMatrixIsExact) {
  const Tensor<double> x = draw(5, 12, 1), dy = draw(5, 9, 2);
  for (const double u : {0.0, 0.25}) {
    Bench<double> b({.in = 12, .out = 9, .s = 0, .u = u}, x);
    b.run(dy);
    for (Index t = 0; t < 5; ++t) {
      EXPECT_NEAR(b.y(t, 4), u * std::accumulate(x.data() + t * 12, x.data() + (t + 1) * 12, 0.0), 1e-13);
      EXPECT_NEAR(b.dx(t, 4), u * std::accumulate(dy.data() + t * 9, dy.data() + (t + 1) * 9, 0.0), 1e-13);
    }
  }
}

TEST(WeightlessLinear, GradientAddsToWhatIsThere) {
  const Tensor<double> x = draw(5, 12, 1), dy = draw(5, 9, 2), table = draw(2, 12, 3);
  Bench<double> fresh({.in = 12, .out = 9, .s = 1, .rows = {1, 2}}, x, table),
      added = Bench<double>({.in = 12, .out = 9, .s = 1, .rows = {1, 2}}, x, table);
  std::fill_n(added.dx.data(), added.dx.size(), 100.0);
  std::fill_n(added.dtable.data(), added.dtable.size(), 100.0);
  fresh.run(dy);
  added.run(dy, true);
  for (Index i = 0; i < fresh.dx.size(); ++i) EXPECT_NEAR(added.dx.data()[i], fresh.dx.data()[i] + 100, 1e-11);
  for (Index i = 0; i < fresh.dtable.size(); ++i) EXPECT_NEAR(added.dtable.data()[i], fresh.dtable.data()[i] + 100, 1e-11);
}

// The shipped scalar against the reference, down to tokens that differ by one part in ten thousand.
TEST(WeightlessLinear, FloatFollowsDouble) {
  for (const double shared : {0.0, 0.9, 0.999, 0.99999999}) {
    const Tensor<double> x = draw(16, 1500, 1, shared), dy = draw(16, 700, 2, shared);
    Bench<float> f({.in = 1500, .out = 700, .s = 1}, x);
    Bench<double> d({.in = 1500, .out = 700, .s = 1}, x);
    f.run(dy);
    d.run(dy);
    const Tensor<float> y = Bench<float>::as(d.y), dx = Bench<float>::as(d.dx);
    const double condition = 4 / std::sqrt(1 - shared);
    EXPECT_TRUE(distance(f.y, y) <= 1e-6 * largest(d.y)) << shared;
    EXPECT_TRUE(distance(f.dx, dx) <= 1e-6 * condition * largest(d.dx)) << shared << " " << distance(f.dx, dx) / largest(d.dx);
    EXPECT_NEAR(f.squares, d.squares, 1e-12 * d.squares);
  }
}

TEST(WeightlessLinear, ZeroRowsAndBrokenRows) {
  Tensor<double> x = draw(4, 12, 1);
  const Tensor<double> dy = draw(4, 9, 2);
  std::fill_n(x.data() + 12, 12, 0.0);
  Bench<float> zero({.in = 12, .out = 9, .s = 1}, x);
  zero.run(dy);
  for (Index c = 0; c < 9; ++c) EXPECT_EQ(zero.y(1, c), 0);
  for (Index c = 0; c < 12; ++c) EXPECT_TRUE(std::isfinite(zero.dx(1, c)));
  x(2, 5) = std::numeric_limits<double>::infinity();
  Bench<float> broken({.in = 12, .out = 9, .s = 1}, x);
  broken.run(dy);
  EXPECT_TRUE(std::isnan(broken.y(0, 0)));
  EXPECT_TRUE(std::isnan(broken.squares));
}

// ---- the pass

Signal measure_case(const WeightlessCase& c, bool weightless, bool checkpoint) {
  const Architecture a = architecture_of(c);
  const Graph graph = build_graph(a);
  const Batch batch = batch_of(c, a);
  const Scheme& scheme = **find_scheme(c.scheme);
  const Weightless stand_ins = make_weightless(graph, batch, distributions_of(graph, a, scheme), 3);
  const Weightless* given = weightless ? &stand_ins : nullptr;
  Pass<float> pass(graph, batch, {.checkpoint = checkpoint, .weightless = given});
  draw_weights(pass, graph, a, scheme, 3, given);
  Signal signal = describe(graph, a, batch);
  measure_pass(pass, graph, batch, signal);
  measure_pass(pass, graph, batch, signal);  // a second pass finds its buffers in order
  return signal;
}

void expect_same_bits(const Signal& a, const Signal& b, const std::string& what) {
  const auto x = numbers_of(a), y = numbers_of(b);
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i].second, y[i].second) << what << ": " << x[i].first;
}

TEST(Checkpoints, ChangeNoBit) {
  for (const WeightlessCase& c : weightless_cases()) {
    expect_same_bits(measure_case(c, false, false), measure_case(c, false, true), c.name + ", real");
    expect_same_bits(measure_case(c, true, false), measure_case(c, true, true), c.name + ", weightless");
  }
}

TEST(Checkpoints, NeedTheMemoryOfOneBlock) {
  WeightlessCase c = weightless_cases()[5];
  const auto needed = [&](const char* layers) {
    c.set.push_back(layers);
    const Architecture a = architecture_of(c);
    const Graph graph = build_graph(a);
    const Batch batch = batch_of(c, a);
    const Weightless w = make_weightless(graph, batch, distributions_of(graph, a, **find_scheme(c.scheme)), 0);
    return Pass<float>::memory_needed(graph, batch, {.checkpoint = true, .weightless = &w});
  };
  const double one_stream = 48 * 128 * sizeof(float);
  EXPECT_NEAR(needed("layers=40") - needed("layers=20"), 20 * (one_stream + 2 * 128 * sizeof(float)), 20 * 64);
}

TEST(WeightlessPass, BitsDoNotDependOnThreads) {
  const int before = threads();
  for (const std::size_t i : {std::size_t{0}, std::size_t{5}}) {
    WeightlessCase c = weightless_cases()[i];
    c.set.insert(c.set.end(), {"width=1040", "heads=8", "vocab=1500"});
    set_threads(1);
    const Signal one = measure_case(c, true, true);
    for (const int n : {2, 3}) {
      set_threads(n);
      expect_same_bits(one, measure_case(c, true, true), c.name);
    }
  }
  set_threads(before);
}

TEST(WeightlessPass, RowsThatOccurAreThoseOfTheRealTable) {
  const WeightlessCase c = weightless_cases()[0];
  const Signal real = measure_case(c, false, false), lazy = measure_case(c, true, true);
  EXPECT_EQ(real.nodes[0].forward.second_moment.measured, lazy.nodes[0].forward.second_moment.measured);
  EXPECT_EQ(real.nodes[1].forward.token_cosine.measured, lazy.nodes[1].forward.token_cosine.measured);
}

// More tokens than channels: the real matrix is the smaller one, and the pass is the real pass.
TEST(WeightlessPass, SmallMatricesStayReal) {
  WeightlessCase c = weightless_cases()[0];
  c.set.insert(c.set.end(), {"width=16", "ffn=16"});
  expect_same_bits(measure_case(c, false, false), measure_case(c, true, false), c.name);
}

// ---- the law

std::string table_of(const Agreement& agreement) {
  std::string out = fmt::format("{:<56} {:>12} {:>12} {:>7} {:>7}\n", "number", "real", "weightless", "z mean", "z var");
  for (const Comparison& row : agreement.rows) {
    if (std::max(std::abs(row.z_mean), std::abs(row.z_variance)) < 3.5) continue;
    out += fmt::format("{:<56} {:>12.5g} {:>12.5g} {:>7.2f} {:>7.2f}\n", row.what, row.real, row.weightless, row.z_mean, row.z_variance);
  }
  return out + "run again: stepzero_tests --gtest_filter='WeightlessLaw.*'\n";
}

Mutant wrong_scale(double factor) {
  return [factor](const Graph&, Weightless& w) {
    for (auto& node : w.nodes) {
      if (auto* linear = std::get_if<WeightlessLinear>(&node)) linear->s *= factor;
    }
  };
}

void no_projection(const Graph&, Weightless& w) {
  for (auto& node : w.nodes) {
    if (auto* linear = std::get_if<WeightlessLinear>(&node)) linear->project = false;
  }
}

// k is made of the draws of q, two matrices of one input; in latent attention (where q has another) the pairs are those of k
void shared_draw(const Graph& graph, Weightless& w) {
  constexpr std::pair<const char*, const char*> twins[] = {{"q", "k"}, {"k_own", "v"}, {"kv_latent", "k_shared"}};
  Index shared = 0;
  for (const Node& node : graph.nodes) {
    if (!node.name.ends_with(".attn.k")) continue;
    const auto at = [&](const char* name) { return graph.find_node(node.name.substr(0, node.name.size() - 1) + name); };
    for (const auto& [first, second] : twins) {
      if (at(first) < 0 || at(second) < 0) continue;
      const auto i = static_cast<std::size_t>(at(first)), j = static_cast<std::size_t>(at(second));
      const auto* from = std::get_if<WeightlessLinear>(&w.nodes[i]);
      auto* to = std::get_if<WeightlessLinear>(&w.nodes[j]);
      if (from == nullptr || to == nullptr || graph.nodes[i].inputs != graph.nodes[j].inputs) continue;
      to->seen = from->seen;
      to->unseen = from->unseen;
      ++shared;
    }
  }
  EXPECT_GT(shared, 0) << "nothing was spoiled";
}

// Spoils every matrix of every expert, and nothing else.
Mutant of_experts(const std::function<void(std::vector<WeightlessLinear>&)>& spoil) {
  return [spoil](const Graph&, Weightless& w) {
    for (auto& node : w.nodes) {
      if (auto* experts = std::get_if<WeightlessExperts>(&node)) spoil(experts->matrices);
    }
  };
}

struct OneThread {
  int before = threads();
  OneThread() { set_threads(1); }
  ~OneThread() { set_threads(before); }
};

TEST(WeightlessLaw, HoldsForTwoArchitectures) {
  const OneThread quiet;
  for (const std::size_t i : {std::size_t{0}, std::size_t{5}}) {
    const WeightlessCase c = weightless_cases()[i];
    const Agreement agreement = compare(real_ensemble(c, 150), weightless_ensemble(c, 150));
    EXPECT_TRUE(agreement.largest <= 5) << c.name << ": " << agreement.largest_at << "\n" << table_of(agreement);
    EXPECT_TRUE(agreement.rms_mean <= 1.5 && agreement.rms_variance <= 1.5)
        << c.name << " " << agreement.rms_mean << " " << agreement.rms_variance;
  }
}

// Mixtral, and DeepSeek-V3 with its latent attention: an expert conditions on its own tokens.
TEST(WeightlessLaw, HoldsForExperts) {
  const OneThread quiet;
  for (const std::size_t i : {std::size_t{9}, std::size_t{10}}) {
    const WeightlessCase c = weightless_cases()[i];
    const Agreement agreement = compare(real_ensemble(c, 150), weightless_ensemble(c, 150));
    EXPECT_TRUE(agreement.largest <= 5) << c.name << ": " << agreement.largest_at << "\n" << table_of(agreement);
    EXPECT_TRUE(agreement.rms_mean <= 1.5 && agreement.rms_variance <= 1.5)
        << c.name << " " << agreement.rms_mean << " " << agreement.rms_variance;
  }
}

// Two cases, and what an adapter's own mistakes would do to their laws.
TEST(WeightlessLaw, HoldsForAdapters) {
  const OneThread quiet;
  const Mutant wrong_matrix = [](const Graph&, Weightless& w) {
    for (auto& node : w.nodes) {
      if (auto* lora = std::get_if<WeightlessLora>(&node)) lora->base.s *= 1.05;
    }
  };
  const Mutant wrong_neighbour = [](const Graph&, Weightless& w) {
    for (auto& node : w.nodes) {
      if (auto* lora = std::get_if<WeightlessLora>(&node)) lora->op.scale *= 1.2;
    }
  };
  std::size_t seen = 0;
  for (const WeightlessCase& c : weightless_cases()) {
    if (c.lora.empty()) continue;
    ++seen;
    const Draws real = real_ensemble(c, 150);
    const Agreement agreement = compare(real, weightless_ensemble(c, 150));
    EXPECT_TRUE(agreement.largest <= 5) << c.name << ": " << agreement.largest_at << "\n" << table_of(agreement);
    EXPECT_TRUE(agreement.rms_mean <= 1.5 && agreement.rms_variance <= 1.5)
        << c.name << " " << agreement.rms_mean << " " << agreement.rms_variance;
    EXPECT_GT(compare(real, weightless_ensemble(c, 150, wrong_matrix)).largest, 6) << c.name;
    EXPECT_GT(compare(real, weightless_ensemble(c, 150, wrong_neighbour)).largest, 6) << c.name;
  }
  EXPECT_EQ(seen, 2U);
}

TEST(WeightlessLaw, SeesMutantsOfExperts) {
  const OneThread quiet;
  const WeightlessCase c = weightless_cases()[9];
  const Draws real = real_ensemble(c, 150);
  const auto seen = [&](const std::function<void(std::vector<WeightlessLinear>&)>& spoil) {
    return compare(real, weightless_ensemble(c, 150, of_experts(spoil))).largest;
  };
  EXPECT_GT(seen([](auto& m) {
              for (auto& one : m) one.s *= 1.05;
            }),
            6);
  EXPECT_GT(seen([](auto& m) {
              for (auto& one : m) one.project = false;
            }),
            6);
  EXPECT_GT(seen([](auto& m) {
              for (std::size_t k = 0; k + 1 < m.size(); k += 3) m[k + 1].seen = m[k].seen, m[k + 1].unseen = m[k].unseen;
            }),
            6);
}

TEST(WeightlessLaw, SeesASharedDrawOfLatentAttention) {
  const OneThread quiet;
  const WeightlessCase c = weightless_cases()[10];
  EXPECT_GT(compare(real_ensemble(c, 400), weightless_ensemble(c, 400, shared_draw)).largest, 6);
}

TEST(WeightlessLaw, SeesEveryMutant) {
  const OneThread quiet;
  for (const std::size_t i : {std::size_t{0}, std::size_t{5}}) {
    const WeightlessCase c = weightless_cases()[i];
    const Draws real = real_ensemble(c, 100);
    for (const Mutant& mutant : {wrong_scale(1.02), wrong_scale(0.98), Mutant(no_projection), Mutant(shared_draw)}) {
      EXPECT_TRUE(compare(real, weightless_ensemble(c, 100, mutant)).largest > 6) << c.name;
    }
  }
}

// The whole grid, as the table of docs/weightless.md: ./dev weightless
TEST(WeightlessLaw, Grid) {
  const char* wanted = std::getenv("STEPZERO_WEIGHTLESS_SEEDS");
  if (wanted == nullptr) GTEST_SKIP() << "run by ./dev weightless";
  const OneThread quiet;
  const int seeds = std::atoi(wanted);
  fmt::print(
      "| model | tokens | numbers | means: rms z | real against real | variances: rms z | real against real | largest z | 1.02 s | no "
      "projection | q = k |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  struct {
    double means = 0, variances = 0, count = 0, largest = 0;
    void add(const Agreement& a) {
      const auto n = static_cast<double>(a.rows.size());
      means += a.rms_mean * a.rms_mean * n;
      variances += a.rms_variance * a.rms_variance * n;
      count += n;
      largest = std::max(largest, a.largest);
    }
  } all, all_control;
  for (const WeightlessCase& c : weightless_cases()) {
    const Draws real = real_ensemble(c, seeds);
    const Agreement agreement = compare(real, weightless_ensemble(c, seeds));
    const Agreement control = compare(real, draw_ensemble(c, false, seeds, 900000));
    const auto mutated = [&](const Mutant& mutant) { return compare(real, weightless_ensemble(c, seeds, mutant)).largest; };
    const double scale = mutated(wrong_scale(1.02)), projection = mutated(no_projection), shared = mutated(shared_draw);
    fmt::print("| {} | {} x {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.1f} | {:.0f} | {:.0f} | {:.0f} |\n", c.name, c.sequences,
               c.length, agreement.rows.size(), agreement.rms_mean, control.rms_mean, agreement.rms_variance, control.rms_variance,
               agreement.largest, scale, projection, shared);
    std::fflush(stdout);
    all.add(agreement);
    all_control.add(control);
    EXPECT_TRUE(agreement.largest <= 5) << c.name << ": " << agreement.largest_at << "\n" << table_of(agreement);
    EXPECT_TRUE(std::min({scale, projection, shared}) > 6) << c.name;
  }
  const auto rms = [](double squares, double count) { return std::sqrt(squares / count); };
  fmt::print("| all | | {:.0f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.1f} | | | |\n", all.count, rms(all.means, all.count),
             rms(all_control.means, all_control.count), rms(all.variances, all.count), rms(all_control.variances, all_control.count),
             all.largest);
  for (const double z : {rms(all.means, all.count), rms(all.variances, all.count)}) EXPECT_TRUE(z >= 0.85 && z <= 1.15) << z;
}

}  // namespace
}  // namespace stepzero::laws
