#pragma once
// What the verbs share: flags, how a model and its tokens are found, progress, exit codes.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "stepzero/api/setup.hpp"
#include "stepzero/cli/exit_codes.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero::cli {

// A check of --seed: CLI11 takes a number that is too large for the largest.
std::string check_seed(const std::string& text);

// What --lora does, for --help.
inline constexpr const char* lora_help =
    "adapters (LoRA) beside chosen matrices, all else frozen: rank=8,alpha=16,roles=query,value; also modules=q_proj,..., "
    "roles=all-linear, "
    "rslora=true, a_std=, b_std=";

// "1e3" -> "1000"; anything else as it is
std::string whole_number(std::string text);

// Prints the message and its hint to stderr.
int complain(const Error& error);

// Writes the result; a full disk or a closed pipe is an error, not silence.
int print(const std::string& text);

struct CommonFlags {
  std::string model;
  std::string like;
  std::string scheme = "hf";
  std::string tokens = "zipf";
  std::string encoder_tokens, pixels, labels, features;
  std::string targets;
  Index seq_len = 0;
  Index batch = 0;
  std::uint64_t seed = 0;
  int seeds = 1;
  std::string until;  // as given: "1%"
  int threads = 0;
  std::vector<std::string> set;
  std::string lora;     // adapters, in words
  std::string adapter;  // ... and where their weights are: of the verbs that read weights
  bool json = false;
  bool quiet = false;
  bool no_remedies = false;
  const CLI::App* verb = nullptr;  // that declared them

  [[nodiscard]] InputOptions input() const;
  void declare_model(CLI::App& app);    // the model, its input and how results are shown
  void declare(CLI::App& app);          // of the verbs that yield a signal
  void declare_draws(CLI::App& app);    // of the verbs that draw
  void declare_adapter(CLI::App& app);  // of the verbs that read weights
};

// What the configuration says that was not read, as warnings.
void tell_notices(const Architecture& a);

// MODEL, --set, --tokens, --scheme and the rest, checked against each other.
Expected<Setup> prepare(const CommonFlags& flags);

double seconds();  // since some fixed moment

// A bar on a terminal, from the first second on; nothing elsewhere.
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
void declare_train(CLI::App& app, int& exit_code, const std::vector<std::string>& words);
void declare_step(CLI::App& app, int& exit_code, const std::vector<std::string>& words);
void declare_transfer(CLI::App& app, int& exit_code, const std::vector<std::string>& words);
void declare_coord(CLI::App& app, int& exit_code, const std::vector<std::string>& words);
void declare_sweep(CLI::App& app, int& exit_code);
void declare_solve(CLI::App& app, int& exit_code, const std::vector<std::string>& words);
void declare_init(CLI::App& app, int& exit_code);
void declare_audit(CLI::App& app, int& exit_code);
void declare_diff(CLI::App& app, int& exit_code);
void declare_claims(CLI::App& app, int& exit_code);
void declare_explain(CLI::App& app, int& exit_code);
void declare_explorer(CLI::App& app, int& exit_code);
void declare_describe(CLI::App& app, int& exit_code);
void declare_lists(CLI::App& app, int& exit_code);  // models, schemes

}  // namespace stepzero::cli
