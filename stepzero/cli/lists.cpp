#include <fmt/format.h>

#include "stepzero/cli/command.hpp"
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
  for (const Scheme& scheme : schemes()) out += fmt::format("{:<16} {}\n{:<16} ({})\n", scheme.name, scheme.summary, "", scheme.source);
  return print(out);
}

}  // namespace

void declare_lists(CLI::App& app, int& exit_code) {
  app.add_subcommand("models", "the models known by name")->callback([&exit_code] { exit_code = list_models(); });
  app.add_subcommand("schemes", "the initialization schemes")->callback([&exit_code] { exit_code = list_schemes(); });
}

}  // namespace stepzero::cli
