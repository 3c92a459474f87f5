#pragma once
// The audit of a checkpoint that is open already, such as one in memory.
#include "stepzero/io/checkpoint_files.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero {

// `request` as for audit(); its path only says where a config.json may lie. Without `consequences` nothing is predicted.
Expected<AuditResult> audit_files(CheckpointFiles files, const AuditRequest& request, const Watch& watch = {}, bool consequences = true);

}  // namespace stepzero
