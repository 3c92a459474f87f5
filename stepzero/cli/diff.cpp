#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/audit/difference.hpp"
#include "stepzero/cli/command.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/models/build.hpp"

namespace stepzero::cli {

namespace {

struct DiffFlags {
  std::string left, right;
  std::string scheme;
  std::vector<std::string> set;
  std::uint64_t seed = 0;
  bool seed_given = false;
  bool full = false;
};

using Kind = TensorDifference::Kind;

std::string describe(const TensorDifference& d) {
  const auto shape = [](const std::vector<std::uint64_t>& s) { return fmt::format("[{}]", fmt::join(s, ", ")); };
  switch (d.kind) {
    case Kind::only_left:
      return fmt::format("only on the left: {} {}", d.left_dtype, shape(d.left_shape));
    case Kind::only_right:
      return fmt::format("only on the right: {}", shape(d.right_shape));
    case Kind::shape:
      return fmt::format("shape {} and {}", shape(d.left_shape), shape(d.right_shape));
    case Kind::same_bits:
      return "same bits";
    case Kind::same_law:
      return fmt::format("other numbers of the same law: {} of {} differ, by {:.3g} at most; std {:.4g} and {:.4g}", d.different,
                         d.elements, d.largest, d.left.std, d.right.std);
    case Kind::other_law:
      return fmt::format(
          "another law: mean {:.4g} and {:.4g}, std {:.4g} and {:.4g}, {:.1f} standard errors apart; {} of {} numbers differ", d.left.mean,
          d.right.mean, d.left.std, d.right.std, d.z, d.different, d.elements);
  }
  return "?";
}

bool other_dtype(const TensorDifference& d) {
  const bool both = d.kind != Kind::only_left && d.kind != Kind::only_right;
  return both && !d.right_dtype.empty() && d.left_dtype != d.right_dtype;
}

int tell(const std::vector<TensorDifference>& list, bool full) {
  std::string out;
  std::size_t same = 0;
  for (const TensorDifference& d : list) {
    const bool equal = d.kind == Kind::same_bits && !other_dtype(d);
    same += equal ? 1 : 0;
    if (equal && !full) continue;
    out +=
        fmt::format("{}  {}{}\n", show(d.name), other_dtype(d) ? fmt::format("{} and {}; ", d.left_dtype, d.right_dtype) : "", describe(d));
  }
  out += fmt::format("{} tensors: {} the same, {} not\n", list.size(), same, list.size() - same);
  if (const int code = print(out); code != Exit::fine) return code;
  return same == list.size() ? Exit::fine : Exit::findings;
}

int run(const DiffFlags& flags) {
  const auto left = CheckpointFiles::open(flags.left);
  if (!left) return complain(left.error());
  if (is_checkpoint(flags.right)) {
    const auto right = CheckpointFiles::open(flags.right);
    if (!right) return complain(right.error());
    const auto list = difference(*left, *right);
    return list ? tell(*list, flags.full) : complain(list.error());
  }
  // What `stepzero init` wrote into the file about itself.
  const std::string name = flags.scheme.empty() ? left->note("stepzero.scheme") : flags.scheme;
  const auto scheme = find_scheme(name.empty() ? "hf" : name);
  if (!scheme) return complain(scheme.error());
  std::uint64_t seed = flags.seed;
  if (const std::string text = left->note("stepzero.seed");
      !flags.seed_given && !text.empty() && text.size() < 20 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; })) {
    seed = std::stoull(text);
  }
  const auto a = describe_model(flags.right, flags.set, **scheme);
  if (!a) return complain(a.error());
  const Graph graph = build_graph(*a);
  const Assignment assignment(graph, *a, **scheme);
  const auto list = difference(*left, Drawn{graph, assignment, seed});
  return list ? tell(*list, flags.full) : complain(list.error());
}

}  // namespace

void declare_diff(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("diff", "which tensors of two checkpoints, or of a checkpoint and a scheme, differ, and in what");
  auto flags = std::make_shared<DiffFlags>();
  verb->add_option("A", flags->left, "a file *.safetensors, or a directory of a checkpoint")->required();
  verb->add_option("B", flags->right, "another one, or a MODEL: what stepzero init would write for it")->required();
  verb->add_option("--scheme", flags->scheme, "of the model B [what A says of itself, or hf]");
  auto* seed = verb->add_option("--seed", flags->seed, "of the model B [what A says of itself, or 0]")->check(check_seed);
  verb->add_option("--set", flags->set, "override a field of the model B: key=value, repeatable")->allow_extra_args(false);
  verb->add_flag("--full", flags->full, "tensors that are the same, too");
  verb->footer(
      "Exit code 1 when anything differs.\n\nExamples:\n  stepzero diff step0.safetensors step1.safetensors\n"
      "  stepzero diff model.safetensors gpt2 --scheme gpt2   (was it drawn as the paper says?)\n");
  verb->callback([flags, seed, &exit_code] {
    flags->seed_given = seed->count() > 0;
    exit_code = run(*flags);
  });
}

}  // namespace stepzero::cli
