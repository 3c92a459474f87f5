// sweep: axes as they are written, maps that know the line of chaos of a plain network, stores that are gone on with.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/api/guarded.hpp"
#include "stepzero/api/sweep.hpp"
#include "stepzero/core/gauss.hpp"

namespace stepzero {
namespace {

using solve::Axis;
using solve::parse_axis;

const ModelRequest tiny = {.model = "gpt2", .set = {"layers=2", "width=32", "heads=4", "vocab=97", "positions=64"}};

SweepSubject map_of(const ModelRequest& model, const SweepRequest& request) {
  auto out = guarded({}, [&] { return run_sweep(model, request, {}); });
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out ? std::move(*out) : SweepSubject();
}

TEST(Sweep, ReadsAxes) {
  const auto geometric = parse_axis("std.ffn_out=0.1..10:x3");
  ASSERT_TRUE(geometric);
  EXPECT_EQ(geometric->kind, Axis::Kind::factor);
  EXPECT_NEAR(geometric->numbers.at(1), 1, 1e-12);
  const auto whole = parse_axis("layers=1..4:7");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->values, (std::vector<std::string>{"1", "2", "3", "4"})) << "rounded, each once";
  const auto words = parse_axis("activation=relu,tanh");
  ASSERT_TRUE(words);
  EXPECT_TRUE(words->numbers.empty());
  for (const char* wrong :
       {"layers", "=1..2", "layers=", "depht=1..2", "layers=a..b", "layers=1..4:1", "residual_scale=0..1:x4", "rate=low,high"})
    EXPECT_FALSE(parse_axis(wrong)) << wrong;
}

TEST(Sweep, CellsAreWhatPredictSays) {
  const SweepRequest request = {.over = {"std.ffn_out=0.5,2", "layers=1,2"}, .input = {.length = 16}};
  const SweepSubject s = map_of(tiny, request);
  ASSERT_EQ(s.cells.size(), 4);
  ModelRequest one = tiny;
  one.set.emplace_back("layers=1");
  const SweepSubject alone = map_of(one, {.over = {"std.ffn_out=2,3"}, .input = {.length = 16}});
  EXPECT_EQ(s.cells[2].quantities, alone.cells[0].quantities) << "factor 2, one layer";
  EXPECT_NE(s.cells[0].quantities, s.cells[2].quantities);
}

TEST(Sweep, TellsOfModelsThatCannotBeMade) {
  const SweepSubject s = map_of(tiny, {.over = {"heads=3,4"}, .input = {.length = 16}});
  EXPECT_FALSE(s.cells[0].error.empty()) << "32 channels, 3 heads";
  EXPECT_TRUE(s.cells[1].error.empty());
  EXPECT_NE(sweep_text(s, "backward", {}).find("cannot be made"), std::string::npos);
}

// Schoenholz et al. 2016: q = s^2 E tanh(sqrt q Z)^2 + b^2, chi = s^2 E tanh'(sqrt q Z)^2; order turns into chaos where chi = 1.
struct MeanField {
  double q = 1, chi = 0;
  explicit MeanField(double s, double b2 = 0.05) {
    const auto mean = [&](const auto& f) { return expect([&](double z) { return f(std::sqrt(q) * z); }, 1); };
    for (int i = 0; i < 2000; ++i) q = s * s * mean([](double x) { return std::pow(std::tanh(x), 2); }) + b2;
    chi = s * s * mean([](double x) { return std::pow(std::cosh(x), -4); });
  }
};

TEST(Sweep, FindsTheLineOfChaosOfATanhNetworkAndItsDepthScale) {
  const ModelRequest network = {.model = std::string(STEPZERO_SOURCE_DIR) + "/examples/architectures/tanh.py"};
  const SweepSubject s = map_of(network, {.over = {"std.ffn_in=1..1.6:25"}, .input = {.length = 4}});
  const double found = crossings(s, "backward", 0).at(0);
  double low = 1, high = 1.6;
  for (int i = 0; i < 40; ++i) (MeanField((low + high) / 2).chi < 1 ? low : high) = (low + high) / 2;
  EXPECT_NEAR(found / low, 1, 0.01) << "where chi is 1: " << low;
  // gradients and what tells tokens apart live as long: -1 / ln chi
  std::size_t backward = 0;
  while (std::string(solve::quantities()[backward].name) != "backward") ++backward;
  for (const std::size_t i : {4UL, 6UL, 8UL}) {
    const double scale = -1 / (2 * s.cells[i].quantities[backward]), wanted = -1 / std::log(MeanField(s.axes[0].numbers[i]).chi);
    EXPECT_NEAR(scale / wanted, 1, 0.01) << "depth scale at " << s.axes[0].values[i];
  }
}

TEST(Sweep, GoesOnWhereItsStoreEnds) {
  const std::string store = ::testing::TempDir() + "sweep_store.jsonl";
  std::remove(store.c_str());
  SweepRequest request = {.over = {"rate=1e-3,1e-2"}, .input = {.length = 8}, .train = 1, .store = store};
  request.training.steps = 2;
  request.training.input = {.length = 8, .sequences = 2};
  ModelRequest model = tiny;
  model.set.emplace_back("vocab=256");
  const SweepSubject first = map_of(model, request);
  ASSERT_TRUE(first.cells[1].trained);
  const double last = first.cells[1].trained->last.at(0);
  // the first cell as if it had been another: it is taken, not trained; the second is cut short
  std::ofstream(store) << "";
  {
    std::ofstream out(store, std::ios::app);
    std::string head;
    SweepRequest again = request;
    again.store = store + ".head";
    std::remove(again.store.c_str());
    (void)map_of(model, again);
    std::getline(std::ifstream(again.store) >> std::ws, head);
    out << head << "\n" << R"({"at":[0],"first":[5],"last":[4.25],"diverged":0,"stalled":0})" << "\n" << R"({"at":[1],"fir)";
  }
  const SweepSubject second = map_of(model, request);
  EXPECT_EQ(second.cells[0].trained->last.at(0), 4.25);
  EXPECT_EQ(second.cells[1].trained->last.at(0), last);
  request.training.steps = 3;
  EXPECT_FALSE(guarded({}, [&] { return run_sweep(model, request, {}); })) << "another map";
}

}  // namespace
}  // namespace stepzero
