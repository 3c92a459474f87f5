#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/cli/command.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/op_heads.hpp"
#include "stepzero/report/terminal_style.hpp"

namespace stepzero::cli {

namespace {

// "What       y = f(x)" -> "y = f(x)"
std::string what_of(const OpHead& head) {
  const std::string line = head.text.substr(0, head.text.find('\n'));
  return line.substr(std::min(line.find_first_not_of(' ', 4), line.size()));
}

int list_ops() {
  std::string out = fmt::format("{:<20} {:<12} {}\n", "op", "grade", "what");
  for (const ExplainedOp& op : explained_ops()) out += fmt::format("{:<20} {:<12} {}\n", op.kind, to_string(op.grade), what_of(*op.head));
  out += fmt::format("\n{:<24} {}\n", "finding", "what it means");
  for (const Diagnosis& d : diagnoses()) out += fmt::format("{:<24} {}\n", d.id, d.meaning);
  return print(out + "\nstepzero explain NAME shows the mathematics of an op, or from where on a finding is one.\n");
}

// A finding of predict, measure, compare or report.
std::string explain_finding(const Diagnosis& d) {
  std::string meaning = d.meaning, limit = d.limit;
  return fmt::format(
      "{}\n\n{}{}\n{}", d.id, wrap("Means  " + meaning, 80, 0, 7), wrap("From   " + limit, 80, 0, 7),
      wrap("predict, measure, compare and report name it where they find it, with the number, and with the changes of the command "
           "that were predicted and remove it.",
           80, 0));
}

// A kind ("rms_norm") stands for itself, a file ("norm") for all its kinds.
int explain(const std::string& name) {
  const auto list = diagnoses();
  const auto finding = std::ranges::find_if(list, [&](const Diagnosis& d) { return d.id == name; });
  if (finding != list.end()) return print(explain_finding(*finding));
  const OpHead* head = nullptr;
  bool kind = false;
  std::vector<std::string> known;
  for (const Diagnosis& d : list) known.emplace_back(d.id);
  for (const ExplainedOp& op : explained_ops()) {
    if (op.kind == name || (!kind && op.head->page == name)) head = op.head;
    kind = kind || op.kind == name;
    known.insert(known.end(), {op.kind, op.head->page});
  }
  if (head == nullptr) {
    const std::string near = closest(name, known);
    return complain({fmt::format("unknown op or finding \"{}\"{}", show(name), near.empty() ? "" : fmt::format("; did you mean {}?", near)),
                     "stepzero explain lists both"});
  }
  std::vector<std::string> kinds;
  std::set<Grade> grades;
  for (const ExplainedOp& op : explained_ops()) {
    if (op.head != head) continue;
    kinds.push_back(op.kind);
    if (!kind || op.kind == name) grades.insert(op.grade);
  }
  std::string out = head->text;
  for (const Grade grade : grades) out += fmt::format("Grade      {}: {}\n", to_string(grade), meaning(grade));
  return print(out + fmt::format("Kinds      {}\n", fmt::join(kinds, ", ")));
}

}  // namespace

void declare_explain(CLI::App& app, int& exit_code) {
  auto name = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("explain", "the mathematics of an op, what a finding means, or the list of both");
  verb->add_option("OP", *name, "a kind of op or a finding, as in the list");
  verb->footer("Examples:\n  stepzero explain\n  stepzero explain rms_norm\n  stepzero explain rank-collapse\n");
  verb->callback([&exit_code, name, verb] { exit_code = verb->count("OP") == 0 ? list_ops() : explain(*name); });
}

}  // namespace stepzero::cli
