#include "stepzero/schemes/scheme.hpp"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/schemes/rules.hpp"

namespace stepzero {

namespace {

Distribution gpt2(const Architecture& a, const Param& p) {
  const double branches = 2 * number_of(a.layers);
  return with_plain_vectors(p, Distribution::normal(writes_to_stream(p) ? a.init_std / std::sqrt(branches) : a.init_std));
}

Distribution hf(const Architecture& a, const Param& p) {
  return a.family == "gpt2" ? gpt2(a, p) : with_plain_vectors(p, Distribution::normal(a.init_std));
}

constexpr std::array library_schemes = std::to_array<Scheme>({
    {"hf", "what the Hugging Face class of the family does", "transformers 4.57, _init_weights", hf},
    {"gpt2", "N(0, s^2), outputs of both branches divided by sqrt(2 layers)", "Radford et al. 2019; transformers 4.57, GPT2PreTrainedModel",
     gpt2},
});

}  // namespace

std::span<const Scheme> schemes() {
  static const std::vector<Scheme> all = [] {
    std::vector<Scheme> list(library_schemes.begin(), library_schemes.end());
    for (const auto group : {fan_schemes(), depth_schemes(), residual_schemes(), width_schemes(), structure_schemes()})
      list.insert(list.end(), group.begin(), group.end());
    return list;
  }();
  return all;
}

Expected<const Scheme*> find_scheme(std::string_view name) {
  std::vector<std::string> known;
  for (const Scheme& scheme : schemes()) {
    if (scheme.name == name) return &scheme;
    known.emplace_back(scheme.name);
  }
  const std::string near = closest(name, known);
  return fail(fmt::format("unknown scheme \"{}\"{}", show(name), near.empty() ? "" : fmt::format("; did you mean {}?", near)),
              fmt::format("schemes are {}", fmt::join(known, ", ")));
}

}  // namespace stepzero
