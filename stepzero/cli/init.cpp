#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/api/checkpoints.hpp"
#include "stepzero/cli/command.hpp"
#include "stepzero/cli/job.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/stop.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/output.hpp"
#include "stepzero/report/terminal.hpp"

namespace stepzero::cli {

namespace {

struct InitFlags {
  std::string model;
  std::string like;
  std::string scheme = "hf";
  std::vector<std::string> set;
  std::string lora;
  std::uint64_t seed = 0;
  std::string output;
  std::string dtype = "f32";
  std::string max_shard_size = "5GB";
  std::string shard = "1/1";
  std::string only;
  int threads = 0;
  bool force = false;
  bool quiet = false;
};

// A signal asks the writer to stop at the next piece; the second one does not ask.
volatile std::sig_atomic_t caught = 0;
extern "C" void ask_to_stop(int number) {
  if (caught != 0) {
    remove_unfinished();
    _exit(128 + number);
  }
  caught = number;
}

// "500MB", "5GB", "1000000": decimal units, as the library counts them.
Expected<std::uint64_t> parse_size(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double factor = unit.empty() || unit == "B" ? 1
                        : unit == "KB"              ? 1e3
                        : unit == "MB"              ? 1e6
                        : unit == "GB"              ? 1e9
                        : unit == "TB"              ? 1e12
                                                    : 0;
  const double bytes = static_cast<double>(number) * factor;
  if (error != std::errc() || !(bytes >= 1 && bytes <= 1e18)) {
    return fail(fmt::format("--max-shard-size: \"{}\" is not a size", show(text)), "for example 5GB, 200MB or a number of bytes");
  }
  return static_cast<std::uint64_t>(bytes);
}

struct Share {
  int maker, makers;
};

// "2/3": the second of three processes.
Expected<Share> parse_share(const std::string& text) {
  Share share{0, 0};
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, share.maker);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '/') {
    const auto second = std::from_chars(first.ptr + 1, end, share.makers);
    if (second.ec == std::errc() && second.ptr == end && share.maker >= 1 && share.maker <= share.makers) return share;
  }
  return fail(fmt::format("--shard: \"{}\" is not i/N with 1 <= i <= N", show(text)), "for example --shard 2/3");
}

std::string megabytes(double bytes) {
  return bytes < 1e9 ? fmt::format("{:.1f} MB", bytes * 1e-6) : fmt::format("{:.2f} GB", bytes * 1e-9);
}

// A line for every file: what each process of a run tells the others.
std::string files_text(const CheckpointReport& report) {
  std::string out;
  for (const CheckpointFile& file : report.files)
    out += fmt::format("{} {}  {}\n", file.kept ? "kept " : "wrote", show(file.path), megabytes(static_cast<double>(file.bytes)));
  return out;
}

// The lines of all, in the order of the files' names.
std::string in_order(const std::vector<std::string>& texts) {
  std::vector<std::string> lines;
  for (const std::string& text : texts) {
    for (const std::string& line : CLI::detail::split(text, '\n')) {
      if (!line.empty()) lines.push_back(line + "\n");
    }
  }
  std::ranges::sort(lines, {}, [](const std::string& line) { return line.substr(std::string_view("wrote ").size()); });
  return fmt::format("{}", fmt::join(lines, ""));
}

std::string report_text(const std::string& files, std::size_t missing, const InitFlags& flags, const Architecture& a, const Graph& graph) {
  std::string out = fmt::format("{}  {} parameters, scheme {}, seed {}, {}\n", show(a.name), with_commas(graph.parameter_count()),
                                flags.scheme, flags.seed, flags.dtype);
  if (!a.changes.empty()) out += fmt::format("scheme {} sets {}\n", flags.scheme, fmt::join(a.changes, ", "));
  out += files;
  if (missing > 0) out += fmt::format("{} shards are still to come from other makers; the last one writes the index\n", missing);
  return out;
}

ModelRequest model_of(const InitFlags& flags) {
  return {.model = flags.model, .set = flags.set, .scheme = flags.scheme, .like = flags.like, .lora = flags.lora};
}

Expected<CheckpointOptions> options_of(const InitFlags& flags, const Architecture& a, const Team& team) {
  const auto size = parse_size(flags.max_shard_size);
  if (!size) return std::unexpected(size.error());
  const auto share = parse_share(flags.shard);
  if (!share) return std::unexpected(share.error());
  if (share->makers > 1 && flags.output.ends_with(".safetensors")) {
    return fail(fmt::format("--shard {} needs a directory, {} is one file", flags.shard, show(flags.output)),
                "leave .safetensors off the name");
  }
  if (team.size > 1 && share->makers > 1) {
    return fail(fmt::format("--shard {} and a launcher of {} processes both share the work out", flags.shard, team.size),
                "leave --shard away: each process makes its part");
  }
  return checkpoint_options(model_of(flags), a,
                            {.path = flags.output,
                             .seed = flags.seed,
                             .dtype = flags.dtype,
                             .max_shard_bytes = *size,
                             .maker = team.size > 1 ? team.rank + 1 : share->maker,
                             .makers = team.size > 1 ? team.size : share->makers,
                             .only = flags.only,
                             .replace = flags.force});
}

Expected<CheckpointReport> write(const Graph& graph, const Assignment& assignment, CheckpointOptions options, bool quiet) {
  const double start = seconds();
  Progress progress("writing", quiet);
  options.progress = [&](double share, double bytes) {
    progress.show(share, fmt::format("{}, {:.2f} GB/s", megabytes(bytes), bytes * 1e-9 / (seconds() - start)));
  };
  return unless_stopped([] { return caught != 0; }, [&] { return write_checkpoint(graph, assignment, options); });
}

int run(const InitFlags& flags) {
  set_threads(flags.threads);
  const auto scheme = find_scheme(flags.scheme);
  if (!scheme) return complain(scheme.error());
  const auto a = describe_model(flags.model, flags.set, **scheme, flags.like);
  if (!a) return complain(a.error());
  if (!flags.quiet) tell_notices(*a);
  if (flags.output == "-")
    return complain({"-o -: weights are not written to standard output", "name a file *.safetensors or a directory"});
  const bool one_file = flags.output.ends_with(".safetensors");
  if (one_file && !speaks()) return Exit::fine;  // one file is the first process's
  const Team team = one_file ? Team() : join_others(flags.threads, flags.quiet);
  const auto graph = graph_to_write(model_of(flags), *a);
  if (!graph) return complain(graph.error());
  auto options = options_of(flags, *a, team);
  if (!options) return complain(options.error());
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is a failed write, told as such
  const Assignment assignment(*graph, *a, **scheme);
  const auto report = write(*graph, assignment, *options, flags.quiet || !speaks());
  if (!report && report.error().stopped) return give_up(128 + caught);
  const auto files = team.share(report ? Expected<std::string>(files_text(*report)) : std::unexpected(report.error()));
  if (!files) return complain(files.error());
  return print(report_text(in_order(*files), team.size > 1 ? 0 : report->shards_missing, flags, *a, *graph));
}

}  // namespace

void declare_init(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("init", "weights under a scheme, as safetensors: the same bits from any machine");
  auto flags = std::make_shared<InitFlags>();
  verb->add_option("MODEL", flags->model, "a preset (stepzero models), a Hugging Face config.json, or a directory that holds one")
      ->required();
  verb->add_option("-o,--output", flags->output,
                   "a file *.safetensors, or a directory: config.json, shards and their index; of adapters adapter_config.json and "
                   "adapter_model.safetensors")
      ->required();
  verb->add_option("--like", flags->like, "read the config.json as one of this family, whatever model_type it names");
  verb->add_option("--scheme", flags->scheme, "how weights are drawn (stepzero schemes)")->capture_default_str();
  verb->add_option("--seed", flags->seed, "another seed, other weights")->check(check_seed)->capture_default_str();
  verb->add_option("--dtype", flags->dtype, "f32, bf16, f16; rounded to the nearest, ties to even")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  verb->add_option("--max-shard-size", flags->max_shard_size, "a directory's files are not larger, but for a tensor that is")
      ->capture_default_str();
  verb->add_option("--shard", flags->shard, "i/N: be the i-th of N processes that make one directory")->capture_default_str();
  verb->add_option("--only", flags->only, "only tensors whose name matches, e.g. '*.attn.*'");
  verb->add_option("--set", flags->set, "override a field of the architecture: key=value, repeatable")->allow_extra_args(false);
  verb->add_option("--lora", flags->lora, "write adapters (LoRA) instead of the model: rank=8,alpha=16,roles=query,value");
  verb->add_option("--threads", flags->threads, "threads to use [all cores]")->check(CLI::Range(1, 1000000));
  verb->add_flag("--force", flags->force, "replace what is there");
  verb->add_flag("--quiet", flags->quiet, "no progress");
  verb->footer(
      "A run that was interrupted is continued by the same command: whole shards are kept. A file appears whole or not at "
      "all.\n\nExamples:\n"
      "  stepzero init gpt2 -o gpt2.safetensors\n"
      "  stepzero init llama-3-8b --dtype bf16 --scheme llama-depth --seed 7 -o llama/\n"
      "  stepzero init llama-3-8b --dtype bf16 --shard 2/4 -o /shared/llama/\n"
      "  stepzero init gpt2 --lora rank=8,alpha=16,roles=query,value -o adapter/\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
