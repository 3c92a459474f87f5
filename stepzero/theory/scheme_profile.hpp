#pragma once
// What a scheme that learns is told: the model by theory, on 128 tokens of Zipf's law.
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

Expected<Profile> profile(const Architecture& a, const Scheme& scheme);

}  // namespace stepzero
