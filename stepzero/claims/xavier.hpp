#pragma once
// What xavier-normal and xavier-uniform share: a matrix as the scheme draws it.
#include "stepzero/claims/claim.hpp"

namespace stepzero::claims {

struct Drawn {
  Running variance, kurtosis, largest;  // in units of 2/(fan_in + fan_out); largest of sqrt(6/(fan_in + fan_out))
};

// The first feed-forward matrix of a model, as the scheme draws it.
Drawn drawn(const Settings& s, const char* scheme, double numerator);

}  // namespace stepzero::claims
