#include "stepzero/report/solve.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/graph/role_names.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/json_parts.hpp"
#include "stepzero/schemes/scheme_file.hpp"

namespace stepzero {

namespace {

using Ink = Look::Ink;
using solve::Target;

std::string four_digits(double x) { return fmt::format("{:.4g}", x); }

using Cells = std::vector<std::string>;

std::string table(const Cells& head, const std::vector<Cells>& rows, const Look& look) {
  std::vector<std::size_t> widths;
  for (const std::string& h : head) widths.push_back(columns(h));
  for (const Cells& r : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], columns(r[i]));
  }
  const auto line = [&](const Cells& cells) {
    std::string out;
    for (std::size_t i = 0; i < widths.size(); ++i) out += left(cells[i], widths[i] + 2);
    return out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
  };
  std::string out = look.paint(Ink::dim, line(head));
  for (const Cells& r : rows) out += line(r);
  return out;
}

const char* sign_of(Target::Kind kind) {
  return kind == Target::Kind::equal ? "" : kind == Target::Kind::at_most ? "at most " : "at least ";
}

// The largest targets first by what they miss; all of them only in full.
std::vector<std::size_t> rows_to_show(const SolveSubject& s, bool full) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < s.solution.after.size(); ++i) out.push_back(i);
  constexpr std::size_t most = 12;
  if (full || out.size() <= most) return out;
  const auto weight = [&](std::size_t i) { return std::max(std::abs(s.solution.before[i].miss()), std::abs(s.solution.after[i].miss())); };
  std::ranges::stable_sort(out, std::greater<>(), weight);
  out.resize(most);
  std::ranges::sort(out);
  return out;
}

std::string targets_text(const SolveSubject& s, const Look& look, bool full) {
  std::vector<Cells> rows;
  const auto& after = s.solution.after;
  const auto shown = rows_to_show(s, full);
  for (const std::size_t i : shown) {
    Cells row = {look.name(after[i].what), sign_of(after[i].kind) + four_digits(after[i].wanted), four_digits(s.solution.before[i].value),
                 four_digits(after[i].value)};
    if (!s.measured.empty()) row.push_back(four_digits(s.measured[i].value));
    rows.push_back(std::move(row));
  }
  Cells head = {"target", "wanted", "before", "after"};
  if (!s.measured.empty()) head.emplace_back("measured");
  std::string out = table(head, rows, look);
  if (shown.size() < after.size())
    out +=
        look.paint(Ink::dim, fmt::format("the {} that were or are missed by most, of {}; --full shows all", shown.size(), after.size())) +
        "\n";
  return out;
}

std::string scales_text(const SolveSubject& s, const Look& look) {
  std::vector<Cells> rows;
  for (const SolvedScale& c : s.scales)
    rows.push_back({(c.stack.empty() ? "" : c.stack + ".") + c.role + (c.layer ? fmt::format(", layer {}", *c.layer) : ""),
                    four_digits(c.before), four_digits(c.after), fmt::format("{:.4g}", c.after / c.before)});
  for (const SolvedMultiplier& m : s.multipliers)
    rows.push_back({m.field, four_digits(m.before), four_digits(m.after), four_digits(m.after / m.before)});
  return table({"std", "before", "after", "times"}, rows, look);
}

std::string direction_text(const SolveSubject& s, const solve::FreeDirection& f) {
  double most = 0;
  for (const double x : f.of) most = std::max(most, std::abs(x));
  std::vector<std::string> up, down;
  for (std::size_t u = 0; u < f.of.size(); ++u) {
    if (std::abs(f.of[u]) > 0.2 * most) (f.of[u] * (f.of[0] < 0 ? -1 : 1) > 0 ? up : down).push_back(s.unknowns[u]);
  }
  if (up.empty()) std::swap(up, down);
  return down.empty() ? fmt::format("{}", fmt::join(up, " with "))
                      : fmt::format("{} against {}", fmt::join(up, " with "), fmt::join(down, " with "));
}

Json number_or_null(double x) { return json_number(x); }

Json json_of(const Distribution& d) {
  Json row = {{"law", law_name(d)}};
  if (d.kind == Distribution::Kind::constant || d.mean != 0) row["mean"] = d.mean;
  if (d.kind != Distribution::Kind::constant) row["std"] = d.std();
  if (d.kind == Distribution::Kind::truncated_normal) row["cut"] = d.cut;
  return row;
}

}  // namespace

const std::vector<Part>& SolveSubject::parts_of(const std::string& tensor) const {
  static const std::vector<Part> none;
  const auto it = std::ranges::find(graph->params, tensor, &Param::name);
  return it == graph->params.end() ? none : it->parts;
}

Confirmed confirmed(const SolveSubject& s) {
  Confirmed out;
  for (std::size_t i = 0; i < s.measured.size(); ++i) {
    const double off = std::abs(std::log(s.measured[i].value / s.solution.after[i].value));
    // bounds that are far from being reached tell nothing
    const bool counts = s.measured[i].kind == Target::Kind::equal || s.measured[i].off() != 0;
    if (counts && !(off <= out.worst)) out = {off, s.measured[i].what};
  }
  return out;
}

std::string solve_text(const SolveSubject& s, const Look& look, bool full) {
  std::string out = look.paint(Ink::bold, fmt::format("{}: {}", look.name(s.architecture.name), s.objective)) + "\n";
  out += wrap(fmt::format("begins with scheme {}: {}", s.scheme, fmt::join(s.formulas, "; ")), look.width, 0) + "\n";
  out += targets_text(s, look, full) + "\n";
  out += scales_text(s, look);
  if (!s.rates.empty()) out += fmt::format("\nrates of {} tensors (--rates-output writes them)\n", s.rates.size());
  const double before = s.solution.cost_before, after = s.solution.cost;
  out += fmt::format("\nsum of squared misses {:.4g} {} {:.4g}", before, look.arrow(), after);
  out += after < 1e-3 ? ": met\n" : ": what is asked for cannot all be had with what may move; this is the nearest\n";
  if (s.solution.free.empty()) out += "no direction was free\n";
  for (const solve::FreeDirection& f : s.solution.free)
    out += wrap(fmt::format("free, and left where the scheme has it: {}", direction_text(s, f)), look.width, 0);
  std::vector<std::string> binding;
  for (const Target& t : s.solution.binding) {
    if (std::ranges::find(binding, t.binds) == binding.end()) binding.push_back(t.binds);
  }
  if (!binding.empty()) out += fmt::format("binding: {}\n", fmt::join(binding, ", "));
  out += fmt::format("findings: {} {} {}\n", verdict(s.solution.signal_before.findings), look.arrow(), verdict(s.solution.signal.findings));
  if (!s.measured.empty()) {
    const Confirmed c = confirmed(s);
    out += wrap(fmt::format("measured over {} draws: within {:.2g} % of what is predicted, worst at {}", s.seeds, 100 * std::expm1(c.worst),
                            c.what),
                look.width, 0);
  }
  return out;
}

std::string solve_json(const SolveSubject& s) {
  Json out = {{"schema", "stepzero.solve/1"},
              {"model", json(s.architecture, s.parameters)},
              {"scheme", s.scheme},
              {"objective", s.objective},
              {"formulas", s.formulas},
              {"cost", {{"before", number_or_null(s.solution.cost_before)}, {"after", number_or_null(s.solution.cost)}}},
              {"work", {{"rounds", s.solution.rounds}, {"predictions", s.solution.evaluations}}},
              {"targets", Json::array()},
              {"scales", Json::array()},
              {"multipliers", Json::array()},
              {"rates", Json::array()},
              {"free", Json::array()},
              {"binding", Json::array()},
              {"findings", {{"before", Json::array()}, {"after", Json::array()}}}};
  for (std::size_t i = 0; i < s.solution.after.size(); ++i) {
    const Target& t = s.solution.after[i];
    Json row = {{"what", t.what},
                {"kind", t.kind == Target::Kind::equal     ? "equal"
                         : t.kind == Target::Kind::at_most ? "at_most"
                                                           : "at_least"},
                {"wanted", number_or_null(t.wanted)},
                {"before", number_or_null(s.solution.before[i].value)},
                {"after", number_or_null(t.value)}};
    if (!s.measured.empty()) row["measured"] = number_or_null(s.measured[i].value);
    if (!t.binds.empty()) row["constraint"] = t.binds;
    out["targets"].push_back(std::move(row));
  }
  for (const SolvedScale& c : s.scales) {
    out["scales"].push_back({{"role", c.role},
                             {"stack", c.stack},
                             {"layer", c.layer ? Json(*c.layer) : Json(nullptr)},
                             {"std_before", c.before},
                             {"std", c.after}});
  }
  for (const SolvedMultiplier& m : s.multipliers)
    out["multipliers"].push_back({{"field", m.field}, {"before", m.before}, {"after", m.after}});
  for (const auto& [tensor, rate] : s.rates) out["rates"].push_back({{"tensor", tensor}, {"rate", rate}});
  for (const solve::FreeDirection& f : s.solution.free) {
    Json direction = Json::object();
    for (std::size_t u = 0; u < f.of.size(); ++u) direction[s.unknowns[u]] = f.of[u];
    out["free"].push_back({{"direction", std::move(direction)}, {"effect", f.effect}});
  }
  for (const Target& t : s.solution.binding) out["binding"].push_back({{"constraint", t.binds}, {"what", t.what}});
  for (const Finding& f : s.solution.signal_before.findings) out["findings"]["before"].push_back(json(f));
  for (const Finding& f : s.solution.signal.findings) out["findings"]["after"].push_back(json(f));
  if (!s.measured.empty()) out["seeds"] = s.seeds;
  return dump(out) + "\n";
}

std::string scheme_text(const SchemeFile& file) {
  Json out = {{"schema", "stepzero.scheme/1"}, {"otherwise", file.otherwise->name}, {"set", file.set}, {"tensors", Json::array()}};
  for (const LawRow& r : file.laws) {
    Json row = {{"tensor", r.tensor}};
    if (r.part) row["part"] = to_string(*r.part);
    row.update(json_of(r.law));
    out["tensors"].push_back(std::move(row));
  }
  return out.dump(1) + "\n";
}

std::string solve_scheme(const SolveSubject& s) { return scheme_text(s.file); }

std::string solve_rates(const SolveSubject& s) {
  Json out = {{"schema", "stepzero.rates/1"}, {"rates", Json::array()}};
  for (const auto& [tensor, rate] : s.rates) out["rates"].push_back({{"tensor", tensor}, {"rate", rate}});
  return out.dump(1) + "\n";
}

}  // namespace stepzero
