// Ten updates against torch.optim, every tensor: from the same weights and the same batch. witness_train.py made the cases;
// STEPZERO_PARITY_TRAIN names another folder of them (./dev parity makes five families anew).
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/io/file.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/make_input.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/pass/fill_pass.hpp"
#include "stepzero/train/run.hpp"

namespace stepzero {
namespace {

namespace fs = std::filesystem;
constexpr int kUpdates = 10;

std::string cases() {
  const char* named = std::getenv("STEPZERO_PARITY_TRAIN");
  return named != nullptr ? named : STEPZERO_SOURCE_DIR "/tests/parity/golden_train";
}

nlohmann::json read_json(const fs::path& path) { return nlohmann::json::parse(read_text(path.string(), 1 << 20).value()); }

OptimizerOptions options_of(const nlohmann::json& o) {
  OptimizerOptions options{.name = o["optimizer"], .rate = o["rate"].get<double>(), .nesterov = o.value("nesterov", false)};
  if (o.contains("momentum")) options.momentum = o["momentum"].get<double>();
  if (o.contains("rate_adamw")) options.rate_adamw = o["rate_adamw"].get<double>();
  if (o.contains("betas")) options.beta1 = o["betas"][0].get<double>(), options.beta2 = o["betas"][1].get<double>();
  options.decay = o.value("decay", 0.0);
  options.clip = o.value("clip", 0.0);
  options.newton_schulz = o.value("newton_schulz", 0);
  const std::string scale = o.value("scale", "max1");
  options.muon_scale = scale == "kimi" ? MuonScale::kimi : scale == "spectral" ? MuonScale::spectral : MuonScale::max1;
  return settled(options).value();
}

// ||ours - theirs|| / ||theirs - start|| of every tensor, without the elements whose gradient is rounding noise (NaN there).
template <class S>
std::map<std::string, double> errors(const fs::path& dir, const std::string& name, const nlohmann::json& how) {
  Architecture a = load_model(dir.string()).value();
  EXPECT_TRUE(resolve(a));
  const auto input = [&](const char* file) { return fs::exists(dir / file) ? (dir / file).string() : std::string(); };
  const std::string tokens = input("tokens.txt");
  const Batch batch =
      make_input(a, {.tokens = tokens.empty() ? "zipf" : tokens, .pixels = input("pixels.f32"), .labels = input("labels.txt")}).value();
  const Graph graph = build_graph(a);
  TrainRun<S> run(graph, batch, {.optimizer = options_of(how)}, [](int, int) {});
  const auto file = CheckpointFiles::open((dir / "model.safetensors").string()).value();
  EXPECT_TRUE(load_weights(run.pass(), graph, a, file));
  std::vector<std::vector<double>> start;
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    const View<S> w = run.pass().weight(static_cast<int>(i));
    start.emplace_back(w.data, w.data + w.size());
  }
  for (int k = 0; k < kUpdates; ++k) run.step();
  const auto after = SafetensorsFile::open((dir / ("after-" + name + ".safetensors")).string()).value();
  std::map<std::string, double> out;
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    const Param& p = graph.params[i];
    std::vector<double> theirs(static_cast<std::size_t>(p.size()));
    const TensorInfo* info = after.find(p.name);
    EXPECT_NE(info, nullptr) << p.name;
    if (info == nullptr) continue;
    EXPECT_TRUE(after.read_f64(*info, 0, theirs));
    double difference = 0, change = 0;
    for (std::size_t k = 0; k < theirs.size(); ++k) {
      if (std::isnan(theirs[k])) continue;
      const double ours = static_cast<double>(run.pass().weight(static_cast<int>(i)).data[k]);
      difference += (ours - theirs[k]) * (ours - theirs[k]);
      change += (theirs[k] - start[i][k]) * (theirs[k] - start[i][k]);
    }
    if (difference == 0) continue;  // exact, or an expert that no token chose
    out[p.name] = std::sqrt(difference / change);
  }
  return out;
}

std::pair<const std::string, double> worst(const std::map<std::string, double>& errors) {
  return errors.empty() ? std::pair<const std::string, double>("all", 0)
                        : *std::ranges::max_element(errors, {}, [](const auto& e) { return e.second; });
}

// In double to 1e-9 (Muon, whose factor turns on singular values near the bound of what is kept, to 1e-5). In float to 1e-5 of the change
// (Lion and Muon 1e-4), or to twice what torch's own float32 is off by where that is more: a gain near 1
// cannot hold a finer change, and Lion takes the sign of a router's rounding noise.
TEST(ParityTrain, TenUpdatesAreTorchs) {
  for (const auto& entry : fs::directory_iterator(cases())) {
    const std::string name = entry.path().filename().string();
    const nlohmann::json rounding = read_json(entry.path() / "rounding.json");
    const nlohmann::json optimizers = read_json(entry.path() / "optimizers.json");
    for (const auto& [optimizer, how] : optimizers.items()) {
      SCOPED_TRACE(name + " " + optimizer);
      const bool muon = how["optimizer"] == "muon", lion = how["optimizer"] == "lion";
      const auto exact = errors<double>(entry.path(), optimizer, how), single = errors<float>(entry.path(), optimizer, how);
      fmt::print("{:8} {:10} double {:.1e}  float {:.1e} ({})\n", name, optimizer, worst(exact).second, worst(single).second,
                 worst(single).first);
      for (const auto& [tensor, error] : exact) EXPECT_LT(error, muon ? 1e-5 : 1e-9) << tensor;
      double torchs = 0;
      for (const auto& [tensor, error] : rounding[optimizer].items()) torchs = std::max(torchs, error.get<double>());
      EXPECT_LT(worst(single).second, std::max(muon || lion ? 1e-4 : 1e-5, 2 * torchs)) << worst(single).first;
    }
  }
}

}  // namespace
}  // namespace stepzero
