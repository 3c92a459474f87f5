#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/cli/exit_codes.hpp"
#include "stepzero/cli/shell.hpp"
#include "stepzero/report/diagnosis.hpp"

namespace stepzero::cli {

namespace {

// roff reads backslashes, and dots and quotes that begin a line.
std::string roff(const std::string& text) {
  std::string out;
  bool start = true;
  for (const char c : text) {
    if (start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    start = c == '\n';
  }
  return out;
}

std::string flags_of(const VerbInfo& verb) {
  std::string out;
  for (const FlagInfo& flag : verb.flags) {
    std::vector<std::string> names;
    for (const std::string& name : flag.names) names.push_back("\\fB" + roff(name) + "\\fR");
    out += fmt::format(".TP\n{}{}\n{}\n", fmt::join(names, ", "), flag.placeholder.empty() ? "" : " \\fI" + roff(flag.placeholder) + "\\fR",
                       roff(flag.description));
  }
  return out;
}

}  // namespace

std::string manual_page(const CLI::App& app, const std::vector<VerbInfo>& verbs) {
  std::string out = fmt::format(
      ".TH STEPZERO 1 \"\" \"stepzero {}\" \"User Commands\"\n.SH NAME\nstepzero \\- what a transformer will do before its first training "
      "step\n",
      STEPZERO_VERSION);
  out += ".SH SYNOPSIS\n.B stepzero\n.I VERB\n.RI [ arguments ]\n.SH DESCRIPTION\n" +
         roff(
             "From a model's config.json and an initialization scheme, stepzero tells the size of every activation and every gradient at "
             "step zero, by theory and by a real pass, says what is wrong with them, and writes weights that behave as asked.\n");
  out += ".SH VERBS\n";
  for (const VerbInfo& verb : verbs) {
    out += fmt::format(".SS \"stepzero {}{}{}\"\n{}\n", roff(verb.name), verb.arguments.empty() ? "" : " ", roff(verb.arguments),
                       roff(verb.description));
    out += flags_of(verb);
    if (!verb.footer.empty()) out += ".PP\n.nf\n" + roff(verb.footer) + "\n.fi\n";
  }
  out += ".SH FINDINGS\n";
  for (const Diagnosis& d : diagnoses()) out += fmt::format(".TP\n.B {}\n{}\n", roff(d.id), roff(d.meaning));
  out += ".SH EXIT STATUS\n";
  for (const ExitCode& e : exit_codes()) out += fmt::format(".TP\n.B {}\n{}\n", static_cast<int>(e.code), roff(e.meaning));
  out +=
      ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nno colour, whatever the terminal\n.TP\n.B COLUMNS\n"
      "the width where standard output is no terminal\n";
  const std::string footer = app.get_footer(), heading = "Examples:\n";
  return out + ".SH EXAMPLES\n.nf\n" + roff(footer.substr(footer.find(heading) + heading.size())) + "\n.fi\n";
}

}  // namespace stepzero::cli
