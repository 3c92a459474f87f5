#include "stepzero/cli/command.hpp"

#include <unistd.h>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "stepzero/cli/job.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/report/terminal_style.hpp"

namespace stepzero::cli {

int complain(const Error& error) {
  if (tells_of_error()) {
    tell(fmt::format("stepzero: {}\n", error.message));
    if (!error.hint.empty()) tell(fmt::format("  {}\n", error.hint));
  }
  return error.busy ? Exit::busy : Exit::usage;
}

void tell(std::string_view text) noexcept { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

int print(const std::string& text) {
  if (!speaks()) return Exit::fine;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    if (errno == EPIPE) return Exit::fine;  // whoever read has seen enough; the verdict stays
    return complain({"could not write the result to standard output", ""});
  }
  return Exit::fine;
}

std::string whole_number(std::string text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size() && value == std::floor(value) && std::abs(value) < 1e15;
  return whole && text.find_first_of(".eE") != std::string::npos ? fmt::format("{:.0f}", value) : text;
}

std::string check_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  const bool fine = error == std::errc() && end == text.data() + text.size();
  return fine ? "" : "not a whole number from 0 to 18446744073709551615";
}

namespace {

// "1%" or "0.01"; 0 where it is neither
double fraction_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest(end, text.data() + text.size());
  if (error != std::errc() || !(rest.empty() || rest == "%") || !(value > 0)) return 0;
  return rest == "%" ? value / 100 : value;
}

std::string check_fraction(const std::string& text) {
  const double value = fraction_of(text);
  return value > 0 && value < 1 ? "" : "not a share between 0 and 1, as 1% or 0.01";
}

}  // namespace

void CommonFlags::declare_model(CLI::App& app) {
  verb = &app;
  app.add_option("MODEL", model,
                 "a preset (stepzero models), a Hugging Face config.json, a directory that holds one, or an architecture file")
      ->required();
  app.add_option("--like", like, "read the config.json as one of this family, whatever model_type it names");
  app.add_option("--scheme", scheme, "how weights are drawn (stepzero schemes)")->capture_default_str();
  app.add_option("--seq-len", seq_len, "tokens in a sequence [128, or the tokens file's]")
      ->check(CLI::Range(Index{1}, Index{1} << 24))
      ->transform(whole_number);
  app.add_option("--batch", batch, "sequences [1, or the tokens file's]")
      ->check(CLI::Range(Index{1}, Index{1} << 24))
      ->transform(whole_number);
  app.add_option("--tokens", tokens, "zipf, distinct, equal, or a file of ids, one sequence a line")->capture_default_str();
  app.add_option("--encoder-tokens", encoder_tokens, "the same for the encoder of an encoder-decoder, as many ids as its decoder reads");
  app.add_option("--features", features, "what a speech model hears: float32, [sequences][channels][frames] [drawn]");
  app.add_option("--pixels", pixels, "images of a vision model: float32, [images][colours][height][width] [drawn]");
  app.add_option("--labels", labels, "a file with a class for each image [drawn]");
  app.add_option("--targets", targets, "what position t is scored against: next, same [next; same where attention is not causal]")
      ->check(CLI::IsMember({"next", "same"}));
  app.add_option("--seed", seed, "the first seed")->check(check_seed)->capture_default_str();
  app.add_option("--set", set, "override a field of the architecture: key=value, repeatable")->allow_extra_args(false);
  app.add_option("--lora", lora, lora_help);
  app.add_option("--threads", threads, "threads to use [all cores]")->check(CLI::Range(1, 1000000));
  app.add_flag("--json", json, "the result as JSON");
  app.add_flag("--quiet", quiet, "no progress, no warnings");
}

void CommonFlags::declare(CLI::App& app) {
  declare_model(app);
  app.add_flag("--no-remedies", no_remedies, "do not look for what removes a finding, which predicts the model anew for every change");
}

void CommonFlags::declare_draws(CLI::App& app) {
  app.add_option("--seeds", seeds, "how many draws to average")
      ->check(CLI::Range(1, 1000000))
      ->transform(whole_number)
      ->capture_default_str();
  app.add_option("--until-stderr", until,
                 "draw until the standard error of every second moment is below this share, 1% say, or --seeds [100000]")
      ->check(check_fraction);
}

void CommonFlags::declare_adapter(CLI::App& app) {
  app.add_option("--adapter", adapter,
                 "run adapters with these weights: a directory with adapter_model.safetensors and adapter_config.json, or the former, "
                 "instead of drawing them");
}

InputOptions CommonFlags::input() const {
  std::optional<Targets> against;
  if (!targets.empty()) against = targets == "same" ? Targets::same : Targets::next;
  return {.tokens = tokens,
          .encoder_tokens = encoder_tokens,
          .pixels = pixels,
          .labels = labels,
          .features = features,
          .length = seq_len,
          .sequences = batch,
          .targets = against,
          .seed = seed};
}

void tell_notices(const Architecture& a) {
  for (const std::string& notice : a.notices) {
    if (speaks()) tell(fmt::format("stepzero: warning: {}\n", notice));
  }
}

Expected<Setup> prepare(const CommonFlags& flags) {
  set_threads(flags.threads);
  const auto scheme = find_scheme(flags.scheme);
  if (!scheme) return std::unexpected(scheme.error());
  auto a = describe_model(flags.model, flags.set, **scheme, flags.like);
  if (!a) return std::unexpected(a.error());
  if (!flags.quiet) tell_notices(*a);
  return prepare(std::move(*a), **scheme, flags.input(), {flags.lora, flags.adapter});
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Progress::Progress(std::string what, bool quiet)
    : what_(std::move(what)), enabled_(!quiet && isatty(STDERR_FILENO) == 1), start_(seconds()) {}

Progress::~Progress() {
  if (shown_) tell("\r\x1b[K");
}

void Progress::show(double fraction, const std::string& note) {
  const double now = seconds();
  if (!enabled_ || now - start_ < 1 || now - last_ < 0.1) return;
  last_ = now;
  shown_ = true;
  constexpr int width = 24;
  const int filled = static_cast<int>(fraction * width);
  tell(fmt::format("\r{} [{}{}] {:3.0f} %{}{}{}\x1b[K", what_, std::string(static_cast<std::size_t>(filled), '#'),
                   std::string(static_cast<std::size_t>(width - filled), '.'), 100 * fraction, time_left(now - start_, fraction),
                   note.empty() ? "" : "  ", note));
  std::fflush(stderr);
}

Expected<Signal> measure_with_progress(const Setup& setup, const CommonFlags& flags, MeasureOptions options) {
  const bool quiet = flags.quiet || !speaks();
  Progress progress("measuring", quiet);
  options.team = join_others(flags.threads, quiet);
  options.scheme = setup.scheme;
  options.seed = flags.seed;
  options.seeds = flags.seeds;
  const double until = flags.until.empty() ? 0 : fraction_of(flags.until);
  if (until > 0 && flags.seeds == 1) options.seeds = 100000;
  std::string sure;
  options.enough = [&](const Ensemble& ensemble) {
    if (until == 0 && !progress.enabled()) return false;
    const double error = ensemble.error();
    if (std::isfinite(error)) sure = fmt::format(", standard errors up to {:.2g} %", 100 * error);
    return until > 0 && error <= until;
  };
  options.progress = [&](double fraction) {
    const double draw = fraction * options.seeds;
    progress.show(fraction, fmt::format("draw {} of {}{}", std::min(static_cast<int>(draw) + 1, options.seeds), options.seeds, sure));
  };
  options.warn = [&](const std::string& warning) {
    if (!quiet) tell(fmt::format("stepzero: warning: {}\n", warning));
  };
  options.note = [&](const std::string& note) {
    if (!quiet) tell(fmt::format("stepzero: {}\n", note));
  };
  return measure(setup.graph, setup.architecture, setup.batch, options);
}

}  // namespace stepzero::cli
