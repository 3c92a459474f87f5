#pragma once
// The audit walk: what is wrong with these weights. From the file alone; with a configuration it also says what follows.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "stepzero/audit/checkpoint_match.hpp"
#include "stepzero/audit/distribution_fit.hpp"
#include "stepzero/audit/scheme_match.hpp"
#include "stepzero/audit/tensor_copies.hpp"
#include "stepzero/signal/finding.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

struct TensorVerdict {
  TensorCensus census;
  std::optional<std::size_t> param;  // of the model; none: not one that is known
  std::optional<Role> role;
  int layer = -1;
  std::vector<FoundLaw> laws;  // of each piece
  std::string formula;         // behind its std; empty: none
  std::string expected;        // what the scheme assigns; empty: nothing to compare with
  double expected_std = 0;
  bool departs = false;
  Fit fit;  // to what the scheme assigns
};

enum class Training : std::uint8_t { at_init, partly, trained, unknown };
const char* to_string(Training t);

struct OtherScheme {
  std::string name, reason;
};

// A tensor of another checkpoint beside this one's.
struct BaselineRow {
  std::string name;
  std::string difference;  // in words; empty: the same bits
  double correlation = 0;
  double std = 0, baseline_std = 0;
};

struct Audit {
  std::string path;
  std::uint64_t bytes = 0;
  Architecture architecture;
  bool known = false;  // the model comes from a configuration
  Training training = Training::unknown;
  std::string scheme;               // that it follows, but for the departures; empty: none
  std::string intended;             // that it was held against; empty: none
  bool asked = false;               // by the user
  std::vector<OtherScheme> others;  // that would say the same
  std::vector<TensorVerdict> tensors;
  std::vector<Finding> findings;
  std::optional<Signal> found_signal, intended_signal;
  std::vector<BaselineRow> baseline;
  std::vector<std::string> warnings;
  bool moments_only = false;
};

struct AuditOptions {
  std::optional<Architecture> model;  // resolved
  const Scheme* scheme = nullptr;     // to hold the weights against; null: find it
  const CheckpointFiles* baseline = nullptr;
  bool moments_only = false;
  bool consequences = true;  // predict what follows
  std::function<void(std::uint64_t bytes)> progress;
};

Expected<Audit> audit(const CheckpointFiles& files, const AuditOptions& options);

}  // namespace stepzero
