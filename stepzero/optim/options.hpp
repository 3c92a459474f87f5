#pragma once
// How weights are updated, as it is asked for.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stepzero/core/error.hpp"

namespace stepzero {

// How large the update of a matrix (in -> out) is: max1 as Jordan has it, sqrt(max(1, out / in)); kimi as Liu et al. 2025, so that its
// numbers are as large as AdamW's, 0.2 sqrt(max(in, out)); spectral as Bernstein 2025, sqrt(out / in).
enum class MuonScale : std::uint8_t { max1, kimi, spectral };

struct OptimizerOptions {
  std::string name = "adamw";             // sgd, adamw, lion, muon
  std::optional<double> rate = {};        // default_rate() unless told
  std::optional<double> rate_adamw = {};  // muon: of the tensors that AdamW updates; 1e-3, or under kimi `rate`, unless told
  std::optional<double> momentum = {};    // sgd: 0, muon: 0.95, unless told
  bool nesterov = false;                  // sgd, muon
  std::optional<double> beta1 = {};       // adamw, lion: 0.9 unless told
  std::optional<double> beta2 = {};       // adamw: 0.999, lion: 0.99, unless told
  double eps = 1e-8;                      // adamw
  double decay = 0;                       // decoupled: each update takes rate * decay of a weight
  bool decay_matrices = false;            // of matrices alone
  double clip = 0;                        // the most the norm of the whole gradient may be; 0: any
  int newton_schulz = 0;                  // muon: steps; 0: the exact polar factor
  MuonScale muon_scale = MuonScale::max1;
};

// The rate of an optimizer that is not told one: the value its users begin with.
double default_rate(const OptimizerOptions& options);
std::vector<std::string> optimizer_names();
// With the defaults of its optimizer filled in; what no number can be is an error.
Expected<OptimizerOptions> settled(OptimizerOptions options);

// What clipping leaves of a gradient of this norm.
double clipped_share(double norm, double clip);

}  // namespace stepzero
