// Decompositions, and the tensors made of them: what they promise, and the same bits however they are made.
#include "stepzero/weights/structured_draw.hpp"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/decompose.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/row_combinations.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/theory/scheme_profile.hpp"
#include "stepzero/weights/tensor_draw.hpp"

namespace stepzero {
namespace {

std::vector<float> gaussian(Index n, std::uint64_t seed) {
  std::vector<float> m(static_cast<std::size_t>(n * n));
  fill(Distribution::normal(1), make_stream(seed, "matrix"), 0, std::span<float>(m));
  return m;
}

TEST(Decompose, SvdGivesTheMatrixBack) {
  for (const Index n : {1, 2, 7, 40, 65}) {
    const auto m = gaussian(n, 3);
    const kernels::Svd svd = kernels::svd(View<const float>(m.data(), n, n));
    double worst = 0, not_orthogonal = 0;
    for (Index r = 0; r < n; ++r) {
      for (Index c = 0; c < n; ++c) {
        double sum = 0, uu = 0, vv = 0;
        for (Index i = 0; i < n; ++i) {
          const auto at = [&](const std::vector<float>& x, Index row, Index col) {
            return static_cast<double>(x[static_cast<std::size_t>(row * n + col)]);
          };
          sum += svd.s[static_cast<std::size_t>(i)] * at(svd.u, i, r) * at(svd.v, i, c);
          uu += at(svd.u, r, i) * at(svd.u, c, i);
          vv += at(svd.v, r, i) * at(svd.v, c, i);
        }
        worst = std::max(worst, std::abs(sum - m[static_cast<std::size_t>(r * n + c)]));
        not_orthogonal = std::max({not_orthogonal, std::abs(uu - (r == c)), std::abs(vv - (r == c))});
      }
    }
    // rounding grows with the number of rotations of a row, a few sweeps of n
    EXPECT_TRUE(worst <= 1e-6 * static_cast<double>(n + 8)) << n << " " << worst;
    EXPECT_TRUE(not_orthogonal <= 2e-5) << n << " " << not_orthogonal;
    EXPECT_TRUE(std::ranges::is_sorted(svd.s, std::greater<>())) << n;
  }
}

TEST(Decompose, RowsBecomeOrthonormal) {
  for (const auto& [rows, cols] : {std::pair<Index, Index>{1, 5}, {40, 40}, {70, 133}}) {
    std::vector<double> a(static_cast<std::size_t>(rows * cols));
    fill(Distribution::normal(1), make_stream(1, "rows"), 0, std::span<double>(a));
    const std::vector<double> before = a;
    kernels::orthonormalise_rows(View<double>(a.data(), rows, cols));
    double worst = 0;
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < rows; ++j) {
        const double product =
            kernels::dot(&a[static_cast<std::size_t>(i * cols)], &a[static_cast<std::size_t>(j * cols)], static_cast<std::size_t>(cols));
        worst = std::max(worst, std::abs(product - (i == j)));
      }
    }
    EXPECT_TRUE(worst <= 1e-12) << rows << " " << cols;
    EXPECT_GT(kernels::dot(a.data(), before.data(), static_cast<std::size_t>(cols)), 0);  // the first keeps its direction
  }
}

// Two tokens that are nearly equal, and a third that another entry of the matrix puts elsewhere: no Gram matrix, by a thousandth.
TEST(Decompose, ARootOfWhatIsNearlyAGramMatrix) {
  const double near = 1 - 1e-9;
  const double entries[4][4] = {{1, near, 0.5, 0.2}, {near, 1, 0.501, 0.199}, {0.5, 0.501, 1, 0.3}, {0.2, 0.199, 0.3, 1}};
  const Kernel K = Kernel::from(4, [&](Index t, Index s) { return entries[t][s]; });
  const Tensor<float> u = kernels::root(K, 1);
  for (Index t = 0; t < 4; ++t) {
    for (Index s = 0; s < 4; ++s) {
      double sum = 0;
      for (Index i = 0; i < 4; ++i) sum += static_cast<double>(u(i, t)) * static_cast<double>(u(i, s));
      EXPECT_LE(std::abs(sum - K(t, s)), t == s ? 1e-6 : 3e-3) << t << " " << s << ": an error over the root of next to nothing";
    }
  }
}

struct Made {
  Architecture a;
  Graph graph;
  Assignment assignment;
};

Made made(const std::string& preset, const std::string& scheme, const std::vector<std::string>& set) {
  Made m;
  m.a = *load_model(preset);
  for (const auto& s : set) EXPECT_TRUE(set_field(m.a, s).has_value());
  EXPECT_TRUE(resolve(m.a).has_value());
  const Scheme* found = *find_scheme(scheme);
  EXPECT_TRUE(adapt(m.a, *found, profile).has_value());
  m.graph = build_graph(m.a);
  m.assignment = Assignment(m.graph, m.a, *found);
  return m;
}

std::size_t index_of(const Made& m, const std::string& name) {
  for (std::size_t i = 0; i < m.graph.params.size(); ++i) {
    if (m.graph.params[i].name == name) return i;
  }
  ADD_FAILURE() << name;
  return 0;
}

// Column c of tensor (rows, cols) as stored.
double at(const std::vector<float>& w, Index cols, Index r, Index c) { return w[static_cast<std::size_t>(r * cols + c)]; }

TEST(Structured, OrthogonalTensors) {
  const Made m = made("llama-2-7b", "orthogonal", {"layers=1", "width=48", "heads=6", "kv_heads=3", "head_dim=10", "ffn=112", "vocab=97"});
  const auto w = draw_tensor(m.graph, m.assignment, index_of(m, "model.layers.0.self_attn.q_proj.weight"), 3);  // (60, 48): columns
  for (Index i = 0; i < 48; ++i) {
    for (Index j = 0; j <= i; ++j) {
      double sum = 0;
      for (Index r = 0; r < 60; ++r) sum += at(w, 48, r, i) * at(w, 48, r, j);
      ASSERT_NEAR(sum, i == j ? 2 : 0, 1e-6);
    }
  }
}

// The query third of a tensor stored (in, out), and the output matrix beside it.
TEST(Structured, MimeticProductsComeOut) {
  const Made m = made("gpt2", "mimetic", {"layers=2", "width=48", "heads=3", "vocab=97", "positions=32"});
  EXPECT_EQ(m.a.position, PositionKind::sinusoidal);
  const auto qkv = draw_tensor(m.graph, m.assignment, index_of(m, "transformer.h.1.attn.c_attn.weight"), 3);
  const auto out = draw_tensor(m.graph, m.assignment, index_of(m, "transformer.h.1.attn.c_proj.weight"), 3);
  double trace_scores = 0, trace_values = 0, off = 0;
  for (Index i = 0; i < 48; ++i) {
    for (Index j = 0; j < 48; ++j) {
      double values = 0, scores = 0;
      for (Index k = 0; k < 48; ++k) values += at(qkv, 144, i, 96 + k) * at(out, 48, k, j);
      for (Index k = 0; k < 16; ++k) scores += at(qkv, 144, i, 16 + k) * at(qkv, 144, j, 48 + 16 + k);  // head 1
      if (i == j)
        trace_values += values, trace_scores += scores;
      else
        off += values * values;
    }
  }
  // Wv Wo = 0.4 Z - 0.4 I: the diagonal has mean -0.4 and std 0.4/sqrt(48) over 48 entries, the rest variance 0.16/48
  EXPECT_NEAR(trace_values / 48, -0.4, 6 * 0.4 / 48);
  EXPECT_NEAR(off / (48 * 47) / (0.16 / 48), 1, 6 * std::sqrt(2.0 / (48 * 47)));
  // the best third of 0.7 Z + 0.7 I keeps more than a third of the trace
  EXPECT_GT(trace_scores / 48, 0.7 / 3);
}

// No sign is preferred: the mean of all keys is 0 within its error.
TEST(Structured, MimeticHasNoMean) {
  const Made m = made("llama-2-7b", "mimetic", {"layers=2", "width=96", "heads=6", "head_dim=16", "ffn=112", "vocab=97"});
  for (const char* role : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    double sum = 0, squares = 0;
    double n = 0;
    for (const int layer : {0, 1}) {
      for (const std::uint64_t seed : {1, 2, 3}) {
        const std::string name = "model.layers." + std::to_string(layer) + ".self_attn." + role + ".weight";
        for (const float x : draw_tensor(m.graph, m.assignment, index_of(m, name), seed)) {
          sum += static_cast<double>(x), squares += static_cast<double>(x) * static_cast<double>(x);
          ++n;
        }
      }
    }
    EXPECT_LT(std::abs(sum) / std::sqrt(squares), 6) << role;
  }
}

TEST(Structured, IdentityAttention) {
  const Made m = made("gpt2", "identity-attention", {"layers=1", "width=64", "heads=4", "vocab=97", "positions=32"});
  const auto qkv = draw_tensor(m.graph, m.assignment, index_of(m, "transformer.h.0.attn.c_attn.weight"), 3);
  for (const Index third : {0, 64, 128}) {
    double trace = 0;
    for (Index i = 0; i < 64; ++i) trace += at(qkv, 192, i, third + i);
    EXPECT_NEAR(trace / 64, std::sqrt(0.5), 6 * std::sqrt(0.5) / 64);
  }
}

TEST(Structured, SameBitsForAnyNumberOfThreadsAndSimdLevel) {
  for (const char* scheme : {"orthogonal", "mimetic", "identity-attention"}) {
    const Made m = made("gpt2", scheme, {"layers=1", "width=72", "heads=4", "vocab=97", "positions=32"});
    const std::size_t i = index_of(m, "transformer.h.0.attn.c_attn.weight");
    const auto want = draw_tensor(m.graph, m.assignment, i, 9);
    for (const int threads : {1, 2, 3}) {
      set_threads(threads);
      EXPECT_EQ(draw_tensor(m.graph, m.assignment, i, 9), want) << scheme << " " << threads;
    }
    set_threads(0);
    for (const std::int64_t level : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(level);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      EXPECT_EQ(draw_tensor(m.graph, m.assignment, i, 9), want) << scheme << " " << hwy::TargetName(level);
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

}  // namespace
}  // namespace stepzero
