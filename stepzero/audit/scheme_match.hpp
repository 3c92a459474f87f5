#pragma once
// Which schemes a checkpoint follows: every scheme is asked what it assigns to every tensor, and each tensor whether that
// is what it holds.
#include <string>
#include <vector>

#include "stepzero/audit/checkpoint_match.hpp"
#include "stepzero/audit/distribution_fit.hpp"
#include "stepzero/audit/mistakes.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

struct Departure {
  std::size_t param = 0;
  Role role = Role::gain;  // of the part
  Distribution expected;
  Fit fit;
  const Mistake* mistake = nullptr;  // null: none that is known
  double found_std = 0;
};

struct SchemeMatch {
  const Scheme* scheme = nullptr;
  bool by_part = false;              // query, key and value one by one, though the scheme does not ask for it
  Architecture architecture;         // with what the scheme changes
  std::vector<std::string> changes;  // what it would change in the forward pass
  Assignment assignment;             // of the subject's parameters
  std::string refused;               // why it cannot be this scheme: other tensors
  std::vector<Departure> departures;
  std::size_t tested = 0;  // tensors
  double cost = 0;

  [[nodiscard]] bool follows() const { return refused.empty() && departures.empty() && tested > 0; }
  [[nodiscard]] std::string name() const;
};

// `census_of[i]`: of parameter i; null where there is none.
using CensusOf = std::vector<const TensorCensus*>;

SchemeMatch match_scheme(const Subject& subject, const CensusOf& census_of, const Scheme& scheme, bool by_part = false);

// All of them, best first.
std::vector<SchemeMatch> match_schemes(const Subject& subject, const CensusOf& census_of);

// The piece that a block of the assignment speaks of.
PieceCensus piece_of(const TensorCensus& census, const Param& param, const Assignment::Block& block, std::size_t blocks);

// Whether two matches say the same of every tensor, as far as numbers like these could tell.
bool same_laws(const Subject& subject, const SchemeMatch& a, const SchemeMatch& b);

// A name for tensors that differ in their numbers only: "h.*.attn.c_proj.weight".
std::string pattern_of(const std::string& name);

}  // namespace stepzero
