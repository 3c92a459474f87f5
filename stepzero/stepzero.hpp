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
#include <optional>
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
struct CoordSubject;
struct Scheme;
struct SolveSubject;
struct SweepSubject;
struct StepSubject;
struct TensorDifference;
struct Trained;
struct TransferSubject;

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
  double effort = 1;       // share of the usual sampling of heads, without draws of kernels below 1: faster, noisier
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

// The first update of the weights: by theory, with real weights, or both.
struct StepRequest {
  InputOptions input = {};
  OptimizerOptions optimizer = {};
  std::string rates = {};  // a table of single tensors' rate, decay and eps
  bool predicted = true, measured = false;
  bool search = true;      // the loss over the rate
  double effort = 1;       // of theory: share of the usual sampling
  std::uint64_t seed = 0;  // of what is measured: the first of `seeds`
  int seeds = 4;
};

// A coordinate check: the model at several widths, or at several depths.
struct CoordRequest {
  std::vector<Index> widths = {}, depths = {};
  Index base = 0;                       // the point that settings are carried from; 0: the first
  bool grow_heads = false;              // larger heads, rather than more of a fixed size
  bool keep_keys = false;               // the number of key heads stays
  std::string parametrization = "mup";  // none: every point as the scheme and the optimizer have it
  std::vector<std::string> at = {};     // "256=FILE": a scheme and rates in place of what would be carried to this point
  bool zero_output = false, zero_query = false;
  OptimizerOptions optimizer = {};
  InputOptions input = {};
  bool predicted = false;  // by theory: one step, and no draws
  int steps = 2;
  std::uint64_t seed = 0;
  int seeds = 4;
};

// Settings carried from this model, the base, to a target.
struct TransferRequest {
  std::string target = {};                                  // another model; empty: the base with other fields
  std::vector<std::string> base_set = {}, target_set = {};  // fields of one side, beside the model's own
  std::string parametrization = "mup";
  OptimizerOptions optimizer = {};  // of the base; its name may also be sophia, shampoo, soap, sso
  std::string rates = {};           // a table of the base's single tensors
  bool zero_output = false, zero_query = false;
  bool check = false;  // take a step of both, and lay the effects of every tensor's update side by side: on `input`, over `seeds`
  InputOptions input = {};
  std::uint64_t seed = 0;
  int seeds = 4;
};

// Which tensors of two checkpoints differ, or of a checkpoint and of what init would write.
struct DiffRequest {
  std::string left, right;                 // right: another checkpoint, or a model
  std::string scheme = {};                 // of that model; empty: what `left` says of itself, or hf
  std::vector<std::string> set = {};       // fields of that model
  std::optional<std::uint64_t> seed = {};  // of that model; empty: what `left` says of itself, or 0
};

// Scales that meet an objective (docs/solve.md).
struct SolveRequest {
  std::string objective = "depth";           // flat, depth, update, tangent, range; weighted sums: "flat+0.5*depth"
  std::vector<std::string> targets = {};     // "attention=0.5": settings of the objective
  std::vector<std::string> free = {};        // roles and multipliers that may move; none: those of the objective
  std::vector<std::string> subject_to = {};  // "loss=0.1", "scores=0.1..1", "queries=0.01", "range=fp16"
  std::string by = "role";                   // or "layer"
  Order order = Order::draws;                // of the predictions that are shown
  bool move_rates = false;                   // of `update`: rates of tensors move rather than their stds
  InputOptions input = {};
  OptimizerOptions optimizer = {};  // of `update`
  std::string rates = {};           // a table of single tensors' rate, decay and eps
  int measure = 0;                  // also by real passes of so many draws
  std::uint64_t seed = 0;           // the first of them
};

// Maps over one or two axes (docs/sweep.md).
struct SweepRequest {
  std::vector<std::string> over = {};  // "layers=2..64:x12", "std.ffn_out=0.1..10:x64", "tokens=16,64", "scheme=hf,deepnet", "rate=..."
  InputOptions input = {};
  Order order = Order::limit;
  double effort = 0.1;         // share of the usual sampling
  int train = 0;               // runs in every cell
  TrainRequest training = {};  // of them
  std::string store = {};      // a file that keeps trained cells: the same request goes on where it ended
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

class StepResult {
 public:
  explicit StepResult(std::shared_ptr<const StepSubject> subject) : subject_(std::move(subject)) {}

  [[nodiscard]] const StepSubject& subject() const { return *subject_; }  // report/step.hpp
  [[nodiscard]] const Signal& signal() const;                             // with one step, and findings
  [[nodiscard]] std::string json() const;                                 // stepzero.step/1
  [[nodiscard]] std::string text() const;                                 // the terminal's tables
  [[nodiscard]] std::string html(const std::string& command) const;       // a page; `command` is shown on it as what made it

 private:
  std::shared_ptr<const StepSubject> subject_;
};

class CoordResult {
 public:
  explicit CoordResult(std::shared_ptr<const CoordSubject> subject) : subject_(std::move(subject)) {}

  [[nodiscard]] const CoordSubject& subject() const { return *subject_; }  // report/coord.hpp
  [[nodiscard]] bool pass() const;                                         // every slope is what is demanded
  [[nodiscard]] std::string json() const;                                  // stepzero.coord/1
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string html(const std::string& command) const;

 private:
  std::shared_ptr<const CoordSubject> subject_;
};

class TransferResult {
 public:
  explicit TransferResult(std::shared_ptr<const TransferSubject> subject) : subject_(std::move(subject)) {}

  [[nodiscard]] const TransferSubject& subject() const { return *subject_; }  // report/transfer.hpp
  [[nodiscard]] std::string json() const;                                     // stepzero.transfer/1: a scheme and a table of rates, too
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string torch(const std::string& command) const;  // parameter groups of PyTorch
  [[nodiscard]] std::string rates() const;                            // stepzero.rates/1

 private:
  std::shared_ptr<const TransferSubject> subject_;
};

class DiffResult {
 public:
  explicit DiffResult(std::shared_ptr<const std::vector<TensorDifference>> list) : list_(std::move(list)) {}

  [[nodiscard]] const std::vector<TensorDifference>& tensors() const { return *list_; }  // audit/difference.hpp
  [[nodiscard]] bool same() const;                                                       // every tensor, to the bit
  [[nodiscard]] std::string json() const;                                                // stepzero.diff/1
  [[nodiscard]] std::string text() const;                                                // a line for each tensor that differs

 private:
  std::shared_ptr<const std::vector<TensorDifference>> list_;
};

// What solve found. Every verb reads its scheme by --scheme.
class SolveResult {
 public:
  explicit SolveResult(std::shared_ptr<const SolveSubject> solved) : solved_(std::move(solved)) {}

  [[nodiscard]] std::string json() const;                             // stepzero.solve/1
  [[nodiscard]] std::string text() const;                             // the terminal's tables
  [[nodiscard]] std::string scheme() const;                           // stepzero.scheme/1
  [[nodiscard]] std::string rates() const;                            // stepzero.rates/1
  [[nodiscard]] std::string torch(const std::string& command) const;  // a snippet that draws the same weights by PyTorch
  [[nodiscard]] double cost_before() const;                           // sums of squared misses of the objective
  [[nodiscard]] double cost() const;

 private:
  std::shared_ptr<const SolveSubject> solved_;
};

// A map.
class SweepResult {
 public:
  explicit SweepResult(std::shared_ptr<const SweepSubject> swept) : swept_(std::move(swept)) {}

  [[nodiscard]] std::string json() const;                          // stepzero.sweep/1
  [[nodiscard]] std::string csv() const;                           // a row a cell
  [[nodiscard]] std::string text(const std::string& shown) const;  // a heat map of one quantity, or of "trained"

 private:
  std::shared_ptr<const SweepSubject> swept_;
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
  [[nodiscard]] Expected<StepResult> step(const StepRequest& request = {}, const Watch& watch = {}) const;
  [[nodiscard]] Expected<CoordResult> coord(const CoordRequest& request, const Watch& watch = {}) const;
  [[nodiscard]] Expected<TransferResult> transfer(const TransferRequest& request, const Watch& watch = {}) const;
  [[nodiscard]] Expected<SolveResult> solve(const SolveRequest& request = {}, const Watch& watch = {}) const;
  [[nodiscard]] Expected<SweepResult> sweep(const SweepRequest& request, const Watch& watch = {}) const;
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
Expected<DiffResult> diff(const DiffRequest& request, const Watch& watch = {});

}  // namespace stepzero
