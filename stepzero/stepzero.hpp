#pragma once
// stepzero as a library: load a model, then predict, measure, compare, report or init it; audit weights that exist.
//
//   const auto model = stepzero::Model::load({.model = "gpt2", .set = {"layers=4"}, .scheme = "xavier-normal"});
//   const auto signal = model->predict();
//   signal->loss.predicted, signal->nodes[0].forward.second_moment.predicted, stepzero::to_json(*signal)
//
// Requests are strings and numbers, with the meaning and the defaults of the command line's flags. What goes wrong is a value
// (Expected). Nothing is done to the process: no signal handlers, no settings of its allocator, no output.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/models/architecture.hpp"
#include "stepzero/models/make_input.hpp"
#include "stepzero/optim/options.hpp"
#include "stepzero/optim/schedule.hpp"
#include "stepzero/report/json.hpp"
#include "stepzero/signal/comparison.hpp"
#include "stepzero/signal/finding.hpp"
#include "stepzero/signal/order.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

struct Audit;
struct Scheme;
struct Trained;

const char* version();

// What every call can be given. Callbacks come from any thread of the computation, never two of a kind at once.
struct Watch {
  std::function<void(double share, const std::string& what)> progress = {};  // share of the work, 0 to 1
  std::function<void(const std::string&)> warn = {};                         // what the caller should know, but is no error
  std::function<bool()> stop = {};  // asked every millisecond or two; true ends the call, with an error that says `stopped`
  int threads = 0;                  // 0: as OpenMP has it, all cores as a rule
};

struct ModelRequest {
  std::string model;                  // a preset, a config.json, a directory that holds one, or an architecture file
  std::vector<std::string> set = {};  // "layers=4": overrides a field of the architecture
  std::string scheme = "hf";          // how weights are drawn
  std::string like = {};              // read the config.json as one of this family
  std::string lora = {};              // adapters beside its matrices, the rest frozen: "rank=8,alpha=16,roles=query,value"
};

struct PredictRequest {
  InputOptions input = {};
  Order order = Order::draws;
  bool jacobians = false;  // also how a change of each layer's stream arrives at the last one
  bool whole = false;      // every token of a long sequence, rather than carried on from shorter ones
};

struct MeasureRequest {
  InputOptions input = {};
  std::uint64_t seed = 0;  // the first of `seeds`
  int seeds = 1;
  double until = 0;           // draw until the standard error of every second moment is below this share; 0: draw `seeds`
  std::string weights = {};   // run these rather than draw: a .safetensors file or a directory of shards
  std::string adapter = {};   // the adapters' weights: a file or directory as peft writes it, which also says what `lora` may leave out
  bool weightless = false;    // sample the pass without making the weights
  bool stream = false;        // hold the weights of one node at a time
  std::string dtype = "f32";  // what the weights drawn are rounded to: f32, bf16, f16
  int steps = 0;              // then so many updates of the weights, by `optimizer`: Signal::steps; weightless at most one
  OptimizerOptions optimizer = {};
  std::string rates = {};  // a table of single tensors' rate, decay and eps
};

struct ReportRequest {
  MeasureRequest measure = {};
  bool measured = false;                          // also measure, rather than predict alone
  std::vector<std::string> compare_schemes = {};  // laid over the charts, by theory
  std::string command = {};                       // shown on the page as what made it
};

struct InitRequest {
  std::string path = {};  // a file *.safetensors, or a directory: config.json, shards and their index
  std::uint64_t seed = 0;
  std::string dtype = "f32";
  std::uint64_t max_shard_bytes = 5'000'000'000;
  int maker = 1;  // of `makers` processes that share the shards of one directory
  int makers = 1;
  std::string only = {};  // a pattern of tensor names; empty: all
  bool replace = false;
};

struct TrainRequest {
  // on what: text, or the ids or images that `input` names; its length and number of sequences count for both
  std::vector<std::string> text = {};  // files and directories; none: the derivations of this program
  std::string level = "byte";          // what a token is: byte, char, bpe:tokenizer.json
  double validation = 0.1;             // share of the text that is held out
  bool ids = false;                    // no text
  InputOptions input = {};
  // how
  OptimizerOptions optimizer = {};
  std::string rates = {};  // a table of single tensors' rate, decay and eps
  RateShape schedule = RateShape::constant;
  int warmup = 0;
  double rate_end = 0;  // what the schedule ends at
  int accumulate = 1;   // batches whose mean gradient makes one update
  int steps = 100;
  double until = 0;  // end once the held-out loss is at most this; 0: never
  // which runs, and what is kept of them
  std::uint64_t seed = 0;
  int seeds = 1;
  std::vector<std::string> compare_schemes = {};
  std::string weights = {};     // to start from; empty: drawn
  std::string save = {};        // a directory for states and the final weights
  bool resume = false;          // from the states that are there
  int save_every = 0;           // updates; 0: a tenth of them
  int validate_every = 0;       // likewise
  std::vector<int> watch = {};  // updates after which every wire is looked at
};

struct AuditRequest {
  std::string path = {};              // a .safetensors or .gguf file, or a directory of a checkpoint
  std::string config = {};            // the model they belong to; empty: the config.json beside them, if there is one
  std::vector<std::string> set = {};  // fields of that model
  std::string like = {};              // the family it is read as
  std::string scheme = {};            // to hold them against; empty: the one they follow
  std::string baseline = {};          // another checkpoint, to compare every tensor with
  bool moments = false;               // moments of every tensor and nothing else
  bool follow_symlinks = false, lenient = false;
};

struct WrittenFile {
  std::string path;
  std::uint64_t bytes = 0;
  bool kept = false;  // it was there already, whole
};

struct InitResult {
  std::vector<WrittenFile> files;
  std::size_t shards_missing = 0;  // that other makers have yet to write
};

struct Report {
  Signal signal;     // predicted, and measured where that was asked for
  std::string html;  // one page that needs nothing else
};

// What a training gave: runs by scheme and seed.
class TrainResult {
 public:
  explicit TrainResult(std::shared_ptr<const Trained> trained) : trained_(std::move(trained)) {}

  [[nodiscard]] std::string json() const;                            // stepzero.train/1
  [[nodiscard]] std::string csv() const;                             // a row a step
  [[nodiscard]] std::string html(const std::string& command) const;  // a page; `command` is shown on it as what made it
  [[nodiscard]] std::vector<double> losses(std::size_t run = 0) const;
  [[nodiscard]] bool diverged() const;  // any of the runs

 private:
  std::shared_ptr<const Trained> trained_;
};

// A model under a scheme.
class Model {
 public:
  static Expected<Model> load(const ModelRequest& request, const Watch& watch = {});

  [[nodiscard]] const Architecture& architecture() const { return architecture_; }
  [[nodiscard]] const ModelRequest& request() const { return request_; }

  // Signals come with their findings.
  [[nodiscard]] Expected<Signal> predict(const PredictRequest& request = {}, const Watch& watch = {}) const;
  [[nodiscard]] Expected<Signal> measure(const MeasureRequest& request = {}, const Watch& watch = {}) const;
  // Both in one signal: see compare() in signal/comparison.hpp for the differences.
  [[nodiscard]] Expected<Signal> compare(const MeasureRequest& request = {.seeds = 8}, const Watch& watch = {}) const;
  [[nodiscard]] Expected<Report> report(const ReportRequest& request = {}, const Watch& watch = {}) const;
  [[nodiscard]] Expected<TrainResult> train(const TrainRequest& request = {}, const Watch& watch = {}) const;
  [[nodiscard]] Expected<InitResult> init(const InitRequest& request, const Watch& watch = {}) const;

 private:
  Model() = default;

  ModelRequest request_;
  Architecture architecture_;
  const Scheme* scheme_ = nullptr;
};

// What is wrong with weights that exist.
class AuditResult {
 public:
  explicit AuditResult(std::shared_ptr<const Audit> audit) : audit_(std::move(audit)) {}

  [[nodiscard]] const std::vector<Finding>& findings() const;
  [[nodiscard]] const std::vector<std::string>& warnings() const;
  [[nodiscard]] const std::string& scheme() const;  // that the weights follow; empty: none
  [[nodiscard]] std::string json() const;           // stepzero.audit/1
  [[nodiscard]] std::string html() const;

 private:
  std::shared_ptr<const Audit> audit_;
};

Expected<AuditResult> audit(const AuditRequest& request, const Watch& watch = {});

}  // namespace stepzero
