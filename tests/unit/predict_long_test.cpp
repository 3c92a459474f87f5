// Predictions of long sequences, carried on from shorter ones, against those of the whole.
#include "stepzero/theory/predict_long.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "stepzero/models/make_input.hpp"
#include "tests/unit/small_model.hpp"

namespace stepzero {
namespace {

SmallModel model(Index length, Index sequences = 1) {
  return small_model("gpt2", {"layers=3", "width=256", "heads=4", "vocab=2000", "positions=4096"}, "zipf", length, sequences);
}

Signal any(const SmallModel& m, Index longest) {
  return predict_any(m.graph, m.a, m.batch, **find_scheme("gpt2"), {.longest = longest}).value();
}

struct Miss {
  double relative = 0;  // of sizes
  double absolute = 0;  // of cosines, entropies and the loss
};
Miss worst(const Signal& carried, const Signal& whole) {
  std::vector<double> values;
  for_each_value(whole, [&](const Value& v, Average, const auto&, const char*) { values.push_back(v.predicted.value_or(NAN)); });
  Miss out;
  std::size_t i = 0;
  for_each_value(carried, [&](const Value& v, Average, const auto& where, const std::string& what) {
    const double real = values[i++];
    if (!v.predicted || std::string_view(where) == "growth" || what == "mean" || what == "std") return;
    const double miss = std::abs(*v.predicted - real);
    const bool absolute = what.ends_with("cosine") || what == "entropy" || what == "loss";
    if (absolute)
      out.absolute = std::max(out.absolute, miss);
    else if (real > 1e-9)
      out.relative = std::max(out.relative, miss / real);
  });
  return out;
}

TEST(PredictLong, ShortSequencesAreWhole) {
  const SmallModel m = model(64);
  const Signal s = any(m, 64);
  EXPECT_FALSE(s.extension);
  const Miss miss = worst(s, predict(m.graph, m.a, m.batch, **find_scheme("gpt2"), {}));
  EXPECT_EQ(miss.relative, 0);
  EXPECT_EQ(miss.absolute, 0);
}

TEST(PredictLong, CarriedOnIsNearTheWhole) {
  const SmallModel m = model(512);
  const Signal carried = any(m, 256), whole = any(m, 512);
  ASSERT_TRUE(carried.extension);
  EXPECT_FALSE(whole.extension);
  EXPECT_EQ(carried.seq_len, 512);
  EXPECT_EQ(carried.extension->from, 256);
  // gradients of biases add up over the targets, which the first half of the tokens does not know of
  const Miss miss = worst(carried, whole);
  EXPECT_LT(miss.relative, 0.1);
  EXPECT_LT(miss.absolute, 0.05);
  // what it says of its own error is of the size that is seen
  EXPECT_GT(carried.extension->nearly_all, miss.relative / 3);
  EXPECT_LT(carried.extension->median, 0.01);
  // without carrying on, gradients at nodes are off by factors
  EXPECT_GT(worst(any(model(256), 256), whole).relative, 1);
}

TEST(PredictLong, EachSequenceIsCut) {
  const Signal s = any(model(80, 2), 64);
  ASSERT_TRUE(s.extension);
  EXPECT_EQ(s.seq_len, 80);
  // what two sequences of 80 tokens have, nearly
  EXPECT_LT(worst(s, any(model(80, 2), 80)).relative, 0.3);
}

// Each sequence's encoder reads the start of its own tokens: here all equal in both, however the first goes on.
TEST(PredictLong, AnEncodersTokensAreCutToo) {
  SmallModel m = small_model("t5-small", {"layers=1", "decoder_layers=1", "width=64", "heads=2", "head_dim=32", "vocab=500"}, "zipf", 1);
  constexpr std::size_t length = 64;
  m.batch = make_input(m.a, {.tokens = "zipf", .length = length, .sequences = 2}).value();
  for (std::size_t t = 0; t < length; ++t) {
    m.batch.encoder_ids[t] = t < length / 2 ? 5 : static_cast<std::int32_t>(100 + t);
    m.batch.encoder_ids[length + t] = 7;
  }
  const Signal carried =
      predict_any(m.graph, m.a, m.batch, **find_scheme("hf"), {.order = Order::fluctuations, .effort = 0.1, .longest = length / 2}).value();
  ASSERT_TRUE(carried.extension);
  const auto start = static_cast<std::size_t>(m.graph.find_node("encoder.stream.0"));
  EXPECT_NEAR(*carried.nodes[start].forward.token_cosine.predicted, 1, 1e-9);
}

// Patches are places: an image is not continued from a part of it.
TEST(PredictLong, ImagesAreWhole) {
  SmallModel m = small_model("vit-base", {"layers=1", "width=64", "heads=2", "ffn=64", "image=112"}, "zipf", 1);
  m.batch = make_input(m.a, {}).value();
  ASSERT_GT(m.batch.length, 32);
  EXPECT_FALSE(predict_any(m.graph, m.a, m.batch, **find_scheme("hf"), {.longest = 32}).value().extension);
}

}  // namespace
}  // namespace stepzero
