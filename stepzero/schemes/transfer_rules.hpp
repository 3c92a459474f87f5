#pragma once
// Parametrizations: by which factors the numbers of one tensor change from a base model to a target, told from the ratios of sizes
// alone. All rates, decays and epsilons are as stepzero's optimizers have them: an update takes rate * decay of a weight.
//
//   mup          Yang et al. 2022 (Tensor Programs V), width
//   depth-mup    Yang et al. 2023 (Tensor Programs VI): branches / sqrt(layers); with AdamW as table 1 of Dey et al. 2025 at alpha = 1/2
//   completep    Dey et al. 2025, table 1 at alpha = 1: branches / layers
//   spectral     as completep, for every optimizer whose update has a size of its own: the spectral norm of an update of a matrix
//                in -> out, times its multiplier, grows as sqrt(out / in)
//   u-mup        Blake et al. 2024: all weights N(0, 1), scales in the products
//   aligned      Everett et al. 2024: the standard parametrization with rates under full alignment
//   standard     nothing is carried: the scheme is asked again, rates stay
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/graph/param.hpp"

namespace stepzero {

enum class Parametrization : std::uint8_t { standard, aligned, mup, depth_mup, completep, spectral, u_mup };

// What decides the size of an update: adam and lion give every number the size of the rate (Sophia too), muon a matrix of singular
// values 1, kimi the same times 0.2 sqrt(max(in, out)); sso keeps weights and updates on a sphere of the spectral norm.
enum class UpdateRule : std::uint8_t { sgd, adam, lion, sophia, muon, kimi, shampoo, soap, sso };

// Which of its sides grow with the width: of an input (a table) and a vector (gain, bias) the out side, of a hidden matrix both, of an
// output the in side.
enum class TensorKind : std::uint8_t { input, hidden, output, vector };

std::string_view to_string(Parametrization p);
std::string_view to_string(UpdateRule r);
std::string_view to_string(TensorKind k);
Expected<Parametrization> parse_parametrization(std::string_view name);
std::vector<std::string> parametrization_names();

TensorKind kind_of_tensor(const Param& param);

// Target over base: of the tensor's own sides, of the model's width and of its layers.
struct Ratios {
  double in = 1, out = 1;
  double width = 1, depth = 1;
  bool in_block = false;   // a tensor of a residual branch
  double update_size = 1;  // of the factor that the optimizer itself puts on a matrix (Muon's scales)
};

struct Factors {
  double std = 1, rate = 1, decay = 1, eps = 1;
};

// A branch is multiplied by layers^-alpha; 0 where nothing is said of the depth.
double depth_exponent(Parametrization p);
// Whether rates are published, or follow from the spectral condition, for this optimizer.
Expected<void> check_rule(Parametrization p, UpdateRule rule);

Factors factors_of(Parametrization p, UpdateRule rule, TensorKind kind, const Ratios& r);

// Of scales of the forward pass, where the ratio of the heads' size is `head_dim`.
struct Multipliers {
  double scores = 1, branches = 1, logits = 1;
};
Multipliers multipliers_of(Parametrization p, double head_dim, double width, double depth);

}  // namespace stepzero
