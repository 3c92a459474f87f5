// A head that runs some rows at a time: the numbers of the whole one, in less memory.
#include <map>

#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/pass/pass_plan.hpp"
#include "stepzero/report/json.hpp"
#include "stepzero/signal/describe.hpp"
#include "tests/unit/small_model.hpp"

namespace stepzero {
namespace {

struct HeadCase {
  std::string preset;
  std::vector<std::string> set;
  Index sequences, length;
};

SmallModel model_of(const HeadCase& c) {
  std::vector<std::string> set = {"layers=2", "width=24", "heads=4", "ffn=40", "vocab=61"};
  set.insert(set.end(), c.set.begin(), c.set.end());
  return small_model(c.preset, set, "zipf", c.length, c.sequences);
}

// Tied (gpt2) and not (llama), scale, softcap, bias; one sequence and several, a last piece that is short.
const std::vector<HeadCase> head_cases = {{"gpt2", {}, 1, 100},
                                          {"gpt2", {"head_bias=true"}, 7, 12},
                                          {"gpt2", {"logit_softcap=0.3", "logit_scale=2"}, 3, 71},
                                          {"llama-2-7b", {"kv_heads=2", "tied=false", "logit_scale=3"}, 1, 97},
                                          {"llama-2-7b", {"kv_heads=2", "logit_softcap=0.1"}, 80, 1}};

struct Outcome {
  double loss = 0;
  std::map<int, std::vector<double>> gradients;
  Signal signal;
};

template <class S>
Outcome outcome(const SmallModel& m, const PassOptions& options) {
  Pass<S> pass(m.graph, m.batch, options);
  const Assignment laws = distributions_of(m.graph, m.a, *find_scheme("torch-default").value());
  const WeightMaker make = drawn_weights(m.graph, laws, 3);
  const WeightSource<S> source = [&](int param, View<S> w) {
    Tensor<float> drawn(w.rows, w.cols);
    EXPECT_TRUE(make(static_cast<std::size_t>(param), drawn.view()));
    for (Index r = 0; r < w.rows; ++r) std::copy_n(drawn.view().row(r), w.cols, w.row(r));
  };
  if (options.stream) pass.stream(source);
  for (int i = 0; !options.stream && i < static_cast<int>(m.graph.params.size()); ++i) source(i, pass.weight(i));
  Outcome out;
  out.signal = describe(m.graph, m.a, m.batch);
  pass.forward();  // not taken up: what follows must not care
  measure_pass(pass, m.graph, m.batch, out.signal);
  out.loss = pass.forward();
  pass.backward({.forward = {}, .backward = {}, .parameter = [&](int param, View<const S> d) {
                   EXPECT_FALSE(out.gradients.contains(param));
                   out.gradients[param].assign(d.data, d.data + d.size());
                 }});
  return out;
}

std::string what(const HeadCase& c, Index rows) {
  return c.preset + " " + std::to_string(c.sequences) + "x" + std::to_string(c.length) + " in " + std::to_string(rows);
}

// Sums over tokens are added in another order: a rounding bound.
TEST(Head, InPiecesIsTheWholeOne) {
  constexpr double eps = std::numeric_limits<double>::epsilon();
  for (const HeadCase& c : head_cases) {
    const SmallModel m = model_of(c);
    const Outcome whole = outcome<double>(m, {});
    for (const Index rows : {8, 32, 64}) {
      ASSERT_LT(plan_head(m.graph, m.batch, {.head_rows = rows}).begin, m.graph.nodes.size()) << what(c, rows);
      const Outcome got = outcome<double>(m, {.head_rows = rows});
      EXPECT_NEAR(got.loss, whole.loss, 64 * eps * whole.loss) << what(c, rows);
      ASSERT_EQ(got.gradients.size(), m.graph.params.size()) << what(c, rows);
      for (const auto& [param, gradient] : whole.gradients) {
        double off = 0, size = 0;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          off = std::max(off, std::abs(gradient[i] - got.gradients.at(param)[i]));
          size = std::max(size, std::abs(gradient[i]));
        }
        EXPECT_TRUE(off <= 1000 * eps * size + 1e-18)
            << what(c, rows) << " " << m.graph.params[static_cast<std::size_t>(param)].name << " " << off << " of " << size;
      }
      std::vector<double> want, have;
      for_each_value(whole.signal, [&](const Value& v, Average, const auto&, const char*) { want.push_back(v.measured.value_or(-7)); });
      for_each_value(got.signal, [&](const Value& v, Average, const auto&, const char*) { have.push_back(v.measured.value_or(-7)); });
      ASSERT_EQ(have.size(), want.size());
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(std::abs(have[i] - want[i]) <= 1e-10 * std::abs(want[i]) + 1e-12) << what(c, rows) << " value " << i << " " << want[i];
      }
    }
  }
}

TEST(Head, ForwardNumbersKeepTheirBits) {
  const SmallModel m = model_of(head_cases[0]);
  const Outcome whole = outcome<double>(m, {}), got = outcome<double>(m, {.head_rows = 32});
  EXPECT_EQ(got.loss, whole.loss);
  for (std::size_t i = 0; i < whole.signal.nodes.size(); ++i) {
    const auto &a = whole.signal.nodes[i].forward, &b = got.signal.nodes[i].forward;
    EXPECT_EQ(*a.second_moment.measured, *b.second_moment.measured) << whole.signal.nodes[i].name;
    EXPECT_EQ(*a.token_cosine.measured, *b.token_cosine.measured) << whole.signal.nodes[i].name;
  }
}

TEST(Head, SameBitsStreamedAndForAnyThreads) {
  const int before = threads();
  for (const HeadCase& c : head_cases) {
    const SmallModel m = model_of(c);
    set_threads(1);
    const std::string whole = to_json(outcome<float>(m, {.head_rows = 32}).signal);
    for (const int n : {1, 2, 3}) {
      set_threads(n);
      EXPECT_EQ(to_json(outcome<float>(m, {.head_rows = 32}).signal), whole) << what(c, n);
      EXPECT_EQ(to_json(outcome<float>(m, {.checkpoint = true, .head_rows = 32}).signal), whole) << what(c, n);
      EXPECT_EQ(to_json(outcome<float>(m, {.checkpoint = true, .stream = true, .head_rows = 32}).signal), whole) << what(c, n);
    }
  }
  set_threads(before);
}

TEST(Head, PiecesFollowFromTheShape) {
  const auto cuts = [](Index sequences, Index length, Index rows) {
    const SmallModel m = model_of({"gpt2", {"layers=1"}, sequences, length});
    return plan_head(m.graph, m.batch, {.head_rows = rows}).cuts;
  };
  using Cuts = std::vector<Index>;
  EXPECT_EQ(cuts(1, 64, 64), Cuts());
  EXPECT_EQ(cuts(1, 65, 64), Cuts({0, 64, 65}));
  EXPECT_EQ(cuts(1, 130, 64), Cuts({0, 64, 128, 130}));
  EXPECT_EQ(cuts(1, 160, 128), Cuts({0, 96, 160}));
  EXPECT_EQ(cuts(2, 100, 64), Cuts({0, 64, 100, 164, 200}));
  EXPECT_EQ(cuts(5, 20, 64), Cuts({0, 60, 100}));
  EXPECT_EQ(cuts(4, 20, 64), Cuts({0, 40, 80}));
}

TEST(Head, LongSequencesNeedLessMemory) {
  Architecture a = load_model("llama-3-8b").value();
  ASSERT_TRUE(resolve(a));
  const Graph graph = build_graph(a);
  const Batch batch{.sequences = 1, .length = 4096, .ids = {}, .targets = {}};
  PassOptions options{.checkpoint = true, .keep_bytes = 1.5e9, .stream = true};
  const double whole = Pass<float>::memory_needed(graph, batch, options);
  options.head_rows = measured_head_rows;
  const double logits = 4.0 * 4096 * 128256;
  EXPECT_LT(Pass<float>::memory_needed(graph, batch, options), whole - 2 * logits);
}

}  // namespace
}  // namespace stepzero
