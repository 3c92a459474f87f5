#include "stepzero/schemes/scheme.hpp"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

// What nearly every scheme shares: gains that change nothing, biases 0. Anything else is `matrix`.
Distribution with_plain_vectors(const Param& p, Distribution matrix) {
  if (p.role == Role::gain) return Distribution::constant(p.neutral);
  if (p.role == Role::bias) return Distribution::constant(0);
  return matrix;
}

bool writes_to_stream(const Param& p) { return p.role == Role::attention_out || p.role == Role::ffn_out; }
bool is_embedding(const Param& p) { return p.role == Role::token_embedding || p.role == Role::position_embedding; }

Distribution gpt2(const Architecture& a, const Param& p) {
  const double branches = 2 * static_cast<double>(a.layers);
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
  return with_plain_vectors(p, Distribution::normal(a.init_std));
}

double fans(const Param& p) { return static_cast<double>(p.fan_in + p.fan_out); }

// The fan schemes speak of products only: a table of embeddings has no fan and keeps the model's own std.
Distribution by_fan(const Architecture& a, const Param& p, Distribution matrix) {
  return with_plain_vectors(p, is_embedding(p) ? Distribution::normal(a.init_std) : matrix);
}

Distribution xavier_normal(const Architecture& a, const Param& p) { return by_fan(a, p, Distribution::normal(std::sqrt(2 / fans(p)))); }
Distribution xavier_uniform(const Architecture& a, const Param& p) { return by_fan(a, p, Distribution::uniform(std::sqrt(6 / fans(p)))); }
Distribution he(const Architecture& a, const Param& p) {
  return by_fan(a, p, Distribution::normal(std::sqrt(2 / static_cast<double>(p.fan_in))));
}
Distribution lecun(const Architecture& a, const Param& p) {
  return by_fan(a, p, Distribution::normal(std::sqrt(1 / static_cast<double>(p.fan_in))));
}

constexpr std::array scheme_table = std::to_array<Scheme>({
    {"hf", "what the Hugging Face class of the family does", "transformers 4.57, _init_weights", hf, true},
    {"gpt2", "N(0, s^2), outputs of both branches divided by sqrt(2 layers)", "Radford et al. 2019; transformers 4.57, GPT2PreTrainedModel",
     gpt2},
    {"xavier-normal", "N(0, 2/(fan_in + fan_out))", "Glorot and Bengio 2010", xavier_normal},
    {"xavier-uniform", "U(+-sqrt(6/(fan_in + fan_out)))", "Glorot and Bengio 2010", xavier_uniform},
    {"he", "N(0, 2/fan_in)", "He et al. 2015", he},
    {"lecun", "N(0, 1/fan_in)", "LeCun et al. 1998", lecun},
});

}  // namespace

std::span<const Scheme> schemes() { return scheme_table; }

Expected<const Scheme*> find_scheme(std::string_view name) {
  std::vector<std::string> known;
  for (const Scheme& scheme : scheme_table) {
    if (scheme.name == name) return &scheme;
    known.emplace_back(scheme.name);
  }
  const std::string near = closest(name, known);
  return fail(fmt::format("unknown scheme \"{}\"{}", show(name), near.empty() ? "" : fmt::format("; did you mean {}?", near)),
              fmt::format("schemes are {}", fmt::join(known, ", ")));
}

}  // namespace stepzero
