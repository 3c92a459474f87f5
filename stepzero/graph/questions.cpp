#include "stepzero/graph/questions.hpp"

namespace stepzero {

Remake remake_of(const AnyOp& any) {
  return std::visit(
      [&]<class T>(const T& op) -> Remake {
        if constexpr (requires { T::remake; }) return op.remake;
        return Remake::if_long;
      },
      any);
}

std::optional<ChannelLaw> channel_law_of(const AnyOp& any) {
  return std::visit([](const auto& op) { return op.channel_law(); }, any);
}

double draw_cost_of(const AnyOp& any, const Batch& batch, double variance) {
  return std::visit(
      [&]<class T>(const T& op) -> double {
        if constexpr (requires { op.draw_cost(batch, variance); }) return op.draw_cost(batch, variance);
        return 0;
      },
      any);
}

bool samples(const AnyOp& any) {
  return std::visit(
      [&]<class T>(const T& op) -> bool {
        if constexpr (requires { T::samples; }) return op.samples;
        return false;
      },
      any);
}

bool turns_heads(const AnyOp& any) {
  return std::visit(
      [&]<class T>(const T& op) -> bool {
        if constexpr (requires { T::turns_heads; }) return op.turns_heads;
        return false;
      },
      any);
}

bool has_summary(const AnyOp& any) {
  return std::visit(
      [&]<class T>(const T& op) -> bool {
        if constexpr (requires { op.summary(std::declval<const Batch&>(), View<const float>()); }) return true;
        return false;
      },
      any);
}

bool is_row_wise(const AnyOp& any) {
  return std::visit(
      [&]<class T>(const T& op) -> bool {
        if constexpr (requires { T::row_wise; }) return op.row_wise;
        return false;
      },
      any);
}

bool is_matrix(const AnyOp& any) {
  return std::visit(
      [&]<class T>(const T& op) -> bool {
        if constexpr (requires { T::is_matrix; }) return op.is_matrix;
        return false;
      },
      any);
}

bool looks_up(const AnyOp& any) {
  return std::visit(
      [&]<class T>(const T& op) -> bool {
        if constexpr (requires { T::looks_up; }) return op.looks_up;
        return false;
      },
      any);
}

Index lazy_matrices_of(const AnyOp& any, Index tokens) {
  return std::visit(
      [&]<class T>(const T& op) -> Index {
        if constexpr (requires { op.lazy_matrices(tokens); }) return op.lazy_matrices(tokens);
        return 0;
      },
      any);
}

Index matrices_by_norm_of(const AnyOp& any, Index rows) {
  return std::visit(
      [&]<class T>(const T& op) -> Index {
        if constexpr (requires { op.matrices_by_norm(rows); }) return op.matrices_by_norm(rows);
        return 0;
      },
      any);
}

std::optional<SumScales> sum_of(const AnyOp& any) {
  const auto* sum = std::get_if<Residual>(&any);
  if (sum == nullptr) return {};
  return SumScales{sum->skip_scale, sum->branch_scale};
}

}  // namespace stepzero
