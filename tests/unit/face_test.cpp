// The library through its one public header.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/stepzero.hpp"

namespace {

using namespace stepzero;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

const ModelRequest small = {
    .model = "gpt2", .set = {"layers=2", "width=32", "heads=4", "vocab=97", "positions=64"}, .scheme = "xavier-normal"};
const InputOptions short_text = {.length = 16};

Model load(const ModelRequest& request = small) {
  auto model = Model::load(request);
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  return *model;
}

// A folder that goes with the object.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("stepzero-face-" + std::to_string(::getpid()))) { fs::create_directories(path_); }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] bool empty() const { return fs::is_empty(path_); }

 private:
  fs::path path_;
};

// Says stop when it is asked for the n-th time.
struct StopAt {
  int n;
  std::shared_ptr<std::atomic<int>> asked = std::make_shared<std::atomic<int>>(0);
  bool operator()() const { return ++*asked >= n; }
};

TEST(Face, PutsAdaptersBesideAModel) {
  ModelRequest request = small;
  request.lora = "rank=2,alpha=4";
  const Model model = load(request);
  const auto signal = model.measure({.input = short_text});
  ASSERT_TRUE(signal);
  EXPECT_EQ(signal->trainable_count, 2 * (2 * 32 + 96 * 2));
  EXPECT_TRUE(signal->parameters.front().frozen);
  const Folder folder;
  ASSERT_TRUE(model.init({.path = folder / "adapter"}));
  const auto read = load().measure({.input = short_text, .adapter = folder / "adapter"});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read->gradient_norm.measured, *signal->gradient_norm.measured);
  request.lora = "roles=gain";
  EXPECT_FALSE(Model::load(request));
}

TEST(Face, LoadsAModel) {
  const Model model = load();
  EXPECT_EQ(model.architecture().layers, 2);
  EXPECT_EQ(model.architecture().ffn, 128) << "derived";
  EXPECT_EQ(model.request().scheme, "xavier-normal");
}

TEST(Face, AModelMayBeTheTextOfItsFile) {
  const auto config = Model::load({.model = R"({"model_type": "gpt2", "n_layer": 3, "n_embd": 48, "n_head": 4})"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->architecture().layers, 3);
  EXPECT_EQ(config->architecture().name, "gpt2");
  const auto own = Model::load({.model = "from stepzero.arch import *\narch('mine', width=32, layers=1)\n"});
  EXPECT_THAT(own.error().message, HasSubstr("the text")) << "told where it stands";
  const auto broken = Model::load({.model = "{\"model_type\": 3}"});
  EXPECT_THAT(broken.error().message, HasSubstr("the text: \"model_type\" is missing"));
}

TEST(Face, LittleEffortIsQuickerAndNear) {
  const Model model = load();
  const auto whole = model.predict({.input = short_text}), little = model.predict({.input = short_text, .effort = 0.01});
  ASSERT_TRUE(whole && little);
  EXPECT_NE(to_json(*whole), to_json(*little));
  EXPECT_NEAR(*little->loss.predicted, *whole->loss.predicted, 0.01 * *whole->loss.predicted);
  EXPECT_THAT(model.predict({.input = short_text, .effort = 0}).error().message, HasSubstr("effort = 0 is not above 0 and at most 1"));
}

TEST(Face, PredictsAndMeasuresTheSame) {
  const Model model = load();
  const auto predicted = model.predict({.input = short_text});
  const auto measured = model.measure({.input = short_text, .seeds = 40});
  ASSERT_TRUE(predicted && measured);
  ASSERT_EQ(predicted->nodes.size(), measured->nodes.size());
  EXPECT_LT(std::abs(*predicted->loss.predicted - *measured->loss.measured), 5 * *measured->loss.standard_error + 0.01);
  EXPECT_NEAR(*predicted->gradient_norm.predicted / *measured->gradient_norm.measured, 1, 0.1);
  EXPECT_FALSE(predicted->loss.measured);
  EXPECT_EQ(measured->seeds, 40);
  EXPECT_EQ(predicted->tokens, "zipf");
  EXPECT_THAT(to_json(*predicted), AllOf(HasSubstr("\"stepzero.signal/1\""), HasSubstr("\"xavier-normal\"")));
}

TEST(Face, ComparesBoth) {
  const auto joined = load().compare({.input = short_text, .seeds = 8});
  ASSERT_TRUE(joined);
  EXPECT_TRUE(joined->loss.predicted && joined->loss.measured);
  EXPECT_FALSE(compare(*joined).empty());
}

TEST(Face, OrdersDiffer) {
  const Model model = load();
  const auto limit = model.predict({.input = short_text, .order = Order::limit});
  const auto draws = model.predict({.input = short_text});
  ASSERT_TRUE(limit && draws);
  EXPECT_FALSE(limit->loss.spread);
  EXPECT_TRUE(draws->loss.spread);
  EXPECT_NE(*limit->gradient_norm.predicted, *draws->gradient_norm.predicted);
  EXPECT_EQ(order_of("fluctuations").value(), Order::fluctuations);
  EXPECT_THAT(order_of("nought").error().hint, HasSubstr("limit, fluctuations, draws"));
}

TEST(Face, FindsWhatIsWrong) {
  const auto signal =
      load({.model = "gpt2", .set = {"layers=48", "norm_placement=post"}, .scheme = "xavier-normal"}).predict({.input = short_text});
  ASSERT_TRUE(signal);
  EXPECT_TRUE(std::ranges::any_of(signal->findings, [](const Finding& f) { return f.severity >= Severity::warning; }));
}

TEST(Face, WritesWeightsAndAuditsThem) {
  const Folder folder;
  const Model model = load();
  const auto written = model.init({.path = folder / "model.safetensors", .seed = 3});
  ASSERT_TRUE(written) << written.error().message;
  ASSERT_EQ(written->files.size(), 1U);
  EXPECT_EQ(fs::file_size(written->files[0].path), written->files[0].bytes);
  const auto measured = model.measure({.input = short_text, .weights = folder / "model.safetensors"});
  const auto drawn = model.measure({.input = short_text, .seed = 3});
  ASSERT_TRUE(measured && drawn);
  EXPECT_EQ(*measured->loss.measured, *drawn->loss.measured) << "the same bits";
  const auto found = audit({.path = folder / "model.safetensors", .config = "gpt2", .set = small.set});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->scheme(), "xavier-normal");
  EXPECT_THAT(found->json(), HasSubstr("\"stepzero.audit/1\""));
  EXPECT_THAT(found->html(), HasSubstr("<html"));
}

TEST(Face, TakesAStep) {
  const auto done = load().step({.input = short_text, .optimizer = {.rate = 1e-3}, .measured = true, .search = false, .seeds = 4});
  ASSERT_TRUE(done) << done.error().message;
  const StepSignal& step = done->signal().steps.at(0);
  ASSERT_TRUE(step.after.predicted && step.after.measured);
  EXPECT_LT(*step.after.measured, *step.before.measured) << "a step down";
  EXPECT_NEAR(*step.first_order.predicted / *step.first_order.measured, 1, 0.2);
  EXPECT_EQ(done->signal().optimizer.name, "adamw");
  EXPECT_THAT(done->json(), HasSubstr("\"stepzero.step/1\""));
  EXPECT_THAT(done->text(), AllOf(HasSubstr("stream.2"), HasSubstr("measured")));
  EXPECT_THAT(done->html("face_test"), AllOf(HasSubstr("<html"), HasSubstr("face_test")));
}

TEST(Face, ChecksCoordinates) {
  const Model model = load({.model = "gpt2", .set = {"layers=1", "width=32", "heads=2", "vocab=97", "positions=16", "tied=false"}});
  CoordRequest request{.widths = {32, 64, 128, 256}, .input = short_text, .steps = 1, .seeds = 2};
  const auto right = model.coord(request);
  ASSERT_TRUE(right) << right.error().message;
  EXPECT_TRUE(right->pass()) << right->text();
  EXPECT_THAT(right->json(), AllOf(HasSubstr("\"stepzero.coord/1\""), HasSubstr("\"verdict\": \"pass\"")));
  EXPECT_THAT(right->html("face_test"), HasSubstr("<html"));
  request.parametrization = "standard";
  const auto left = model.coord(request);
  ASSERT_TRUE(left) << left.error().message;
  EXPECT_FALSE(left->pass()) << "effects of hidden updates grow with the width";
}

TEST(Face, CarriesSettings) {
  const Model model = load({.model = "gpt2", .set = {"layers=2", "vocab=97", "positions=16"}});
  TransferRequest request{.base_set = {"width=32", "heads=2"}, .target_set = {"width=128", "heads=8"}, .optimizer = {.rate = 0.01}};
  const auto plain = model.transfer(request);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_THAT(plain->json(), AllOf(HasSubstr("\"stepzero.transfer/1\""), HasSubstr("logit_scale=0.25")));
  EXPECT_THAT(plain->rates(), AllOf(HasSubstr("\"stepzero.rates/1\""), HasSubstr("0.0025")));
  EXPECT_THAT(plain->torch("face_test"), HasSubstr("face_test"));
  EXPECT_THAT(plain->json(), Not(HasSubstr("\"wanted\"")));
  request.check = true;
  request.input = short_text;
  request.seeds = 1;
  const auto checked = model.transfer(request);
  ASSERT_TRUE(checked) << checked.error().message;
  EXPECT_THAT(checked->json(), HasSubstr("\"wanted\""));
  request.optimizer.name = "sophia";
  EXPECT_FALSE(model.transfer(request)) << "sophia takes no step here";
  request.check = false;
  EXPECT_TRUE(model.transfer(request));
  request.target = "gpt3";
  EXPECT_THAT(model.transfer(request).error().message, HasSubstr("gpt3"));
}

TEST(Face, TellsCheckpointsApart) {
  const Folder folder;
  const Model model = load();
  const std::string path = folder / "model.safetensors";
  ASSERT_TRUE(model.init({.path = path, .seed = 3}));
  const auto same = diff({.left = path, .right = "gpt2", .set = small.set});
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_TRUE(same->same()) << "scheme and seed are in the file\n" << same->text();
  const auto other = diff({.left = path, .right = "gpt2", .set = small.set, .seed = 4});
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->same());
  EXPECT_THAT(other->json(), AllOf(HasSubstr("\"stepzero.diff/1\""), HasSubstr("\"same law\"")));
  EXPECT_THAT(other->text(), HasSubstr("other numbers of the same law"));
}

TEST(Face, ReportsOnePage) {
  const auto report =
      load().report({.measure = {.input = short_text, .seeds = 2}, .measured = true, .compare_schemes = {"he"}, .command = "face_test"});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->signal.loss.measured && report->signal.loss.predicted);
  EXPECT_THAT(report->html, AllOf(HasSubstr("<html"), HasSubstr("face_test"), HasSubstr("\"he\"")));
}

TEST(Face, TellsOfProgress) {
  double last = 0;
  int n = 0;
  const Watch watch{.progress = [&](double share, const std::string&) {
    EXPECT_TRUE(share >= last && share <= 1) << share << " after " << last;
    last = share;
    ++n;
  }};
  ASSERT_TRUE(load().compare({.input = short_text, .seeds = 2}, watch));
  EXPECT_GT(n, 20);
  EXPECT_EQ(last, 1);
}

TEST(Face, AStepTellsOfProgress) {
  double last = 0;
  int n = 0;
  const Watch watch{.progress = [&](double share, const std::string&) {
    EXPECT_TRUE(share >= last && share <= 1) << share << " after " << last;
    last = share;
    ++n;
  }};
  ASSERT_TRUE(load().step({.input = short_text, .measured = true, .seeds = 2}, watch));
  EXPECT_GT(n, 20);
  EXPECT_NEAR(last, 1, 1e-9);
}

TEST(Face, ErrorsAreValues) {
  const Folder folder;
  const auto message = [](const auto& result) { return result ? "no error" : result.error().message; };
  EXPECT_THAT(message(Model::load({.model = "gtp2"})), HasSubstr("did you mean gpt2?"));
  EXPECT_THAT(message(Model::load({.model = "gpt2", .set = {"layer=2"}})), HasSubstr("layer"));
  EXPECT_THAT(message(Model::load({.model = "gpt2", .set = {"heads=5"}})), HasSubstr("gpt2"));
  EXPECT_THAT(message(Model::load({.model = "gpt2", .scheme = "nosuch"})), HasSubstr("nosuch"));
  const Model model = load();
  EXPECT_THAT(message(model.predict({.input = {.tokens = folder / "missing"}})), HasSubstr("missing"));
  EXPECT_THAT(message(model.predict({.input = {.length = 65}})), HasSubstr("64"));
  EXPECT_THAT(message(model.measure({.seeds = 0})), HasSubstr("at least one"));
  EXPECT_THAT(message(model.measure({.dtype = "f8"})), HasSubstr("f8"));
  EXPECT_THAT(message(model.measure({.weights = folder / "missing"})), HasSubstr("missing"));
  EXPECT_THAT(message(model.report({.compare_schemes = {"nosuch"}})), HasSubstr("nosuch"));
  EXPECT_THAT(message(audit({.path = folder / "missing"})), HasSubstr("missing"));
  EXPECT_THAT(message(diff({.left = folder / "missing", .right = "gpt2"})), HasSubstr("missing"));
  EXPECT_THAT(message(model.step({.optimizer = {.name = "adma"}})), HasSubstr("adma"));
  EXPECT_THAT(message(model.step({.predicted = false})), HasSubstr("measured"));
  EXPECT_THAT(message(model.step({.measured = true, .seeds = 0})), HasSubstr("at least one"));
  EXPECT_THAT(message(model.coord({})), HasSubstr("widths"));
  EXPECT_THAT(message(model.coord({.widths = {-8, 8}})), HasSubstr("-8"));
  EXPECT_THAT(message(model.coord({.widths = {32, 64}, .at = {"64"}})), HasSubstr("--at"));
  EXPECT_THAT(message(model.coord({.widths = {32, 64}, .parametrization = "map"})), HasSubstr("map"));
  EXPECT_THAT(message(model.transfer({.parametrization = "map"})), HasSubstr("map"));
  ASSERT_TRUE(model.init({.path = folder / "twice.safetensors"}));
  EXPECT_THAT(message(model.init({.path = folder / "twice.safetensors"})), HasSubstr("exists"));
}

// Ended in the middle: it has been asked often before, and not for long after.
template <class Run>
void expect_stopped(const Run& run, int n) {
  const StopAt stop{n};
  const auto result = run(Watch{.stop = stop});
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().stopped) << result.error().message;
  EXPECT_EQ(*stop.asked, n) << "a yes is not asked for again";
}

TEST(Face, ALongPredictionStops) {
  const Model model = load({.model = "llama-3-70b"});
  for (const int n : {1, 2, 40, 400}) expect_stopped([&](const Watch& w) { return model.predict({.input = {.length = 256}}, w); }, n);
}

TEST(Face, EveryVerbStops) {
  const Folder folder;
  const ModelRequest medium = {.model = "gpt2", .set = {"layers=4"}};
  const Model model = load(medium);
  const InputOptions text = {.length = 128};
  expect_stopped([&](const Watch& w) { return Model::load({.model = "gpt2", .scheme = "admin"}, w); }, 3);
  expect_stopped([&](const Watch& w) { return model.measure({.input = text, .seeds = 50}, w); }, 200);
  expect_stopped([&](const Watch& w) { return model.measure({.input = text, .seeds = 50, .weightless = true}, w); }, 100);
  expect_stopped([&](const Watch& w) { return model.measure({.input = text, .seeds = 50, .steps = 1}, w); }, 200);
  expect_stopped([&](const Watch& w) { return model.measure({.input = text, .seeds = 50, .stream = true}, w); }, 100);
  expect_stopped([&](const Watch& w) { return model.compare({.input = text, .seeds = 50}, w); }, 100);
  expect_stopped([&](const Watch& w) { return model.report({.measure = {.input = text}, .compare_schemes = {"he", "lecun"}}, w); }, 100);
  expect_stopped([&](const Watch& w) { return model.init({.path = folder / "stopped.safetensors"}, w); }, 20);
  expect_stopped([&](const Watch& w) { return model.step({.input = text}, w); }, 20);
  expect_stopped([&](const Watch& w) { return model.step({.input = text, .predicted = false, .measured = true}, w); }, 200);
  expect_stopped([&](const Watch& w) { return model.coord({.widths = {768, 1536}, .input = text}, w); }, 100);
  expect_stopped([&](const Watch& w) { return model.transfer({.target_set = {"width=1536", "heads=24"}, .check = true}, w); }, 100);
  EXPECT_TRUE(folder.empty()) << "nothing half-done";
  ASSERT_TRUE(model.init({.path = folder / "whole.safetensors"}));
  expect_stopped([&](const Watch& w) { return audit({.path = folder / "whole.safetensors", .config = "gpt2", .set = medium.set}, w); }, 20);
  expect_stopped([&](const Watch& w) { return diff({.left = folder / "whole.safetensors", .right = "gpt2", .set = medium.set}, w); }, 20);
}

TEST(Face, AStopLeavesNothingBehind) {
  const Model model = load();
  const auto before = model.predict({.input = short_text});
  expect_stopped([&](const Watch& w) { return model.predict({.input = short_text}, w); }, 2);
  const auto after = model.predict({.input = short_text}, {.stop = [] { return false; }});
  ASSERT_TRUE(before && after);
  EXPECT_EQ(to_json(*before), to_json(*after));
}

}  // namespace
