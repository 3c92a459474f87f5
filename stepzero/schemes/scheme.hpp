#pragma once
// A scheme only assigns a distribution to a parameter, from its role, its fans and the architecture.
#include <span>
#include <string_view>

#include "stepzero/core/random.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

struct Scheme {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  Distribution (*assign)(const Architecture& a, const Param& p);
  bool zeroes_padding = false;  // the row of padding stays zero (Param::zero_row)
};

std::span<const Scheme> schemes();
Expected<const Scheme*> find_scheme(std::string_view name);

}  // namespace stepzero
