#include <cmath>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/report/checks.hpp"

namespace stepzero {

namespace {

const ParameterSignal* find_role(const Signal& s, Role role) {
  for (const ParameterSignal& p : s.parameters) {
    if (p.role == role) return &p;
  }
  return nullptr;
}

}  // namespace

// Logits of variance v cost v/2 over a uniform guess. What is beyond that comes from a tied head, which raises the logit of
// the token that is read.
void check_loss(const Signal& s, Findings& out) {
  const double uniform = std::log(static_cast<double>(s.architecture.vocab)), excess = best(s.loss) - uniform;
  if (!out.want(std::abs(excess) > 0.5)) return;
  const double variance = s.nodes.empty() ? 0 : best(s.nodes.back().forward.variance);  // what the loss reads
  const bool raised = s.architecture.tied && std::abs(excess - variance / 2) > 0.5;
  std::string why = fmt::format("logits have variance {:.3g}, which costs {:.3g}", variance, variance / 2);
  if (raised) why += ", and the tied head raises the logit of the token it reads";
  out.push_back({"loss-at-start",
                 std::abs(excess) > 10  ? Severity::error
                 : std::abs(excess) > 2 ? Severity::warning
                                        : Severity::note,
                 "loss",
                 fmt::format("{:.4g} instead of ln {} = {:.4g}: {}; 0.5 is a logit variance of 1, beyond which the first steps only "
                             "shrink the head",
                             best(s.loss), s.architecture.vocab, uniform, why),
                 "",
                 {"loss", best(s.loss), std::log(std::max(std::abs(excess), 1e-300) / 0.5)}});
}

void check_embedding_and_head(const Signal& s, Findings& out) {
  const ParameterSignal* table = find_role(s, Role::token_embedding);
  if (s.nodes.empty() || table == nullptr) return;
  if (s.architecture.tied) {
    const double variance = best(s.nodes.back().forward.second_moment);
    if (!out.want(variance > 16)) return;
    out.push_back({"embedding-head-balance",
                   Severity::warning,
                   table->name,
                   fmt::format("one table of std {:.3g} is both: as a head it gives logits of std {:.3g}, 1 is meant and 4 the limit",
                               best(table->std), std::sqrt(variance)),
                   "",
                   {"std of logits", std::sqrt(variance), std::log(variance / 16) / 2}});
    return;
  }
  const ParameterSignal* head = find_role(s, Role::head);
  if (head == nullptr || table->frozen || head->frozen) return;
  const double ratio = best(table->gradient_norm) / best(head->gradient_norm);
  if (!out.want(ratio > 30 || ratio < 1.0 / 30)) return;
  const bool more = ratio > 1;
  out.push_back(
      {"embedding-head-balance",
       ratio > 300 || ratio < 1.0 / 300 ? Severity::warning : Severity::note,
       more ? table->name : head->name,
       fmt::format("the gradient of the token table is {:.3g}, that of the head {:.3g}: {:.3g} times; beyond 30 times one learning "
                   "rate does not fit both",
                   best(table->gradient_norm), best(head->gradient_norm), more ? ratio : 1 / ratio),
       "",
       {"gradient of the token table over that of the head", ratio, std::abs(std::log(ratio)) - std::log(30)}});
}

void check_one_tensor(const Signal& s, Findings& out) {
  double total = 0;
  const ParameterSignal* largest = nullptr;
  std::size_t moving = 0;
  for (const ParameterSignal& p : s.parameters) {
    if (p.frozen || best(p.gradient_norm) == 0) continue;
    ++moving;
    total += best(p.gradient_norm) * best(p.gradient_norm);
    if (largest == nullptr || best(p.gradient_norm) > best(largest->gradient_norm)) largest = &p;
  }
  if (moving < 4 || !(total > 0)) return;
  const double share = best(largest->gradient_norm) * best(largest->gradient_norm) / total;
  if (!out.want(share > 0.5)) return;
  out.push_back(
      {"gradient-dominated",
       Severity::warning,
       largest->name,
       fmt::format("its gradient, {:.3g}, is {:.0f} % of the square of the whole, {:.3g}; above half, clipping by the global norm "
                   "is clipping by this tensor",
                   best(largest->gradient_norm), 100 * share, std::sqrt(total)),
       "clip or scale this tensor by itself",
       {"its share of the squared gradient", share, std::log(share / 0.5)}});
}

}  // namespace stepzero
