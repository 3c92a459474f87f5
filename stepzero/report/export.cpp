#include "stepzero/report/export.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/report/depth.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/remedies.hpp"
#include "stepzero/report/terminal.hpp"
#include "stepzero/report/terminal_style.hpp"

namespace stepzero {

namespace {

// Enough digits to come back as the same number.
std::string cell(const std::optional<double>& x) { return x && std::isfinite(*x) ? fmt::format("{}", *x) : x ? "nan" : ""; }

void row(std::string& out, const char* table, const std::string& name, const char* quantity, const Value& v) {
  if (!v.predicted && !v.measured) return;
  out += fmt::format("{},{},{},{},{},{},{}\n", table, csv_cell(name), quantity, cell(v.predicted), cell(v.spread), cell(v.measured),
                     cell(v.standard_error));
}

std::string shown(double x) { return std::isnan(x) ? "" : number(x); }

std::string layer_rows(const Signal& s, const Stack& stack) {
  std::string out =
      "| layer | signal E[x^2] | token cosine | added / stream | score variance | entropy | gradient norm |\n"
      "|---:|---:|---:|---:|---:|---:|---:|\n";
  for (std::size_t l = 0; l < stack.layers.size(); ++l) {
    const Layer& layer = stack.layers[l];
    const bool inside = layer.attention != nullptr;
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", l < stack.depth() ? fmt::format("{}", l) : "end",
                       shown(best(layer.stream->forward.second_moment)), shown(best(layer.stream->forward.token_cosine)),
                       l < stack.depth() ? shown(added_share(s, stack, l)) : "", inside ? shown(best(layer.attention->score_variance)) : "",
                       inside ? shown(best(layer.attention->entropy)) : "", shown(best(layer.stream->backward.norm)));
  }
  return out;
}

}  // namespace

// Printable, quoted, and never begun by what a spreadsheet takes for a formula.
std::string csv_cell(std::string_view untrusted) {
  std::string text = show(untrusted);
  const std::size_t first = text.find_first_not_of(' ');  // a spreadsheet may skip spaces
  if (first != std::string::npos && std::string_view("=+-@|%").find(text[first]) != std::string_view::npos) text.insert(0, "'");
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

// Every character that Markdown or HTML could read as more than itself gets a backslash or its entity.
std::string markdown_text(std::string_view untrusted) {
  std::string out;
  for (const char c : show(untrusted)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (std::string_view("\\`*_{}[]()#+-.!|~@:=$").find(c) != std::string_view::npos)
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out;
}

std::string to_csv(const Signal& s) {
  std::string out = "table,name,quantity,predicted,spread,measured,stderr\n";
  row(out, "model", "loss", "loss", s.loss);
  row(out, "model", "gradient", "norm", s.gradient_norm);
  row(out, "model", "growth", "forward", s.growth.forward);
  row(out, "model", "growth", "angle", s.growth.angle);
  row(out, "model", "growth", "gradient", s.growth.gradient);
  for (const NodeSignal& n : s.nodes) {
    row(out, "nodes", n.name, "forward.second_moment", n.forward.second_moment);
    row(out, "nodes", n.name, "forward.variance", n.forward.variance);
    row(out, "nodes", n.name, "forward.mean", n.forward.mean);
    row(out, "nodes", n.name, "forward.token_cosine", n.forward.token_cosine);
    row(out, "nodes", n.name, "backward.norm", n.backward.norm);
    row(out, "nodes", n.name, "backward.second_moment", n.backward.second_moment);
    row(out, "nodes", n.name, "backward.token_cosine", n.backward.token_cosine);
  }
  for (const AttentionSignal& a : s.attention) {
    row(out, "attention", a.name, "score_variance", a.score_variance);
    row(out, "attention", a.name, "entropy", a.entropy);
    row(out, "attention", a.name, "sum_squares", a.sum_squares);
  }
  for (const ParameterSignal& p : s.parameters) {
    row(out, "parameters", p.name, "std", p.std);
    row(out, "parameters", p.name, "gradient_norm", p.gradient_norm);
  }
  for (std::size_t k = 0; k < s.steps.size(); ++k) {
    const std::string table = fmt::format("step {}", k + 1);
    for_each_step_value(s.steps[k], [&](const Value& v, Average, const auto& where, const char* what) {
      if (what != StepSignal::searched) row(out, table.c_str(), where, what, v);
    });
    for (const StepSignal::Rate& r : s.steps[k].rates) row(out, table.c_str(), fmt::format("rate {}", r.rate), "loss", r.loss);
  }
  return out;
}

std::string markdown_code(std::string_view untrusted) {
  std::string text;
  for (const char c : show(untrusted))
    text += c == '<' ? "\\u{3C}" : c == '>' ? "\\u{3E}" : c == '|' ? "\\u{7C}" : std::string(1, c);  // no tag, no cell
  std::size_t run = 0, longest = 0;
  for (const char c : text) run = c == '`' ? run + 1 : 0, longest = std::max(longest, run);
  const std::string fence(longest + 1, '`'), room = longest > 0 ? " " : "";
  return fence + room + text + room + fence;
}

namespace {

std::string finding_item(const Finding& f) {
  std::string out =
      fmt::format("* **{}** {} at {}: {}.", to_string(f.severity), markdown_text(f.id), markdown_code(f.where), markdown_text(f.evidence));
  for (const Remedy& r : f.remedies)
    out += fmt::format("\n  * {}: {}", markdown_code(r.command),
                       markdown_text(effect(f, r).substr(std::min(effect(f, r).size(), r.change.flags().size() + 2))));
  if (f.remedies.empty() && !f.remedy.empty()) out += fmt::format(" *{}*", markdown_text(f.remedy));
  return out + "\n";
}

// Long tables wait until they are asked for.
std::string folded(const std::string& table, const std::string& title, std::size_t rows) {
  constexpr std::size_t most = 14;
  return rows <= most ? table : fmt::format("<details><summary>{}</summary>\n\n{}\n</details>\n", title, table);
}

}  // namespace

std::string to_markdown(const Signal& s, const std::string& command, const std::string& version) {
  const Architecture& a = s.architecture;
  std::string out =
      fmt::format("## {}\n\n{} parameters, {} layers, width {}, scheme {}, {} {} {} x {}, {}\n\n", markdown_text(a.name),
                  with_commas(s.parameter_count), a.layers, a.width, markdown_text(s.scheme), a.image > 0 ? "images" : "tokens",
                  markdown_text(s.tokens), s.batch, s.seq_len, s.seeds == 0 ? std::string("predicted") : fmt::format("{} draws", s.seeds));
  if (s.trainable_count != s.parameter_count) out += adapters_text(s) + "\n\n";
  out += fmt::format("**{}**\n\n", verdict(s.findings));
  for (const Finding& f : s.findings) out += finding_item(f);
  out += fmt::format("{}loss {}, uniform guess {}; gradient norm {}\n", s.findings.empty() ? "" : "\n", number(best(s.loss)),
                     number(std::log(static_cast<double>(a.vocab))), number(best(s.gradient_norm)));
  for (const Stack& stack : stacks(s)) {
    out += "\n" + (stack.prefix.empty() ? "" : stack.prefix.substr(0, stack.prefix.size() - 1) + "\n\n") +
           folded(layer_rows(s, stack), fmt::format("{} layers", stack.depth()), stack.layers.size());
  }
  auto largest = s.parameters;
  std::erase_if(largest, [](const auto& p) { return p.frozen; });
  std::ranges::sort(largest, [](const ParameterSignal& x, const ParameterSignal& y) {
    const double a_norm = best(x.gradient_norm), b_norm = best(y.gradient_norm);
    return std::pair(std::isnan(a_norm) ? -INFINITY : -a_norm, x.name) < std::pair(std::isnan(b_norm) ? -INFINITY : -b_norm, y.name);
  });
  out += "\n| parameter | std | gradient norm |\n|---|---:|---:|\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(8, largest.size()); ++i)
    out += fmt::format("| {} | {} | {} |\n", markdown_text(largest[i].name), shown(best(largest[i].std)),
                       shown(best(largest[i].gradient_norm)));
  if (!command.empty()) out += fmt::format("\n{}, stepzero {}\n", markdown_code(command), version);
  return out;
}

}  // namespace stepzero
