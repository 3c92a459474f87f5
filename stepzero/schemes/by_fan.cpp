// Schemes that look at the fans of a matrix and at nothing else.
#include <array>

#include "stepzero/schemes/rules.hpp"

namespace stepzero {

namespace {

// They speak of products only: a table of embeddings has no fan and keeps the model's own std.
Distribution by_fan(const Architecture& a, const Param& p, Distribution matrix) {
  return with_plain_vectors(p, is_embedding(p) ? Distribution::normal(a.init_std) : matrix);
}

Distribution xavier_normal(const Architecture& a, const Param& p) { return by_fan(a, p, Distribution::normal(xavier_std(p))); }
Distribution xavier_uniform(const Architecture& a, const Param& p) { return by_fan(a, p, Distribution::uniform(std::sqrt(6 / fans(p)))); }
Distribution he(const Architecture& a, const Param& p) { return by_fan(a, p, Distribution::normal(std::sqrt(2 / number_of(p.fan_in)))); }
Distribution lecun(const Architecture& a, const Param& p) { return by_fan(a, p, Distribution::normal(std::sqrt(1 / number_of(p.fan_in)))); }

constexpr std::array table = std::to_array<Scheme>({
    {"xavier-normal", "N(0, 2/(fan_in + fan_out))", "Glorot and Bengio 2010", xavier_normal},
    {"xavier-uniform", "U(+-sqrt(6/(fan_in + fan_out)))", "Glorot and Bengio 2010", xavier_uniform},
    {"he", "N(0, 2/fan_in)", "He et al. 2015", he},
    {"lecun", "N(0, 1/fan_in)", "LeCun et al. 1998", lecun},
});

}  // namespace

std::span<const Scheme> fan_schemes() { return table; }

}  // namespace stepzero
