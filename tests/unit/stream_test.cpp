// A streamed pass makes its weights when it needs them: the same numbers as the whole pass, to the bit, in less memory.
#include <algorithm>

#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/pass/pass_plan.hpp"
#include "stepzero/report/json.hpp"
#include "stepzero/signal/describe.hpp"
#include "stepzero/weights/checkpoint.hpp"
#include "tests/hostile/scratch.hpp"
#include "tests/unit/scheme_model.hpp"

namespace stepzero {
namespace {

using testing::Model;

Batch batch_for(const Model& m, Index length = 40) {
  return make_batch({.source = "zipf", .length = length, .sequences = 2, .vocab = m.a.vocab, .positions = m.a.positions}).value();
}

std::string json_of(const Model& m, MeasureOptions options, const std::string& scheme) {
  options.scheme = *find_scheme(scheme);
  options.seed = 5;
  const auto signal = measure(m.graph, m.a, batch_for(m), options);
  EXPECT_TRUE(signal.has_value()) << signal.error().message;
  return signal ? to_json(*signal) : "";
}

TEST(Stream, ChangesNoBit) {
  const int before = threads();
  for (const char* scheme : {"hf", "xavier-uniform", "orthogonal"}) {
    for (const Model& m : {testing::llama(scheme), testing::gpt2(scheme)}) {
      for (const DType dtype : {DType::F32, DType::BF16}) {
        const std::string whole = json_of(m, {.dtype = dtype, .seeds = 2}, scheme);
        for (const int n : {1, 2, 3}) {
          set_threads(n);
          EXPECT_EQ(json_of(m, {.stream = true, .dtype = dtype, .seeds = 2}, scheme), whole) << m.a.name << " " << scheme << " " << n;
        }
        set_threads(before);
      }
    }
  }
}

TEST(Stream, ChangesNoBitHoweverMuchIsKept) {
  const Model m = testing::llama("hf");
  const Batch batch = batch_for(m);
  const auto run = [&](const PassOptions& options) {
    Pass<float> pass(m.graph, batch, options);
    const WeightMaker make = drawn_weights(m.graph, m.assignment, 3);
    const WeightSource<float> source = [&](int param, View<float> w) { ASSERT_TRUE(make(static_cast<std::size_t>(param), w)); };
    if (options.stream) pass.stream(source);
    for (int i = 0; !options.stream && i < static_cast<int>(m.graph.params.size()); ++i) source(i, pass.weight(i));
    Signal signal = describe(m.graph, m.a, batch);
    measure_pass(pass, m.graph, batch, signal);
    measure_pass(pass, m.graph, batch, signal);  // a second pass finds its buffers in order
    return to_json(signal);
  };
  const std::string whole = run({});
  double last = Pass<float>::memory_needed(m.graph, batch);
  for (const double bytes : {1e12, 1e6, 4e5, 0.0}) {
    const PassOptions options{.checkpoint = true, .keep_bytes = bytes, .stream = true};
    EXPECT_EQ(run(options), whole) << bytes;
    EXPECT_LT(Pass<float>::memory_needed(m.graph, batch, options), last) << bytes;
    last = Pass<float>::memory_needed(m.graph, batch, options);
  }
}

TEST(Stream, KeepsWhatLiesNearestToTheEnd) {
  const Model m = testing::llama("hf");
  const std::vector<bool> cuts = find_cuts(m.graph, m.graph.nodes.size());
  ASSERT_GE(std::ranges::count(cuts, true), 4);
  const std::vector<Index> rows(m.graph.nodes.size(), 80);
  EXPECT_EQ(find_repeats(m.graph, cuts, rows, 0), cuts);
  EXPECT_EQ(std::ranges::count(find_repeats(m.graph, cuts, rows, 1e12), true), 0);
  const std::vector<bool> some = find_repeats(m.graph, cuts, rows, 1e5);
  std::vector<bool> in_order;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i]) in_order.push_back(some[i]);
  }
  EXPECT_TRUE(in_order.front());
  EXPECT_FALSE(in_order.back());
  EXPECT_TRUE(std::ranges::is_sorted(in_order, std::greater<>()));
}

TEST(Stream, ReadsACheckpointOneTensorAtATime) {
  const testing::Scratch scratch;
  const Model m = testing::llama("hf");
  const std::string folder = scratch.path("shards");
  ASSERT_TRUE(write_checkpoint(m.graph, m.assignment, {.path = folder, .dtype = DType::BF16, .seed = 5, .max_shard_bytes = 20000}));
  const std::string loaded = json_of(m, {.weights = folder}, "hf");
  EXPECT_EQ(json_of(m, {.weights = folder, .stream = true}, "hf"), loaded);
  // what is drawn in bf16 is what the file holds
  std::string drawn = json_of(m, {.stream = true, .dtype = DType::BF16}, "hf");
  const std::string from = "\"scheme\": \"hf\"", to = "\"scheme\": \"weights\"";
  ASSERT_NE(drawn.find(from), std::string::npos);
  drawn.replace(drawn.find(from), from.size(), to);
  EXPECT_EQ(drawn, loaded);
}

TEST(Stream, IsChosenWhereAllWeightsDoNotFit) {
  const Model m = testing::llama("hf");
  const Batch batch = batch_for(m);
  const double whole = Pass<float>::memory_needed(m.graph, batch);
  std::vector<std::string> notes;
  MeasureOptions options{.scheme = *find_scheme("hf"), .memory = whole, .note = [&](const std::string& note) { notes.push_back(note); }};
  const auto fits = measure(m.graph, m.a, batch, options);
  ASSERT_TRUE(fits);
  EXPECT_TRUE(notes.empty());
  options.memory = whole - 1;
  const auto streamed = measure(m.graph, m.a, batch, options);
  ASSERT_TRUE(streamed) << streamed.error().message;
  EXPECT_EQ(notes.size(), 1U);
  EXPECT_EQ(to_json(*streamed), to_json(*fits));
  options.memory = 1e5;
  const auto hopeless = measure(m.graph, m.a, batch, options);
  ASSERT_FALSE(hopeless);
  EXPECT_NE(hopeless.error().message.find("a streamed pass needs"), std::string::npos) << hopeless.error().message;
}

TEST(Stream, NumbersThatDoNotFitAreTold) {
  Model m = testing::llama("hf");
  const auto law = Distribution::normal(1e5);
  m.assignment.set(0, law);
  Tensor<float> w(m.graph.params[0].rows(), m.graph.params[0].cols());
  EXPECT_TRUE(drawn_weights(m.graph, m.assignment, 0, DType::BF16)(0, w.view()));
  const auto done = drawn_weights(m.graph, m.assignment, 0, DType::F16)(0, w.view());
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find(m.graph.params[0].name), std::string::npos);
}

TEST(Stream, ModelsLargerThanMemoryNeedLittle) {
  const auto needed = [](const char* name, Index length) {
    Architecture a = load_model(name).value();
    EXPECT_TRUE(resolve(a));
    const Batch batch{.sequences = 1, .length = length, .ids = {}, .targets = {}};
    return Pass<float>::memory_needed(build_graph(a), batch, {.checkpoint = true, .keep_bytes = 1.5e9, .stream = true});
  };
  EXPECT_LT(needed("llama-2-7b", 128), 2.8e9);
  EXPECT_LT(needed("llama-2-70b", 64), 4.5e9);
}

}  // namespace
}  // namespace stepzero
