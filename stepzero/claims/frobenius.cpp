#include <cmath>
#include <limits>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/claims/model.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/products.hpp"
#include "stepzero/pass/fill_pass.hpp"

namespace stepzero::claims {

namespace {

using Weights = std::vector<std::vector<double>>;

Tensor<double> matrix(const Settings& s, std::string_view name, Index rows, Index cols) {
  Tensor<double> m(rows, cols);
  fill(Distribution::normal(1), make_stream(s.seed(), name), 0, std::span<double>(m.data(), static_cast<std::size_t>(m.size())));
  return m;
}

// A direction that the gradient has a large share in: u/|u| + g/|g|.
Weights direction(const Graph& graph, const Weights& gradient, std::uint64_t seed) {
  double squares = 0, count = 0;
  for (const auto& g : gradient) {
    for (const double x : g) squares += x * x;
    count += static_cast<double>(g.size());
  }
  Weights d;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    auto& one = d.emplace_back(gradient[i].size());
    fill(Distribution::normal(1 / std::sqrt(count)), make_stream(seed, "direction." + graph.params[i].name), 0, std::span<double>(one));
    for (std::size_t k = 0; k < one.size(); ++k) one[k] += gradient[i][k] / std::sqrt(squares);
  }
  return d;
}

// (L(W + h dW) - L(W - h dW)) / 2h over <dL/dW, dW>, for weights and a direction of this draw.
double slope_ratio(const Model& m, std::uint64_t seed) {
  Pass<double> pass(m.graph, m.batch);
  draw_weights(pass, m.graph, m.laws, seed);
  Weights gradient(m.graph.params.size());
  pass.forward();
  pass.backward(
      {.parameter = [&](int param, View<const double> d) { gradient[static_cast<std::size_t>(param)].assign(d.data, d.data + d.size()); }});
  const Weights change = direction(m.graph, gradient, seed);
  double inner = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const auto view = [](const std::vector<double>& v) { return View<const double>(v.data(), 1, static_cast<Index>(v.size())); };
    inner += frobenius(view(gradient[i]), view(change[i]));
  }
  constexpr double h = 1e-5;
  const auto loss_at = [&](double step) {
    for (std::size_t i = 0; i < change.size(); ++i) {
      const View<double> w = pass.weight(static_cast<int>(i));
      for (std::size_t k = 0; k < change[i].size(); ++k) w.data[k] += step * change[i][k];
    }
    return pass.forward();
  };
  const double up = loss_at(h), down = loss_at(-2 * h);
  return (up - down) / (2 * h) / inner;
}

Evidence frobenius_evidence(const Settings& s) {
  Evidence e;
  const Index rows = s.size("rows"), cols = s.size("columns");
  const Tensor<double> a = matrix(s, "A", rows, cols), b = matrix(s, "B", rows, cols);
  Tensor<double> h(rows, cols);
  hadamard(a.view(), b.view(), h.view());
  std::vector<double> dots(static_cast<std::size_t>(rows));
  row_dots(a.view(), b.view(), dots.data());
  double by_entry = 0, by_row = 0;
  for (Index i = 0; i < h.size(); ++i) by_entry += h.data()[i];
  for (const double d : dots) by_row += d;
  const double product = s("factor") * frobenius(a.view(), b.view());
  const double rounding = std::numeric_limits<double>::epsilon() * static_cast<double>(rows * cols);
  e.exact(Kind::statement, "sum over rows of A (-) B, against A.B", product, by_row, rounding);
  e.exact(Kind::statement, "sum over rows and columns of A o B, against A.B", product, by_entry, rounding);
  const std::vector<std::string> tiny = {"layers=2", "width=16", "heads=2", "vocab=13", "ffn=24"};
  // smooth functions: a step of any length crosses the kink of a ReLU now and then
  for (const char* family : {"layer norm, GELU, learned positions", "RMS norm, rotations, gated SiLU"}) {
    Description d{.set = tiny, .tokens = 6};
    const bool gated = std::string_view(family).starts_with("RMS");
    for (const char* field : gated ? std::vector{"norm=rmsnorm", "rotary=-1", "gated=true", "activation=silu", "kv_heads=1"}
                                   : std::vector{"activation=gelu", "position=learned", "positions=6", "bias=true", "norm_placement=post"})
      d.set.emplace_back(field);
    const Model model = make_model(d);
    const auto ratios = average(s.draws(), [&](int draw) { return std::vector{slope_ratio(model, s.seed(draw))}; });
    e.equal(Kind::statement, std::string("dL over <dL/dW, dW>, whole model: ") + family, s("factor"), ratios[0], 1e-6);
  }
  return e;
}

}  // namespace

Claim frobenius_products() {
  return {
      .id = "frobenius",
      .source = kBackprop,
      .statement =
          "A.B = sum_rows A (-) B = sum_rows sum_cols A o B: the Frobenius product is the row-wise dot product summed over rows and the "
          "Hadamard product summed over everything; a change dW changes the loss by <dL/dW, dW>_F.",
      .tested =
          "The three sums are equal to rounding. The slope of the loss of two small transformers along random directions of all weights at "
          "once "
          "(central differences) is the Frobenius product of the gradient and the direction, to one part in a million.",
      .recorded = Verdict::holds,
      .condition = "",
      .correction = "",
      .why =
          "The three products are one sum in three groupings. The second half is the definition of a gradient, so it tests the gradient "
          "rather than the "
          "statement: every backward door of every op in the two models takes part. The same identity, one op at a time and by dual "
          "numbers, is the first law "
          "that each op of the program has to pass.",
      .settings = {draws(24),
                   size("rows", 48, 4096, "rows of A and B"),
                   size("columns", 80, 4096, "columns of A and B"),
                   {"factor", 1, "the product is factor times the sum"}},
      .run = frobenius_evidence};
}

}  // namespace stepzero::claims
