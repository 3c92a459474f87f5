#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/cli/job.hpp"
#include "stepzero/cli/predicting.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/cli/remedies.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/graph/sources.hpp"
#include "stepzero/report/compare.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/html.hpp"
#include "stepzero/report/json.hpp"
#include "stepzero/report/terminal.hpp"
#include "stepzero/theory/predict_long.hpp"

namespace stepzero::cli {

namespace {

struct ReportFlags : CommonFlags {
  ViewFlags view;
  std::string output = "report.html";
  std::vector<std::string> compare_schemes;
  bool measure = false;
  bool weightless = false;
  std::string weights;
  std::string command;
};

bool measures(const ReportFlags& flags) {
  return flags.measure || flags.seeds > 1 || flags.weightless || !flags.weights.empty() || !flags.adapter.empty();
}

Expected<Signal> signal_of(const ReportFlags& flags, bool measured) {
  auto setup = prepare(flags);
  if (!setup) return std::unexpected(setup.error());
  auto theory = predict_with_progress(*setup, flags);
  const bool no_rule = !theory && !check_sources(setup->graph);  // then the page shows what is measured
  if (!theory && !no_rule) return theory;
  if (no_rule && speaks()) tell(fmt::format("stepzero: warning: {}; the page shows what is measured\n", theory.error().message));
  Signal signal = theory ? *std::move(theory) : Signal();
  if (measured || no_rule) {
    auto real = measure_with_progress(*setup, flags, {.weights = flags.weights, .adapter = flags.adapter, .weightless = flags.weightless});
    if (!real) return real;
    signal = no_rule ? *std::move(real) : join(signal, *real);
    signal.weightless = flags.weightless;
  }
  signal.tokens = input_name(flags.input(), setup->batch);
  signal.findings = diagnose(signal);
  return signal;
}

// The same model by theory under another scheme.
Expected<Signal> alternative(const ReportFlags& flags, const std::string& scheme) {
  ReportFlags other;
  static_cast<CommonFlags&>(other) = flags;
  other.scheme = scheme;
  return signal_of(other, false);
}

std::string summary(const Signal& s, const ReportFlags& flags, std::size_t bytes) {
  const Look look = look_of_output();
  return header_text(s, look) + findings_text(s.findings, look, flags.view.full) +
         fmt::format("wrote {}  {:.0f} kB\n", show(flags.output), static_cast<double>(bytes) * 1e-3);
}

int run(const ReportFlags& flags) {
  auto signal = signal_of(flags, measures(flags));
  if (!signal) return complain(signal.error());
  const bool theory = signal->loss.predicted.has_value();
  if (theory && speaks() && !flags.no_remedies && flags.weights.empty()) add_remedies(*signal, flags, true);
  Page page{std::move(*signal), {}, flags.command, STEPZERO_VERSION};
  for (const std::string& scheme : flags.compare_schemes) {
    if (scheme == flags.scheme) continue;  // the report itself
    auto other = alternative(flags, scheme);
    if (!other) return complain(other.error());
    page.alternatives.push_back(std::move(*other));
  }
  const std::string html = to_html(page);
  if (const auto done = write_file(flags.output, html); !done) return complain(done.error());
  if (const int code = write_tables(page.signal, flags, flags.view); code != Exit::fine) return code;
  if (flags.output == "-" || flags.view.to_output()) return judge(page.signal, flags.view);
  const std::string text = flags.json ? to_json(page.signal) + "\n" : summary(page.signal, flags, html.size());
  if (const int code = print(text); code != Exit::fine) return code;
  return judge(page.signal, flags.view);
}

}  // namespace

void declare_report(CLI::App& app, int& exit_code, const std::vector<std::string>& words) {
  auto* verb = app.add_subcommand("report", "one self-contained HTML page: verdict, charts over the depth, every number");
  auto flags = std::make_shared<ReportFlags>();
  flags->declare(*verb);
  flags->declare_draws(*verb);
  flags->view.declare(*verb);
  verb->add_option("-o,--output", flags->output, "the page")->capture_default_str();
  verb->add_option("--compare-schemes", flags->compare_schemes, "other schemes to lay over the charts, with commas between")
      ->delimiter(',');
  auto* weights = verb->add_option("--weights", flags->weights, "measure the weights of this .safetensors file beside the prediction");
  flags->declare_adapter(*verb);
  verb->add_flag("--measure", flags->measure, "also measure, as --seeds above 1 does: points with error bars beside the predicted lines");
  verb->add_flag("--weightless", flags->weightless, "measure without making the weights: any size of model")->excludes(weights);
  for (const std::string& word : words) flags->command += " " + shell_word(word);
  flags->command.insert(0, "stepzero");
  verb->footer(
      "Examples:\n  stepzero report gpt2 --measure --seeds 8 -o report.html\n"
      "  stepzero report llama-3-8b --compare-schemes megatron,llama-depth -o llama.html\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
