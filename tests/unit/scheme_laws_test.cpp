// What every scheme must keep, whatever its formula.
#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/theory/predict.hpp"
#include "stepzero/weights/tensor_draw.hpp"
#include "tests/unit/scheme_model.hpp"

namespace stepzero {
namespace {

using testing::gpt2;
using testing::llama;
using testing::Model;
using testing::model;

// What is drawn has the std that was promised, truncated or not, and no two tensors hold the same numbers.
TEST(SchemeLaws, DrawnNumbersKeepThePromise) {
  for (const Scheme& scheme : schemes()) {
    for (const Model& m : {llama(std::string(scheme.name)), gpt2(std::string(scheme.name))}) {
      std::map<std::vector<float>, std::string> seen;
      for (std::size_t i = 0; i < m.graph.params.size(); ++i) {
        const std::vector<float> w = draw_tensor(m.graph, m.assignment, i, 5);
        double sum = 0, squares = 0;
        for (const float x : w) sum += x, squares += static_cast<double>(x) * x;
        const double n = static_cast<double>(w.size());
        const double std = std::sqrt(squares / n - sum / n * (sum / n));
        const double promised = m.assignment.std(i);
        const bool structured = m.assignment.structured(i);
        const double bound = promised * (structured ? 0.15 : 6 / std::sqrt(2 * n) * 1.2);
        EXPECT_TRUE(std::abs(std - promised) <= bound + 1e-7)
            << scheme.name << " " << m.graph.params[i].name << " " << std << " " << promised;
        if (promised == 0 || w.size() < 16) continue;
        const auto [at, fresh] = seen.emplace(std::vector<float>(w.begin(), w.begin() + 16), m.graph.params[i].name);
        EXPECT_TRUE(fresh) << scheme.name << ": " << m.graph.params[i].name << " begins like " << at->second;
      }
    }
  }
}

// The forward pass that a scheme asks for is the same to theory and to tensors: what reaches the end has the size
// predicted, within what four draws of a narrow model leave open.
TEST(SchemeLaws, TheoryAndTensorsAgreeOnEveryForwardPass) {
  set_threads(1);  // a model this small is slower on two
  for (const Scheme& scheme : schemes()) {
    const Model m =
        model("llama-2-7b", {"layers=3", "width=96", "heads=6", "ffn=160", "vocab=97", "positions=32"}, std::string(scheme.name));
    const auto batch = make_batch({.source = "zipf", .length = 24, .sequences = 1, .vocab = 97, .positions = 32});
    ASSERT_TRUE(batch.has_value());
    const Signal theory = predict(m.graph, m.a, *batch, scheme, {.order = Order::fluctuations});
    if (theory.nodes[static_cast<std::size_t>(m.graph.find_node("blocks.0.attn.v"))].grade == "approximate") {
      EXPECT_TRUE(scheme.name == "mimetic" || scheme.name == "identity-attention") << scheme.name;
      continue;  // correlated with the stream, as the grade says
    }
    MeasureOptions options;
    options.scheme = &scheme;
    options.seeds = 4;
    const auto real = measure(m.graph, m.a, *batch, options);
    ASSERT_TRUE(real.has_value()) << real.error().message;
    for (const char* name : {"stream.3", "logits"}) {
      const auto i = static_cast<std::size_t>(m.graph.find_node(name));
      const double p = *theory.nodes[i].forward.second_moment.predicted;
      const double r = *real->nodes[i].forward.second_moment.measured;
      EXPECT_TRUE(std::abs(r - p) <= 0.35 * std::max(p, r)) << scheme.name << " " << name << " predicted " << p << " measured " << r;
    }
  }
  set_threads(0);
}

TEST(SchemeLaws, WeightlessRefusesNumbersThatDependOnEachOther) {
  for (const char* name : {"orthogonal", "mimetic", "identity-attention"}) {
    const Model m = llama(name);
    MeasureOptions options;
    options.scheme = *find_scheme(name);
    options.weightless = true;
    const auto batch = make_batch({.source = "zipf", .length = 8, .sequences = 1, .vocab = 97, .positions = 64});
    const auto done = measure(m.graph, m.a, *batch, options);
    ASSERT_FALSE(done.has_value()) << name;
    EXPECT_THAT(done.error().message, ::testing::HasSubstr("depend on each other"));
  }
}

}  // namespace
}  // namespace stepzero
