#include "stepzero/cli/explain.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/cli/command.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/ops/all.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/terminal_style.hpp"

namespace stepzero::cli {

namespace {

struct Explained {
  std::string kind;
  Grade grade;
  const OpHead* head;
};

const OpHead* head_of(const std::string& kind, bool elementwise) {
  for (const OpHead& head : op_heads()) {
    if (elementwise ? head.page == "elementwise" : std::ranges::count(head.kinds, kind) > 0) return &head;
  }
  return nullptr;
}

// Every kind of AnyOp, in the order of the list.
const std::vector<Explained>& explained() {
  static const auto list = []<class... Ops>(const std::variant<Ops...>*) {
    return std::vector<Explained>{{Ops::kind, Ops::grade, head_of(Ops::kind, requires { typename Ops::phi; })}...};
  }(static_cast<const AnyOp*>(nullptr));
  return list;
}

const char* meaning(Grade grade) {
  switch (grade) {
    case Grade::exact:
      return "no bias at any width, under what the op assumes";
    case Grade::large_width:
      return "a bias that falls like 1/width or faster";
    case Grade::approximate:
      return "a bias that width does not remove; the page says how large";
    case Grade::sampled:
      return "an average over synthetic draws, with their noise";
  }
  return "?";
}

// "What       y = f(x)" -> "y = f(x)"
std::string what_of(const OpHead& head) {
  const std::string line = head.text.substr(0, head.text.find('\n'));
  return line.substr(std::min(line.find_first_not_of(' ', 4), line.size()));
}

int list_ops() {
  std::string out = fmt::format("{:<20} {:<12} {}\n", "op", "grade", "what");
  for (const Explained& op : explained()) out += fmt::format("{:<20} {:<12} {}\n", op.kind, to_string(op.grade), what_of(*op.head));
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
  for (const Explained& op : explained()) {
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
  for (const Explained& op : explained()) {
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
