#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stepzero/api/describe.hpp"
#include "stepzero/cli/command.hpp"

namespace stepzero::cli {

namespace {

struct DescribeFlags {
  std::string model, like;
  std::vector<std::string> set;
  bool json = false;
};

int run(const DescribeFlags& flags) {
  const auto a = find_architecture(flags.model, flags.set, flags.like);
  if (!a) return complain(a.error());
  tell_notices(*a);
  if (flags.json) return print(describe_as_graph(*a).dump() + "\n");
  const auto text = describe_as_file(*a);
  return text ? print(*text) : complain(text.error());
}

}  // namespace

void declare_describe(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<DescribeFlags>();
  auto* verb = app.add_subcommand("describe", "the model as a file to read, to edit and to give back as MODEL");
  verb->add_option("MODEL", flags->model, "a preset, a config.json, an architecture file, a graph, or a directory")->required();
  verb->add_option("--like", flags->like, "read the config.json as one of this family, whatever model_type it names");
  verb->add_option("--set", flags->set, "override a field of the architecture: key=value, repeatable")->allow_extra_args(false);
  verb->add_flag("--json", flags->json, "the canonical graph, stepzero.graph/1: every tensor and every node with all of its fields");
  verb->footer("Examples:\n  stepzero describe llama-3-8b > my_model.py\n  stepzero describe gpt2 --json\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
