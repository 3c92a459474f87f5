#include <fmt/format.h>
#include <fmt/ranges.h>

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
  for (const auto& [code, meaning] :
       {std::pair{"0", "fine"}, std::pair{"1", "findings: compare, diff, --fail-on"}, std::pair{"2", "usage or file"},
        std::pair{"3", "a number that is not finite"}, std::pair{"130", "interrupted"}})
    out += fmt::format(".TP\n.B {}\n{}\n", code, roff(meaning));
  out +=
      ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nno colour, whatever the terminal\n.TP\n.B COLUMNS\n"
      "the width where standard output is no terminal\n";
  return out + (app.get_footer().empty() ? "" : ".SH EXAMPLES\n.nf\n" + roff(app.get_footer()) + "\n.fi\n");
}

}  // namespace stepzero::cli
