#include "stepzero/cli/present.hpp"

#include <sys/ioctl.h>
#include <unistd.h>
#include <charconv>
#include <cstdlib>
#include <span>

#include <fmt/format.h>

#include "stepzero/cli/job.hpp"
#include "stepzero/cli/remedies.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/output.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/export.hpp"
#include "stepzero/report/json.hpp"

namespace stepzero::cli {

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// As the C library reads it: the first that is set decides.
bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = environment(name);
    if (!value.empty())
      return value.find("UTF-8") != std::string::npos || value.find("utf8") != std::string::npos || value.find("UTF8") != std::string::npos;
  }
  return false;
}

std::size_t width_of_output() {
  constexpr std::size_t usual = 80, most = 500;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return std::min<std::size_t>(size.ws_col, most);
  const std::string columns = environment("COLUMNS");
  std::size_t asked = 0;
  const auto [end, error] = std::from_chars(columns.data(), columns.data() + columns.size(), asked);
  return error == std::errc() && end == columns.data() + columns.size() && asked > 0 ? std::min(asked, most) : usual;
}

}  // namespace

Look look_of_output() {
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const bool color = terminal && environment("NO_COLOR").empty() && environment("TERM") != "dumb";
  return {.width = width_of_output(), .color = color, .unicode = utf8_locale()};
}

void ViewFlags::declare(CLI::App& app) {
  app.add_flag("--full", full, "everything: all layers, nodes and parameters, and what the notes say");
  app.add_option("--csv", csv, "also write every number to this file, a row each; - is standard output, and nothing else goes there");
  app.add_option("--markdown", markdown,
                 "also write the findings and the layers to this file, to paste into an issue or a pull request; - as with --csv");
  app.add_option("--fail-on", fail_on, "exit with 1 where there is a finding of this severity or worse: note, warning, error")
      ->check(CLI::IsMember({"note", "warning", "error"}));
}

Expected<void> write_file(const std::string& path, std::string_view text) {
  if (!speaks()) return {};
  if (path == "-") {
    if (print(std::string(text)) == Exit::fine) return {};
    return fail("standard output cannot be written");
  }
  return stepzero::write_file(path, text);
}

int write_tables(const Signal& signal, const CommonFlags& common, const ViewFlags& view) {
  if (!view.csv.empty()) {
    if (const auto done = write_file(view.csv, to_csv(signal)); !done) return complain(done.error());
  }
  if (!view.markdown.empty()) {
    if (const auto done = write_file(view.markdown, to_markdown(signal, command_with(*common.verb, common, {}), STEPZERO_VERSION)); !done)
      return complain(done.error());
  }
  return Exit::fine;
}

int judge(const Signal& signal, const ViewFlags& view) {
  if (const auto broken = find_not_finite(signal)) {
    if (speaks())
      tell(fmt::format("stepzero: {} is not finite at {}\n  the signal overflowed or the weights hold NaN or Inf\n", broken->what,
                       show(broken->where)));
    return Exit::numerical;
  }
  if (view.fail_on.empty()) return Exit::fine;
  const Severity least = view.fail_on == "error" ? Severity::error : view.fail_on == "warning" ? Severity::warning : Severity::note;
  return any_at_least(signal.findings, least) ? Exit::findings : Exit::fine;
}

int present(Signal& signal, const CommonFlags& common, const ViewFlags& view, const TextView& text, const PredictOptions& options,
            const JsonView& json) {
  signal.findings = diagnose(signal);
  if (speaks() && !common.no_remedies) add_remedies(signal, common, view.full, options);
  if (const int code = write_tables(signal, common, view); code != Exit::fine) return code;
  if (view.to_output()) return judge(signal, view);
  const std::string result = common.json ? json(signal) + "\n" : text(signal, look_of_output(), view.full);
  if (const int code = print(result); code != Exit::fine) return code;
  return judge(signal, view);
}

}  // namespace stepzero::cli
