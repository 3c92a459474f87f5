#pragma once
// What walks ask of an op. Each op answers for itself; these find the answer, or the default where it has none (ops/op.hpp).
#include <optional>

#include "stepzero/graph/graph.hpp"

namespace stepzero {

[[nodiscard]] Remake remake_of(const AnyOp& op);
[[nodiscard]] std::optional<ChannelLaw> channel_law_of(const AnyOp& op);
[[nodiscard]] double draw_cost_of(const AnyOp& op, const Batch& batch, double variance);  // variance: of its input
[[nodiscard]] bool samples(const AnyOp& op);
[[nodiscard]] bool turns_heads(const AnyOp& op);
[[nodiscard]] bool has_summary(const AnyOp& op);
[[nodiscard]] bool is_row_wise(const AnyOp& op);
[[nodiscard]] bool is_matrix(const AnyOp& op);
[[nodiscard]] bool looks_up(const AnyOp& op);
[[nodiscard]] Index lazy_matrices_of(const AnyOp& op, Index tokens);
[[nodiscard]] Index matrices_by_norm_of(const AnyOp& op, Index rows);

// y = skip x + branch f, of an op that adds a branch to a stream.
struct SumScales {
  double skip = 1, branch = 1;
};
[[nodiscard]] std::optional<SumScales> sum_of(const AnyOp& op);

// Of an op that has one, from what its forward kept.
template <class S>
[[nodiscard]] std::optional<AttentionSummary> summary_of(const AnyOp& any, const Batch& batch, View<const S> keep) {
  return std::visit(
      [&](const auto& op) -> std::optional<AttentionSummary> {
        if constexpr (requires { op.summary(batch, keep); }) return op.summary(batch, keep);
        return {};
      },
      any);
}

}  // namespace stepzero
