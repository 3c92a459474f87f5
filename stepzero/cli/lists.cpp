#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/cli/command.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/graph/role_names.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/report/terminal.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero::cli {

namespace {

int list_models() {
  std::string out =
      fmt::format("{:<16} {:>16} {:>7} {:>6} {:>6} {:>7}  {}\n", "model", "parameters", "layers", "width", "heads", "vocab", "family");
  for (const Preset& preset : presets()) {
    auto a = load_model(std::string(preset.name));
    if (!a) return complain(a.error());
    if (auto done = resolve(*a); !done) return complain(done.error());
    out += fmt::format("{:<16} {:>16} {:>7} {:>6} {:>6} {:>7}  {}\n", a->name, with_commas(build_graph(*a).parameter_count()), a->layers,
                       a->width, a->heads, a->vocab, a->family);
  }
  return print(out);
}

int list_schemes() {
  std::string out;
  for (const Scheme& scheme : schemes()) out += fmt::format("{:<20} {}\n{:<20} ({})\n", scheme.name, scheme.summary, "", scheme.source);
  return print(out + "\nstepzero schemes NAME [MODEL] shows what a scheme makes of a model.\n");
}

std::string law_of(const Distribution& d) {
  using S = Distribution::Structure;
  if (d.structure == S::orthogonal) return "orthogonal";
  if (d.structure == S::diagonal) return fmt::format("{:.4g} I + noise", d.diagonal);
  if (d.structure == S::mimetic) return "mimetic pair";
  switch (d.kind) {
    case Distribution::Kind::constant:
      return fmt::format("{:.6g}", d.mean);
    case Distribution::Kind::normal:
      return "normal";
    case Distribution::Kind::uniform:
      return fmt::format("uniform, +-{:.4g}", d.scale);
    case Distribution::Kind::truncated_normal:
      return fmt::format("normal, cut at {:.4g} of {:.4g}", d.cut, d.scale);
  }
  return "?";
}

// A row for each kind of tensor; where layers differ, the first and the last.
struct KindRow {
  std::string kind, shape;
  std::vector<Distribution> laws;
};

int explain_scheme(const std::string& name, const std::string& model, const std::vector<std::string>& set) {
  const auto scheme = find_scheme(name);
  if (!scheme) return complain(scheme.error());
  const auto a = describe_model(model, set, **scheme);
  if (!a) return complain(a.error());
  const Graph graph = build_graph(*a);
  const Assignment assignment(graph, *a, **scheme);
  std::vector<KindRow> rows;
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    for (const Assignment::Block& b : assignment.blocks(i)) {
      const std::string shape = b.rows == 1 ? fmt::format("{}", b.cols) : fmt::format("{} x {}", b.rows, b.cols);
      auto row = std::ranges::find_if(rows, [&](const KindRow& r) { return r.kind == words(b.role) && r.shape == shape; });
      if (row == rows.end()) row = rows.insert(rows.end(), {words(b.role), shape, {}});
      row->laws.push_back(b.distribution);
    }
  }
  std::string out = fmt::format("{}  {}\n{}\n\n", (*scheme)->name, (*scheme)->summary, (*scheme)->source);
  out += fmt::format("for {}, {} layers, width {}\n", show(a->name), a->layers, a->width);
  if (!a->changes.empty()) out += fmt::format("it sets {}\n", fmt::join(a->changes, ", "));
  out += fmt::format("\n{:<26} {:<16} {:>10}   {}\n", "tensors", "shape", "std", "law");
  for (const KindRow& r : rows) {
    const auto line = [&](const Distribution& d, const char* which) {
      out += fmt::format("{:<26} {:<16} {:>10.4g}   {}{}\n", r.kind, r.shape, d.std(), law_of(d), which);
    };
    const bool same = r.laws.front() == r.laws.back();
    line(r.laws.front(), same ? "" : ", first");
    if (!same) line(r.laws.back(), ", last");
  }
  return print(out);
}

}  // namespace

void declare_lists(CLI::App& app, int& exit_code) {
  auto* models = app.add_subcommand("models", "the models known by name");
  models->footer("Examples:\n  stepzero models\n  stepzero models | grep llama\n");
  models->callback([&exit_code] { exit_code = list_models(); });
  struct Flags {
    std::string name, model = "gpt2";
    std::vector<std::string> set;
  };
  auto flags = std::make_shared<Flags>();
  auto* verb = app.add_subcommand("schemes", "the initialization schemes, or what one makes of a model");
  verb->add_option("NAME", flags->name, "a scheme, as in the list");
  verb->add_option("MODEL", flags->model, "a preset, a config.json, or a directory that holds one")->capture_default_str();
  verb->add_option("--set", flags->set, "override a field of the architecture: key=value, repeatable")->allow_extra_args(false);
  verb->footer("Examples:\n  stepzero schemes\n  stepzero schemes deepnet llama-3-8b\n");
  verb->callback(
      [flags, &exit_code] { exit_code = flags->name.empty() ? list_schemes() : explain_scheme(flags->name, flags->model, flags->set); });
}

}  // namespace stepzero::cli
