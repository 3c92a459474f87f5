#pragma once
// Whether numbers follow a distribution, and which one they follow when nobody says.
//
// A law is refused when its mean or std is off by more than 6.5 standard errors, its distribution function by more than
// lambda = sqrt(n) sup|F_n - F| = 3.4 (Kolmogorov: once in 5e9), or a number lies where it cannot: each far below once in
// a million checkpoints.
#include <string>

#include "stepzero/audit/census.hpp"
#include "stepzero/core/random.hpp"
#include "stepzero/io/encoding.hpp"

namespace stepzero {

constexpr double kTooManyErrors = 6.5;
constexpr double kTooFar = 3.4;

struct Fit {
  bool fits = false;
  double z = 0;       // the larger of those of mean and std, with the sign of the latter
  double lambda = 0;  // sqrt(n) sup|F_n - F|
  double p = 1;       // of the worst of them
  bool impossible = false;
  bool of_mean = false;  // the mean is further off than the std
};

// `stored` says how far a number may be off by its type alone.
Fit fit(const Distribution& d, const PieceCensus& piece, const Encoding& stored);

// The law that numbers seem to follow, its scale taken from them.
struct FoundLaw {
  enum class Kind : std::uint8_t { unknown, constant, normal, uniform, truncated, orthogonal, identity_like };
  Kind kind = Kind::unknown;
  double scale = 0;  // std; of a uniform law its half-width, of a truncated one its parent's std
  double cut = 0;    // truncated: in parent standard deviations
  double p = 0;
};
std::string to_string(const FoundLaw& law);

FoundLaw find_law(const PieceCensus& piece, const Encoding& stored);

}  // namespace stepzero
