#include "stepzero/theory/coherence.hpp"

#include <algorithm>
#include <cmath>

namespace stepzero {

Expansions::Expansion Expansions::fresh(const Kernel& K) {
  sources_.push_back(K);
  return {{sources_.size() - 1, {std::vector<double>(static_cast<std::size_t>(K.tokens()), 1.0)}}};
}

Expansions::Expansion Expansions::times(const Expansion& x, const PassesOn& how, const Kernel& before, const Kernel& after) {
  Expansion y = x;
  for (auto& [source, part] : y) {
    std::vector<double>& numbers = part.numbers;
    for (std::size_t t = 0; t < numbers.size(); ++t) {
      const auto at = static_cast<Index>(t);
      const double size = before(at, at) > 0 ? after(at, at) / before(at, at) : 0;
      numbers[t] *= how.by_token ? std::sqrt(std::max(size, 0.0)) : how.times;  // (1)
    }
  }
  return y;
}

void Expansions::add(std::size_t wire, const Expansion& x) {
  for (const auto& [source, part] : x) {
    const auto [it, fresh] = of_[wire].emplace(source, part);
    if (fresh) continue;
    for (std::size_t t = 0; t < part.numbers.size(); ++t) it->second.numbers[t] += part.numbers[t];
  }
}

void Expansions::complete(std::size_t wire, const Kernel& K) {
  const Kernel held = cross(of_[wire], of_[wire]);
  if (held.empty()) return add(wire, fresh(K));
  const Kernel rest = Kernel::from(K.tokens(), [&](Index t, Index s) { return K(t, s) - held(t, s) / 2; });
  if (rest.trace() > 1e-9 * K.trace()) add(wire, fresh(rest));
}

Kernel Expansions::cross(const Expansion& x, const Expansion& y) const {
  struct Shared {
    const Kernel* U;
    const std::vector<double>*of_x, *of_y;
  };
  std::vector<Shared> shared;
  for (const auto& [source, part] : x) {
    const auto it = y.find(source);
    if (it != y.end()) shared.push_back({&sources_[source], &part.numbers, &it->second.numbers});
  }
  if (shared.empty()) return {};
  return Kernel::from(shared.front().U->tokens(), [&](Index t, Index s) {
    double sum = 0;
    for (const Shared& i : shared) {
      const auto a = static_cast<std::size_t>(t), b = static_cast<std::size_t>(s);
      sum += ((*i.of_x)[a] * (*i.of_y)[b] + (*i.of_y)[a] * (*i.of_x)[b]) * (*i.U)(t, s);  // (2)
    }
    return sum;
  });
}

}  // namespace stepzero
