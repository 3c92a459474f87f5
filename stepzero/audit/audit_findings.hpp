#pragma once
// What an audit says in words. Internal to audit/audit.
#include "stepzero/audit/audit.hpp"

namespace stepzero {

// Numbers that are none, tensors without any, rows and columns without use.
void find_broken_numbers(const CheckpointFiles& files, const SchemeMatch* match, Audit& audit);

void find_structure(const Subject& subject, Audit& audit);

void find_similar_tensors(const SchemeMatch* match, const std::vector<Similar>& pairs, Audit& audit);

// Tensors that depart from the scheme, those of one kind and one mistake together. `only`: mistakes of these names.
void find_departures(const Subject& subject, const SchemeMatch& match, std::span<const std::string_view> only, Audit& audit);

}  // namespace stepzero
