// Convolutional networks: shapes as torch counts them, a maximum behind a function, theory against tensors.
#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/make_input.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/signal/comparison.hpp"
#include "stepzero/theory/predict.hpp"

namespace stepzero {
namespace {

using ::testing::HasSubstr;

Expected<Architecture> described(const std::string& preset, const std::vector<std::string>& set, const std::string& scheme = "hf") {
  Architecture a = load_model(preset).value();
  for (const std::string& assignment : set) set_field(a, assignment).value();
  auto done = resolve(a);
  if (done) done = adapt(a, **find_scheme(scheme));
  if (!done) return std::unexpected(done.error());
  return a;
}

std::string refusal(const std::string& preset, const std::vector<std::string>& set, const std::string& scheme = "hf") {
  const auto a = described(preset, set, scheme);
  return a ? "" : a.error().message;
}

TEST(Cnn, WindowsStopWhereTorchsDo) {
  struct Row {
    Window window;
    Index out;  // by torch.nn.functional.conv2d
  };
  for (const Row& row : {Row{{5, 3, 2, 1}, 3},
                         {{5, 2, 3, 0}, 2},
                         {{32, 5, 1, 0}, 28},
                         {{7, 3, 2, 0}, 3},
                         {{224, 7, 2, 3}, 112},
                         {{4, 3, 1, 1}, 4},
                         {{3, 1, 2, 0}, 2},
                         {{2, 4, 5, 1}, 1}}) {
    const Window& w = row.window;
    EXPECT_EQ(w.out(), row.out);
    for (Index tap = 0; tap < w.taps(); ++tap) {
      Index seen = 0, met = 0;
      for (Index r = 0; r < w.places(); ++r) {
        if (w.pixel(r, tap) < 0) continue;
        ++seen;
        EXPECT_EQ(w.place(w.pixel(r, tap), tap), r);
      }
      for (Index p = 0; p < w.pixels(); ++p) met += w.place(p, tap) >= 0 ? 1 : 0;
      EXPECT_EQ(seen, met);
    }
  }
}

TEST(Cnn, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(refusal("lenet", {"image=12"}), HasSubstr("stage 2: a window of 5 pixels does not fit images of 4"));
  EXPECT_THAT(refusal("lenet", {"image=17", "pool_size=7"}), HasSubstr("stage 2"));
  EXPECT_THAT(refusal("lenet", {"image=16", "conv_size=3", "pool_size=8"}), HasSubstr("stage 2"));
  EXPECT_THAT(refusal("lenet", {"conv_groups=4"}), HasSubstr("conv_groups = 4 does not divide 6 and 16 channels"));
  EXPECT_THAT(refusal("lenet", {"norm=layernorm"}), HasSubstr("norm = layernorm"));
  EXPECT_THAT(refusal("lenet", {"stages="}), HasSubstr("needs stages"));
  EXPECT_THAT(refusal("resnet-8", {"conv_size=4"}), HasSubstr("conv_size = 4"));
  EXPECT_THAT(refusal("resnet-8", {}, "deepnet"), HasSubstr("scheme deepnet changes the forward pass"));
  EXPECT_THAT(refusal("gpt2", {"stages=4"}), HasSubstr("family gpt2 has no stages"));
  EXPECT_THAT(refusal("gpt2", {"norm=batchnorm"}), HasSubstr("family gpt2 has no batchnorm"));
}

TEST(Cnn, FansAreThoseOfTorch) {
  const auto a = described("resnet-8", {"conv_groups=4"}).value();
  const Graph graph = build_graph(a);
  const auto find = [&](const std::string& name) {
    for (const Param& p : graph.params) {
      if (p.name == name) return p;
    }
    ADD_FAILURE() << name;
    return Param{};
  };
  const Param conv = find("layer2.0.conv1.weight");
  EXPECT_EQ(conv.shape, (std::vector<Index>{32, 4, 3, 3}));
  EXPECT_EQ(conv.fan_in, 36);
  EXPECT_EQ(conv.fan_out, 288);
  EXPECT_EQ(conv.rows(), 32);
  EXPECT_EQ(conv.cols(), 36);
  EXPECT_EQ((**find_scheme("he-fan-out")).assign(a, conv), Distribution::normal(std::sqrt(2.0 / 288)));
  EXPECT_EQ((**find_scheme("hf")).assign(a, conv), Distribution::uniform(1.0 / 6));
  EXPECT_EQ(find("layer2.0.shortcut.weight").shape, (std::vector<Index>{32, 16, 1, 1}));
  EXPECT_EQ((**find_scheme("hf")).assign(a, find("layer2.0.bn1.bias")), Distribution::constant(0));
}

// Two ops after each other: what the theory says of the first one's input and parameters, and what tensors say. Gains are 1.
constexpr Index pair_width = 48;

Kernel near(Index rows, double far) {
  return Kernel::from(rows, [=](Index t, Index s) { return 0.3 + (t == s ? 0.7 : 0.5 * std::exp(-static_cast<double>(t - s) / far)); });
}

// Channels with a given kernel.
class Drawer {
 public:
  Drawer(const Kernel& K, double scale, std::uint64_t seed) : L_(K.tokens(), K.tokens()), scale_(scale), random_(seed) {
    for (Index i = 0; i < K.tokens(); ++i) {
      for (Index j = 0; j < K.tokens(); ++j) {
        double sum = j <= i ? K(i, j) : 0;
        for (Index k = 0; k < j && j <= i; ++k) sum -= L_(i, k) * L_(j, k);
        L_(i, j) = j > i ? 0 : i == j ? std::sqrt(sum) : sum / L_(j, j);
      }
    }
  }
  Tensor<double> operator()() {
    Tensor<double> z(L_.rows(), pair_width), out(L_.rows(), pair_width);
    for (Index i = 0; i < z.size(); ++i) z.data()[i] = normal_(random_);
    gemm(Trans::no, Trans::no, scale_, View<const double>(L_), View<const double>(z), 0.0, out.view());
    return out;
  }

 private:
  Tensor<double> L_;
  double scale_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

double squares(const Tensor<double>& x) {
  double sum = 0;
  for (Index i = 0; i < x.size(); ++i) sum += x.data()[i] * x.data()[i];
  return sum;
}

// |1' x|^2, a sum over all pairs of rows
double pairs(const Tensor<double>& x) {
  double all = 0;
  for (Index c = 0; c < x.cols(); ++c) {
    double column = 0;
    for (Index t = 0; t < x.rows(); ++t) column += x(t, c);
    all += column * column;
  }
  return all;
}

void expect_near(const Running& measured, double predicted, const char* what) {
  EXPECT_TRUE(measured.error() <= 0.005 * measured.mean) << what;
  // besides, the rule's own draws
  EXPECT_TRUE(std::abs(measured.mean - predicted) <= 6 * measured.error() + 0.01 * predicted)
      << what << " measured " << measured.mean << " +- " << measured.error() << " predicted " << predicted;
}

// Returns the trace of the predicted gradient, and that of a prediction that takes the second op's gradient for independent.
template <class First, class Second>
std::pair<double, double> check_pair(const First& first, const Second& second, const std::vector<Law>& laws, Index rows, Index places) {
  set_threads(1);  // tensors this small are slower on two
  Batch batch;
  batch.sequences = 2;
  DownWire u;
  u.K = near(rows, 3);
  const DownWire* pu = &u;
  DownWire x = first.push(PushDoor{batch, {&pu, 1}, laws});
  if constexpr (requires { first.note(PushDoor{batch, {&pu, 1}, laws}); }) x.note = first.note(PushDoor{batch, {&pu, 1}, laws});
  const DownWire* px = &x;
  const DownWire y = second.push(PushDoor{batch, {&px, 1}, {}});
  const UpWire up(near(places, 2));
  const UpWire at_x = second.pull(PullDoor{batch, {&px, 1}, {}, y, up}).dx[0];
  const Pulled pulled = first.pull(PullDoor{batch, {&pu, 1}, laws, x, at_x});

  std::vector<Tensor<double>> theta, dtheta;
  for (const Law& law : laws) {
    std::fill_n(theta.emplace_back(1, pair_width).data(), pair_width, law.mean);
    dtheta.emplace_back(1, pair_width);
  }
  const std::vector<View<const double>> tv(theta.begin(), theta.end());
  std::vector<Into<double>> dt;
  for (auto& d : dtheta) dt.push_back({d.view()});
  Drawer draw_u(u.K, 1, 3), draw_dy(up.G, 1 / std::sqrt(static_cast<double>(pair_width)), 4);
  Running size, sum, square, gain;
  for (int d = 0; d < 3000; ++d) {
    const Tensor<double> ut = draw_u(), dy = draw_dy();
    Tensor<double> xt(rows, pair_width), yt(places, pair_width), keep(places, pair_width), dx(rows, pair_width), du(rows, pair_width);
    const View<const double> uv = ut, xv = xt;
    const Into<double> to_x{dx.view()}, to_u{du.view()};
    first.forward(Down<double>{batch, {&uv, 1}, tv, xt.view(), {}});
    second.forward(Down<double>{batch, {&xv, 1}, {}, yt.view(), keep.view()});
    second.backward(Up<double>{batch, {&xv, 1}, {}, yt.view(), keep.view(), dy.view(), {&to_x, 1}, {}});
    first.backward(Up<double>{batch, {&uv, 1}, tv, xt.view(), {}, dx.view(), {&to_u, 1}, dt});
    size.add(squares(du));
    sum.add(pairs(du));
    square.add(squares(yt) / pair_width);
    if (!laws.empty()) gain.add(squares(dtheta[0]));
  }
  set_threads(0);
  const Kernel& G = pulled.dx[0].G;
  expect_near(size, G.trace(), "gradient's square");
  if (sum.mean > 1e-9) expect_near(sum, G.sum(), "gradient's sum");
  expect_near(square, y.K.trace(), "square of what comes out");
  if (!laws.empty()) expect_near(gain, pulled.dtheta[0], "gain's gradient");
  return {G.trace(), first.pull(PullDoor{batch, {&pu, 1}, laws, x, UpWire(at_x.G)}).dx[0].G.trace()};
}

// The gradient before a ReLU whose largest outputs go on: slopes and maxima are not independent.
TEST(Cnn, AMaximumKnowsTheGradientBeforeTheFunction) {
  const MaxPool pool{.window = {.side = 4, .size = 2, .stride = 2}, .width = pair_width};
  const auto [together, apart] = check_pair(Elementwise<Relu>{.width = pair_width}, pool, {}, 2 * pool.pixels(), 2 * pool.places());
  EXPECT_LT(apart, 0.8 * together);
}

// A norm takes off what points along its channel, and a ReLU behind it sends back just that.
TEST(Cnn, ABatchNormKnowsTheFunctionBehindIt) {
  const auto [together, apart] =
      check_pair(BatchNorm{.width = pair_width}, Elementwise<Relu>{.width = pair_width}, {Law{1, 0}, Law{0, 0}}, 32, 32);
  EXPECT_GT(apart, 1.02 * together);
}

void expect_predicted(const std::string& preset, const std::vector<std::string>& set, const std::string& scheme, int seeds) {
  const Architecture a = described(preset, set, scheme).value();
  const Graph graph = build_graph(a);
  const Batch batch = make_input(a, {.sequences = 2}).value();
  MeasureOptions options;
  options.scheme = *find_scheme(scheme);
  options.seeds = seeds;
  const Signal joined =
      join(predict(graph, a, batch, *options.scheme, {.order = Order::fluctuations}), measure(graph, a, batch, options).value());
  int compared = 0;
  for (const Comparison& c : compare(joined)) {
    // what is left of a square once a mean is taken off, cosines of few channels, and what a norm sends back to pixels through few
    // weights: docs/cnn.md
    if (c.what == "variance" || c.what == "token cosine" || c.what == "std") continue;
    if (a.norm == NormKind::batchnorm && (c.where == "stream.0" || c.where == "pixels") && c.what.starts_with("gradient")) continue;
    ++compared;
    EXPECT_FALSE(c.wrong()) << preset << " " << scheme << ": " << c.where << " " << c.what << " predicted " << c.predicted << " measured "
                            << c.measured << " +- " << c.standard_error;
  }
  EXPECT_GT(compared, 60);
}

TEST(Cnn, TheoryAndTensorsAgree) {
  const std::vector<std::string> plain = {"image=12", "stages=40,64", "conv_size=3", "conv_padding=1", "dense=80"};
  auto average = plain;
  average.insert(average.end(), {"pooling=average", "activation=tanh", "norm=batchnorm", "mlp_bias=false", "conv_groups=4", "colours=3"});
  expect_predicted("lenet", plain, "torch-default", 100);
  expect_predicted("lenet", average, "xavier-normal", 100);
  expect_predicted("resnet-8", {"image=8", "stages=48,64"}, "he-fan-out", 100);
}

// Rows change from wire to wire: what is made again, a node at a time, is the same.
TEST(Cnn, StreamedIsTheSame) {
  for (const char* preset : {"lenet", "resnet-8"}) {
    const Architecture a = described(preset, {}).value();
    const Graph graph = build_graph(a);
    const Batch batch = make_input(a, {.sequences = 2}).value();
    MeasureOptions options;
    options.scheme = *find_scheme("hf");
    const Signal whole = measure(graph, a, batch, options).value();
    options.stream = true;
    const Signal streamed = measure(graph, a, batch, options).value();
    EXPECT_EQ(*whole.loss.measured, *streamed.loss.measured) << preset;
    EXPECT_EQ(*whole.gradient_norm.measured, *streamed.gradient_norm.measured) << preset;
  }
}

}  // namespace
}  // namespace stepzero
