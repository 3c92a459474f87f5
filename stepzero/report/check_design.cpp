#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/report/checks.hpp"

namespace stepzero {

namespace {

template <std::size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

constexpr std::array<std::string_view, 2> for_post_norm = {"deepnet", "admin"};
constexpr std::array<std::string_view, 3> for_no_norm = {"t-fixup", "fixup", "rezero"};
constexpr std::array<std::string_view, 7> divide_outputs = {
    "gpt2", "gpt2-openai", "megatron", "llama-depth", "torchtitan-llama", "small-init+wang", "olmo-mitchell"};

// Root of the mean square over the layers; NaN where no tensor has the role.
double std_of(const Signal& s, Role role) {
  double sum = 0, n = 0;
  for (const ParameterSignal& p : s.parameters) {
    if (p.role != role || p.layer < 0) continue;
    sum += best(p.std) * best(p.std);
    ++n;
  }
  return std::sqrt(sum / n);
}

bool scales_residuals(const Architecture& a) {
  return a.residual_scale != 1 || !a.residual_scales.empty() || a.skip_scale != 1 || !a.skip_scales.empty() ||
         a.branch_gain != BranchGain::none || a.norm_scale_by_layer || a.sub_norm || a.unit_linear;
}

}  // namespace

// Output projections drawn like the values' are not divided by depth, whatever the scheme is called.
void check_depth_scaling(const Signal& s, Findings& out) {
  const Architecture& a = s.architecture;
  const double fused = std_of(s, Role::query_key_value), value = std_of(s, Role::value);
  const double like = std::isnan(value) ? fused : value, output = std_of(s, Role::attention_out);
  const bool unscaled = a.layers >= 12 && a.norm_placement == NormPlacement::pre && !scales_residuals(a) && output > 0.5 * like;
  const auto list = stacks(s);
  if (list.empty() || !out.want(unscaled)) return;
  const Stack& stack = list.front();
  const double end = best(stack.layers.back().stream->forward.second_moment);
  out.push_back({"depth-unscaled",
                 a.layers >= 48 ? Severity::warning : Severity::note,
                 "model",
                 fmt::format("output projections have std {:.3g}, values {:.3g}: not divided by sqrt(2 layers) = {:.3g}, so that {} layers "
                             "take the stream's square from {:.2g} to {:.3g}",
                             output, like, std::sqrt(2 * static_cast<double>(a.layers)), a.layers,
                             best(stack.layers.front().stream->forward.second_moment), end),
                 "",
                 {"the stream's E[x^2] in the last layer", end, std::log(output / (0.5 * like))}});
}

// The product of gate and up is what the down projection reads: dividing up as well divides the branch twice.
void check_gated_scaling(const Signal& s, Findings& out) {
  if (!s.architecture.gated) return;
  const double up = std_of(s, Role::ffn_in), gate = std_of(s, Role::ffn_gate), down = std_of(s, Role::ffn_out);
  if (!(up < 0.7 * gate)) return;
  out.push_back(
      {"depth-scale-misplaced",
       Severity::warning,
       "model",
       fmt::format("up projections have std {:.3g}, gates {:.3g}, down projections {:.3g}: {}", up, gate, down,
                   down < 0.7 * gate ? "up and down are both divided by depth, so that what the feed-forward adds is divided twice"
                                     : "the division by depth is on the matrix that reads the stream, not on the one that writes it"),
       "divide the down projection (w2) and the attention's output only; gate and up (w1, w3) keep the full std",
       {}});
}

void check_scheme(const Signal& s, Findings& out) {
  const Architecture& a = s.architecture;
  if (s.scheme == "weights" || !a.stages.empty()) return;
  const std::string scheme = show(s.scheme);
  if (a.norm == NormKind::none && !among(for_no_norm, s.scheme)) {
    out.push_back({"scheme-misfit", Severity::warning, "model",
                   fmt::format("scheme {} counts on norms, the model has none: nothing keeps the size of what a branch reads", scheme),
                   ""});
  } else if (a.norm_placement == NormPlacement::post && a.layers >= 18 && !among(for_post_norm, s.scheme)) {
    out.push_back({"scheme-misfit", a.layers > 24 ? Severity::warning : Severity::note, "model",
                   fmt::format("{} layers with norms after the sum under scheme {}: every norm shrinks the skip, and beyond 18 layers "
                               "models so drawn were seen to diverge without long warm-up",
                               a.layers, scheme),
                   ""});
  } else if ((a.norm_placement == NormPlacement::branch || a.norm_placement == NormPlacement::sandwich) &&
             among(divide_outputs, s.scheme)) {
    out.push_back({"scheme-misfit", Severity::note, "model",
                   fmt::format("scheme {} divides the outputs of the branches by depth, and a norm after each branch undoes that", scheme),
                   "put the scale behind the norm: the norm's gain"});
  }
}

}  // namespace stepzero
