#include "stepzero/schemes/scheme.hpp"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/schemes/rules.hpp"
#include "stepzero/schemes/scheme_file.hpp"

namespace stepzero {

namespace {

Distribution gpt2(const Architecture& a, const Param& p) {
  const double branches = 2 * number_of(a.layers);
  return with_plain_vectors(p, Distribution::normal(writes_to_stream(p) ? a.init_std / std::sqrt(branches) : a.init_std));
}

// Every product of T5 has unit gain by itself, and queries bring the scale that its attention leaves out; init_std is
// the factor on all of it.
Distribution t5(const Architecture& a, const Param& p) {
  const auto over_root = [&](Index n) { return Distribution::normal(a.init_std / std::sqrt(static_cast<double>(n))); };
  if (p.role == Role::gain) return Distribution::constant(a.init_std);
  if (p.role == Role::query) return over_root(a.width * a.head_dim);
  if (p.role == Role::position_embedding) return over_root(a.width);
  if (p.role == Role::token_embedding || p.role == Role::head) return Distribution::normal(a.init_std);
  return over_root(p.fan_in);
}

// GPT-2's division by sqrt(2 layers) is as in version 4; 5.0 to 5.14 lost it. All other families have one standard
// deviation whatever the width and depth; in both versions.
Distribution hf(const Architecture& a, const Param& p) {
  if (a.family == "gpt2") return gpt2(a, p);
  if (a.family == "t5") return t5(a, p);
  if (a.family == "cnn") return torch_default(a, p);  // no class there: torch's own modules
  return with_plain_vectors(p, Distribution::normal(a.init_std));
}

constexpr std::array library_schemes = std::to_array<Scheme>({
    {"hf", "what the Hugging Face class of the family does", "transformers 4.57, _init_weights", hf, nullptr, false, nullptr, true},
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

namespace {

// "kaiming" -> "he", "xavier" -> "xavier-normal"
std::string by_another_name(std::string_view name, std::span<const std::string> known) {
  constexpr auto others = std::to_array<std::pair<std::string_view, std::string_view>>(
      {{"kaiming", "he"}, {"glorot", "xavier-normal"}, {"pytorch", "torch-default"}, {"huggingface", "hf"}, {"nanogpt", "megatron"}});
  for (const auto& [other, ours] : others) {
    if (name.starts_with(other)) return std::string(ours);
  }
  const auto part = std::ranges::find_if(known, [&](const std::string& k) { return name.size() > 2 && k.find(name) != std::string::npos; });
  return part == known.end() ? "" : *part;
}

}  // namespace

Expected<const Scheme*> find_scheme(std::string_view name) {
  if (name.ends_with(".json")) return read_scheme(std::string(name));
  std::vector<std::string> known;
  for (const Scheme& scheme : schemes()) {
    if (scheme.name == name) return &scheme;
    known.emplace_back(scheme.name);
  }
  std::string near = closest(name, known);
  if (near.empty()) near = by_another_name(name, known);
  return fail(fmt::format("unknown scheme \"{}\"{}", show(name), near.empty() ? "" : fmt::format("; did you mean {}?", near)),
              fmt::format("schemes are {}", fmt::join(known, ", ")));
}

}  // namespace stepzero
