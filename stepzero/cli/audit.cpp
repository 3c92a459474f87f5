#include <algorithm>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "stepzero/api/checkpoints.hpp"
#include "stepzero/cli/command.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/report/audit.hpp"

namespace stepzero::cli {

namespace {

struct AuditFlags {
  std::string path, config, scheme, baseline, like, html;
  std::string fail_on = "warning";
  std::vector<std::string> set;
  bool json = false, quiet = false, full = false, moments = false, follow_symlinks = false, lenient = false;
  int threads = 0;
};

int exit_code_of(const Audit& audit, const std::string& fail_on) {
  const Severity least = fail_on == "error" ? Severity::error : Severity::warning;
  return std::ranges::any_of(audit.findings, [&](const Finding& f) { return f.severity >= least; }) ? Exit::findings : Exit::fine;
}

int run(const AuditFlags& flags) {
  set_threads(flags.threads);
  AuditOptions options;
  options.moments_only = flags.moments;
  if (!flags.scheme.empty()) {
    const auto scheme = find_scheme(flags.scheme);
    if (!scheme) return complain(scheme.error());
    options.scheme = *scheme;
  }
  const OpenOptions how{.follow_symlinks = flags.follow_symlinks, .lenient = flags.lenient};
  const auto files = CheckpointFiles::open(flags.path, how);
  if (!files) return complain(files.error());
  auto model = model_of_weights({.path = flags.path, .config = flags.config, .set = flags.set, .like = flags.like});
  if (!model) return complain(model.error());
  options.model = std::move(*model);
  std::optional<CheckpointFiles> baseline;
  if (!flags.baseline.empty()) {
    auto other = CheckpointFiles::open(flags.baseline, how);
    if (!other) return complain(other.error());
    options.baseline = &baseline.emplace(std::move(*other));
  }
  Progress progress("reading", flags.quiet);
  const double start = seconds();
  const double total = static_cast<double>(std::max<std::uint64_t>(files->bytes(), 1));
  std::uint64_t done = 0;
  std::mutex one;
  options.progress = [&](std::uint64_t bytes) {
    const std::lock_guard lock(one);
    done += bytes;
    progress.show(static_cast<double>(done) / total, fmt::format("{:.1f} GB/s", static_cast<double>(done) * 1e-9 / (seconds() - start)));
  };
  const auto result = audit(*files, options);
  if (!result) return complain(result.error());
  for (const std::string& warning : result->warnings) {
    if (!flags.quiet) tell(fmt::format("stepzero: warning: {}\n", warning));
  }
  if (!flags.html.empty()) {
    if (const auto written = write_file(flags.html, audit_html(*result)); !written) return complain(written.error());
  }
  if (flags.html == "-") return exit_code_of(*result, flags.fail_on);
  const std::string text = flags.json ? audit_json(*result) + "\n" : audit_text(*result, look_of_output(), flags.full);
  if (const int code = print(text); code != Exit::fine) return code;
  return exit_code_of(*result, flags.fail_on);
}

}  // namespace

void declare_audit(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("audit", "what is wrong with these weights");
  auto flags = std::make_shared<AuditFlags>();
  verb->add_option("PATH", flags->path, "a .safetensors or .gguf file, or a directory of a checkpoint")->required();
  verb->add_option("--config", flags->config, "the MODEL they belong to [the config.json beside them; else names and shapes must do]");
  verb->add_option("--like", flags->like, "read the config.json as one of this family");
  verb->add_option("--set", flags->set, "override a field of the model: key=value, repeatable")->allow_extra_args(false);
  verb->add_option("--scheme", flags->scheme, "hold them against this scheme [the one they follow, or come nearest to]");
  verb->add_option("--baseline", flags->baseline, "another checkpoint, to compare every tensor with");
  verb->add_option("--fail-on", flags->fail_on, "exit with 1 from this severity on: warning, error")
      ->check(CLI::IsMember({"warning", "error"}))
      ->capture_default_str();
  verb->add_option("--threads", flags->threads, "threads to use [all cores]")->check(CLI::Range(1, 1000000));
  verb->add_flag("--moments", flags->moments, "moments of every tensor and nothing else, as fast as memory is read");
  verb->add_flag("--full", flags->full, "a row a tensor, not a row a kind");
  verb->add_flag("--follow-symlinks", flags->follow_symlinks, "read shards that are links to elsewhere");
  verb->add_flag("--lenient", flags->lenient, "accept white space before a safetensors header");
  verb->add_flag("--json", flags->json, "the result as JSON (stepzero.audit/1)");
  verb->add_option("--html", flags->html, "also write one self-contained page: findings, a row a tensor with its histogram");
  verb->add_flag("--quiet", flags->quiet, "no progress, no warnings");
  verb->footer(
      "Pickles (.pt, .bin) are never read.\n\nExamples:\n  stepzero audit model.safetensors\n  stepzero audit checkpoint/ --scheme "
      "llama-depth --fail-on error\n"
      "  stepzero audit step1000.safetensors --baseline step0.safetensors --html audit.html\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
