// Our forward and hand-derived backward against PyTorch's autograd: same weights, same tokens.
// The golden numbers come from witness.py; STEPZERO_PARITY_CASES names another folder of cases (./dev parity makes one anew),
// STEPZERO_PARITY_HF a folder with what the real Hugging Face classes gave (skipped where there is none; families that are not read yet
// are named).
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/io/file.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/make_input.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/pass/fill_pass.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/describe.hpp"
#include "stepzero/weights/adapter.hpp"

namespace stepzero {
namespace {

namespace fs = std::filesystem;

// The largest error seen and where, per case; printed so that a run shows the figures and not only "passed".
struct Worst {
  double error = 0;
  std::string where = "-";
  void see(double e, const std::string& at) {
    if (!(e <= error)) error = e, where = at;
  }
};

template <class S>
struct Run {
  Architecture architecture;
  Graph graph;
  Batch batch;
  Signal signal;
  Tensor<S> logits;
  std::vector<Tensor<S>> gradients;
};

template <class S>
Tensor<S> copy(View<const S> from) {
  Tensor<S> to(from.rows, from.cols);
  for (Index r = 0; r < from.rows; ++r) std::copy_n(from.row(r), from.cols, to.view().row(r));
  return to;
}

template <class S>
Run<S> run_case(const fs::path& dir) {
  Run<S> run;
  run.architecture = load_model(dir.string()).value();
  EXPECT_TRUE(resolve(run.architecture));
  run.graph = build_graph(run.architecture);
  std::optional<CheckpointFiles> adapters;
  if (fs::exists(dir / "adapter_config.json")) {
    EXPECT_TRUE(add_adapters(run.graph, read_adapter_config(dir.string()).value()));
    adapters = open_adapter(dir.string()).value();
  }
  const auto file_if_there = [&](const char* name) { return fs::exists(dir / name) ? (dir / name).string() : std::string(); };
  run.batch = make_input(run.architecture, {.tokens = file_if_there("tokens.txt"),
                                            .encoder_tokens = file_if_there("encoder_tokens.txt"),
                                            .pixels = file_if_there("pixels.f32"),
                                            .labels = file_if_there("labels.txt"),
                                            .features = file_if_there("features.f32")})
                  .value();
  Pass<S> pass(run.graph, run.batch);
  const auto file = CheckpointFiles::open((dir / "model.safetensors").string()).value();
  const auto warnings = load_weights(pass, run.graph, run.architecture, file, adapters ? &*adapters : nullptr);
  EXPECT_TRUE(warnings) << warnings.error().message;
  run.signal = describe(run.graph, run.architecture, run.batch);
  measure_pass(pass, run.graph, run.batch, run.signal);
  run.logits = copy(pass.output(run.graph.find_node("logits")));
  run.gradients.resize(run.graph.params.size());
  pass.forward();
  pass.backward({.forward = {}, .backward = {}, .parameter = [&](int p, View<const S> d) { run.gradients[p] = copy(d); }});
  return run;
}

nlohmann::json read_reference(const fs::path& dir) {
  return nlohmann::json::parse(read_text((dir / "reference.json").string(), std::uint64_t{1} << 28).value());
}

double relative(double ours, double theirs) { return std::abs(ours - theirs) / std::max(std::abs(theirs), 1e-300); }

// Every element of every parameter's gradient, in units of the tensor's largest.
template <class S>
Worst compare_gradients(const Run<S>& run, const fs::path& dir) {
  const auto file = SafetensorsFile::open((dir / "gradients.safetensors").string()).value();
  Worst worst;
  for (std::size_t p = 0; p < run.graph.params.size(); ++p) {
    const Param& param = run.graph.params[p];
    if (param.frozen) {
      EXPECT_TRUE(run.gradients[p].size() == 0) << param.name;
      continue;
    }
    const TensorInfo* info = file.find(param.name);
    EXPECT_NE(info, nullptr) << param.name;
    if (info == nullptr) continue;
    std::vector<double> theirs(static_cast<std::size_t>(param.size()));
    EXPECT_TRUE(file.read_f64(*info, 0, theirs));
    double largest = 0;
    for (const double x : theirs) largest = std::max(largest, std::abs(x));
    for (Index i = 0; i < param.size(); ++i) {
      worst.see(std::abs(static_cast<double>(run.gradients[p].data()[i]) - theirs[static_cast<std::size_t>(i)]) / largest,
                fmt::format("{}[{}]", param.name, i));
    }
  }
  EXPECT_EQ(static_cast<std::ptrdiff_t>(file.tensors().size()), std::ranges::count(run.graph.params, false, &Param::frozen));
  return worst;
}

template <class S>
Worst compare_logits(const Run<S>& run, const nlohmann::json& reference) {
  Worst worst;
  double largest = 0;
  for (const auto& sequence : reference["logits"]) {
    for (const auto& row : sequence) {
      for (const auto& x : row) largest = std::max(largest, std::abs(x.get<double>()));
    }
  }
  for (Index t = 0; t < run.batch.tokens(); ++t) {
    for (Index v = 0; v < run.logits.cols(); ++v) {
      const double theirs = reference["logits"][t / run.batch.length][t % run.batch.length][v];
      worst.see(std::abs(static_cast<double>(run.logits(t, v)) - theirs) / largest, fmt::format("logits[{}, {}]", t, v));
    }
  }
  return worst;
}

// Every recorded moment of every node: moments and norms relative, means in units of the rms, cosines absolute.
template <class S>
Worst compare_nodes(const Run<S>& run, const nlohmann::json& reference) {
  Worst worst;
  std::size_t compared = 0;
  for (const NodeSignal& n : run.signal.nodes) {
    const auto it = reference["nodes"].find(n.name);
    EXPECT_NE(it, reference["nodes"].end()) << n.name << " has no witness";
    if (it == reference["nodes"].end()) continue;
    ++compared;
    const auto& r = *it;
    const auto& g = r["gradient"];
    worst.see(relative(*n.forward.second_moment.measured, r["second_moment"]), n.name + " second moment");
    worst.see(relative(*n.forward.variance.measured, r["variance"]), n.name + " variance");
    worst.see(std::abs(*n.forward.mean.measured - r["mean"].get<double>()) / std::sqrt(r["second_moment"].get<double>()), n.name + " mean");
    // where a sequence is one row there is no cosine, and the witness says 0
    worst.see(std::abs(n.forward.token_cosine.measured.value_or(0) - r["token_cosine"].get<double>()), n.name + " cosine");
    worst.see(relative(*n.backward.norm.measured, g["norm"]), n.name + " gradient norm");
    worst.see(relative(*n.backward.second_moment.measured, g["second_moment"]), n.name + " gradient second moment");
    worst.see(std::abs(n.backward.token_cosine.measured.value_or(0) - g["token_cosine"].get<double>()), n.name + " gradient cosine");
  }
  // stream.0 may be a node under its own name; the witness lists both
  EXPECT_GE(compared + 1, reference["nodes"].size());
  for (const AttentionSignal& a : run.signal.attention) {
    const auto& r = reference["attention"][a.name];
    worst.see(relative(*a.score_variance.measured, r["score_variance"]), a.name + " score variance");
    worst.see(relative(*a.entropy.measured, r["entropy"]), a.name + " entropy");
    worst.see(relative(*a.sum_squares.measured, r["sum_squares"]), a.name + " sum of squares");
  }
  return worst;
}

struct Bounds {
  double loss, gradients, logits, nodes;
};

template <class S>
void compare_case(const fs::path& dir, const char* scalar, Bounds bounds) {
  const Run<S> run = run_case<S>(dir);
  const auto reference = read_reference(dir);
  const double loss = std::abs(*run.signal.loss.measured - reference["loss"].get<double>());
  const Worst gradients = compare_gradients(run, dir);
  const Worst logits = compare_logits(run, reference);
  const Worst nodes = compare_nodes(run, reference);
  fmt::print("  {:<18} {:<6}  loss {:.1e}  gradients {:.1e} ({})  logits {:.1e}  moments {:.1e} ({})\n", dir.filename().string(), scalar,
             loss, gradients.error, gradients.where, logits.error, nodes.error, nodes.where);
  EXPECT_TRUE(loss <= bounds.loss) << loss;
  EXPECT_TRUE(gradients.error <= bounds.gradients) << gradients.where << " " << gradients.error;
  EXPECT_TRUE(logits.error <= bounds.logits) << logits.where << " " << logits.error;
  EXPECT_TRUE(nodes.error <= bounds.nodes) << nodes.where << " " << nodes.error;
}

TEST(Parity, WithAutograd) {
  const char* other = std::getenv("STEPZERO_PARITY_CASES");
  const fs::path cases = other != nullptr ? fs::path(other) : fs::path(STEPZERO_SOURCE_DIR) / "tests/parity/golden";
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(cases)) {
    if (!entry.is_directory()) continue;
    ++seen;
    compare_case<float>(entry.path(), "float", {1e-5, 1e-5, 1e-5, 1e-5});
    // the golden gradients are stored in float: 6e-8 of the element is rounding
    compare_case<double>(entry.path(), "double", {1e-12, 1e-7, 1e-12, 1e-10});
  }
  EXPECT_GE(seen, 9);
}

// What the real classes gave: loss within 1e-4, gradient norms within 1e-3, residual stream within 1e-4.
void compare_with_hf(const fs::path& dir) {
  const Run<float> run = run_case<float>(dir);
  const auto reference = read_reference(dir)["float32"];
  const double loss = std::abs(*run.signal.loss.measured - reference["loss"].get<double>());
  Worst gradients, stream;
  std::size_t named = 0;
  double largest = 0;
  for (const auto& [name, norm] : reference["param_grad_norm"].items()) largest = std::max(largest, norm.get<double>());
  for (const ParameterSignal& p : run.signal.parameters) {
    if (!reference["param_grad_norm"].contains(p.name)) continue;
    ++named;
    // what is below 1e-5 of the largest is rounding: a key bias that is not turned has no gradient
    const double theirs = reference["param_grad_norm"][p.name];
    gradients.see(std::abs(p.gradient_norm.measured.value_or(0) - theirs) / std::max(theirs, 1e-5 * largest), p.name);
  }
  EXPECT_EQ(named, reference["param_grad_norm"].size());
  for (const auto& [stack, layers] : reference["residual"].items()) {
    const std::string prefix = stack == "layers" ? "" : stack + ".";
    for (std::size_t l = 0; l < layers["m2"].size(); ++l) {
      const NodeSignal& n = run.signal.nodes[static_cast<std::size_t>(run.graph.find_node(fmt::format("{}stream.{}", prefix, l)))];
      stream.see(relative(*n.forward.second_moment.measured, layers["m2"][l]), n.name + " second moment");
      stream.see(relative(*n.backward.norm.measured * *n.backward.norm.measured, layers["g2"][l]), n.name + " squared gradient");
      stream.see(std::abs(*n.forward.token_cosine.measured - layers["cos"][l].get<double>()), n.name + " cosine");
    }
  }
  fmt::print("  {:<18} hf      loss {:.1e}  gradient norms {:.1e} ({})  stream {:.1e} ({})\n", dir.filename().string(), loss,
             gradients.error, gradients.where, stream.error, stream.where);
  EXPECT_TRUE(loss <= 1e-4);
  EXPECT_TRUE(gradients.error <= 1e-3) << gradients.where;
  EXPECT_TRUE(stream.error <= 1e-4) << stream.where;
}

TEST(Parity, WithHuggingFace) {
  const char* folder = std::getenv("STEPZERO_PARITY_HF");
  if (folder == nullptr) GTEST_SKIP() << "STEPZERO_PARITY_HF is not set";
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (const auto model = load_model(entry.path().string()); !model) {
      fmt::print("  {:<18} not read: {}\n", entry.path().filename().string(), model.error().message);
      continue;
    }
    ++seen;
    compare_with_hf(entry.path());
  }
  EXPECT_GE(seen, 20);
}

}  // namespace
}  // namespace stepzero
