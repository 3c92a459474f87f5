#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/statistics.hpp"

namespace stepzero::claims {

namespace {

constexpr Index queries = 32;

// n |J|^2 of the softmax's Jacobian J, averaged over the queries of a draw: |J d|^2 for random d through the shipped
// backward. A uniform attention has 1 - 1/n.
double jacobian(std::uint64_t seed, Index keys, Index head_dim, double scale) {
  const auto draw = [&](const char* name, Index rows, Index cols) {
    Tensor<float> m(rows, cols);
    fill(Distribution::normal(1), make_stream(seed, fmt::format("{}.{}", name, head_dim)), 0,
         std::span<float>(m.data(), static_cast<std::size_t>(m.size())));
    return m;
  };
  const Tensor<float> q = draw("q", queries, head_dim), k = draw("k", keys, head_dim);
  Tensor<float> d = draw("d", queries, keys), a(queries, keys);
  gemm(Trans::no, Trans::yes, static_cast<float>(scale), q.view(), k.view(), 0.0F, a.view());
  const Attention op{.key_dim = head_dim, .causal = false};
  for (Index i = 0; i < queries; ++i) {
    float kept[5];
    op.weights<float>(a.view().row(i), kept, i, keys, nullptr);
    Attention::through_softmax<float>(a.view().row(i), d.view().row(i), nullptr, keys);
  }
  return sum_squares(View<const float>(d)) * static_cast<double>(keys) / static_cast<double>(queries);
}

Evidence temperature_evidence(const Settings& s) {
  const std::vector<Index> dims = {16, 64, 256, 1024};
  const auto r = average(s.draws(), [&](int draw) {
    std::vector<double> seen;
    for (const double power : {s("power"), 0.0}) {
      for (const Index d : dims) seen.push_back(jacobian(s.seed(draw), s.size("keys"), d, std::pow(static_cast<double>(d), -power)));
    }
    seen.push_back(seen[3] / seen[1]);
    seen.push_back(seen[7] / seen[5]);
    return seen;
  });
  Evidence e;
  e.equal(Kind::statement, "|J|^2 at d_k = 1024 over d_k = 64, divided by sqrt(d_k)", 1, r[8], 0.1);
  e.equal(Kind::contrast, "the same, not divided", 1, r[9], 0.1);
  e.plot = {"size of the softmax's Jacobian, n |J|^2 (uniform attention: 1)", "d_k", "n |J|^2", true, true};
  Curve with{"q.k / sqrt(d_k)", {}, {}}, without{"q.k", {}, {}};
  for (std::size_t i = 0; i < dims.size(); ++i) {
    with.x.push_back(static_cast<double>(dims[i]));
    with.y.push_back(r[i].mean);
    without.x.push_back(static_cast<double>(dims[i]));
    without.y.push_back(r[i + dims.size()].mean);
  }
  e.plot.curves = {with, without};
  return e;
}

}  // namespace

Claim temperature() {
  return {
      .id = "temperature",
      .source = kInitialization,
      .statement = "Temperature scaling q.k / sqrt(d_k) maintains stable gradients.",
      .tested = "The mean squared size of the softmax's Jacobian, for unit q and k and 256 keys, is the same at d_k = 1024 as at d_k = 64.",
      .recorded = Verdict::holds,
      .condition = "",
      .correction = "",
      .why =
          "Divided scores have the same law whatever d_k is, and so has the Jacobian diag(A) - A A'. Undivided scores have variance d_k: "
          "the softmax picks one key, "
          "the Jacobian of most queries vanishes and the mean is carried by the few that hesitate between two. That is why it first "
          "exceeds the uniform attention's "
          "and falls with d_k from then on.",
      .settings = {draws(300), size("keys", 256, 65536, "that a query sees"), {"power", 0.5, "q.k is divided by d_k^power"}},
      .run = temperature_evidence};
}

}  // namespace stepzero::claims
