#pragma once
// What the verbs share: flags, how a model and its tokens are found, progress, exit codes.
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "stepzero/graph/graph.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/models/architecture.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero::cli {

enum Exit : int { fine = 0, findings = 1, usage = 2, numerical = 3, bug = 70, busy = 75, interrupted = 130 };

// A check of --seed: CLI11 takes a number that is too large for the largest.
std::string check_seed(const std::string& text);

// "1e3" -> "1000"; anything else as it is
std::string whole_number(std::string text);

// "f32", "bf16", "f16"
DType dtype_of(const std::string& text);

// Prints the message and its hint to stderr.
int complain(const Error& error);

// Writes the result; a full disk or a closed pipe is an error, not silence.
int print(const std::string& text);

struct CommonFlags {
  std::string model;
  std::string like;
  std::string scheme = "hf";
  std::string tokens = "zipf";
  std::string encoder_tokens, pixels, labels;
  std::string targets;
  Index seq_len = 0;
  Index batch = 0;
  std::uint64_t seed = 0;
  int seeds = 1;
  std::string until;  // as given: "1%"
  int threads = 0;
  std::vector<std::string> set;
  bool json = false;
  bool quiet = false;
  bool no_remedies = false;
  const CLI::App* verb = nullptr;  // that declared them

  void declare(CLI::App& app);
  void declare_draws(CLI::App& app);  // of the verbs that draw
};

struct Setup {
  Architecture architecture;
  const Scheme* scheme = nullptr;
  Graph graph;
  Batch batch;
};

// MODEL, --set and what the scheme changes; ready for a graph.
Expected<Architecture> describe_model(const std::string& model, const std::vector<std::string>& set, const Scheme& scheme,
                                      const std::string& like = {});

// What the configuration says that was not read, as warnings.
void tell_notices(const Architecture& a);

// MODEL, --set, --tokens, --scheme and the rest, checked against each other.
Expected<Setup> prepare(const CommonFlags& flags);

// A bar on a terminal, from the first second on; nothing elsewhere.
// What a pass runs on: how tokens or pixels are drawn, or their file.
std::string input_name(const CommonFlags& flags, const Batch& batch);

double seconds();  // since some fixed moment

class Progress {
 public:
  Progress(std::string what, bool quiet);
  ~Progress();
  void show(double fraction, const std::string& note);
  [[nodiscard]] bool enabled() const { return enabled_; }

 private:
  std::string what_;
  bool enabled_;
  bool shown_ = false;
  double start_;
  double last_ = 0;
};

// The measure walk under these flags, with its bar and its warnings. `options` says where the weights come from.
Expected<Signal> measure_with_progress(const Setup& setup, const CommonFlags& flags, MeasureOptions options);

void declare_measure(CLI::App& app, int& exit_code);
void declare_predict(CLI::App& app, int& exit_code);
void declare_compare(CLI::App& app, int& exit_code);
void declare_report(CLI::App& app, int& exit_code, const std::vector<std::string>& words);  // words: the command line
void declare_init(CLI::App& app, int& exit_code);
void declare_audit(CLI::App& app, int& exit_code);
void declare_diff(CLI::App& app, int& exit_code);
void declare_claims(CLI::App& app, int& exit_code);
void declare_explain(CLI::App& app, int& exit_code);
void declare_lists(CLI::App& app, int& exit_code);  // models, schemes

}  // namespace stepzero::cli
