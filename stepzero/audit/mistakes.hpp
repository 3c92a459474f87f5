#pragma once
// Known ways to get an initialization wrong. Each turns the law a scheme assigns into the one the mistake would give; a
// tensor that follows the latter is told by the mistake's name.
#include <span>
#include <string_view>
#include <vector>

#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

struct Mistake {
  std::string_view id;       // a name that stays
  std::string_view meaning;  // in words, after "as if"
  std::string_view remedy;
};

struct Suspicion {
  const Mistake* mistake;
  Distribution law;
};

struct Assigned {
  const Architecture& a;
  const Scheme& scheme;
  const Param& param;  // or the part of it
  const Param& whole;  // the tensor
  Distribution law;    // what the scheme assigns to the part
};

// What the mistakes would make of it, most likely first.
std::vector<Suspicion> suspicions(const Assigned& assigned);

const Mistake& find_mistake(std::string_view id);

}  // namespace stepzero
