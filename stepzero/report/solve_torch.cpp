#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "stepzero/report/solve.hpp"
#include "stepzero/schemes/scheme_file.hpp"

namespace stepzero {

namespace {

std::string quoted(const std::string& s) { return nlohmann::json(s).dump(); }

std::string block(const Part* part, const Distribution& law) {
  const std::string name = law_name(law), numbers = fmt::format("\"{}\", {}, {}", name, law.mean, law.std());
  if (part == nullptr) return fmt::format("(None, {}), ", numbers);
  return fmt::format("((({}, {}), ({}, {})), {}), ", part->row0, part->row0 + part->rows, part->col0, part->col0 + part->cols, numbers);
}

}  // namespace

std::string solve_torch(const SolveSubject& s, const std::string& command) {
  std::string out = fmt::format("# {}\n# Forward pass: {}\n# Tensors that are not here stay as scheme {} has them.\n", command,
                                s.file.set.empty() ? "as it is" : fmt::format("{}", fmt::join(s.file.set, ", ")), s.file.otherwise->name);
  out += "# name of the parameter: ((block, law, mean, std), ...); a block is ((rows), (columns)), None: all\nTENSORS = {\n";
  std::vector<std::string> order;
  std::map<std::string, std::string> blocks;
  for (const LawRow& r : s.file.laws) {
    if (blocks.try_emplace(r.tensor).second) order.push_back(r.tensor);
    if (!r.part) blocks[r.tensor] += block(nullptr, r.law);
    for (const Part& part : s.parts_of(r.tensor)) {
      if (r.part && part.role == *r.part) blocks[r.tensor] += block(&part, r.law);
    }
  }
  for (const std::string& name : order) out += fmt::format("    {}: ({}),\n", quoted(name), blocks[name]);
  out += R"(}


def initialize(model):
    """Numbers of each law, in place: normal, truncated (here at two parent stds), uniform, orthogonal, constant."""
    import torch

    for name, parameter in model.named_parameters():
        for where, law, mean, std in TENSORS.get(name, ()):
            block = parameter.data
            if where is not None:
                (top, bottom), (first, last) = where
                block = block.view(block.shape[0], -1)[top:bottom, first:last]
            if law == "uniform":
                block.uniform_(mean - std * 3**0.5, mean + std * 3**0.5)
            elif law == "constant":
                block.fill_(mean)
            elif law == "truncated":
                torch.nn.init.trunc_normal_(block, mean, std / 0.8796, mean - 2 * std / 0.8796, mean + 2 * std / 0.8796)
            elif law == "orthogonal":
                torch.nn.init.orthogonal_(block, std * max(block.shape) ** 0.5)
            else:
                block.normal_(mean, std)
)";
  return out;
}

}  // namespace stepzero
