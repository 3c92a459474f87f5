#include "stepzero/ops/move/rules.hpp"

#include "stepzero/ops/move/heads.hpp"
#include "stepzero/ops/move/linear.hpp"
#include "stepzero/ops/move/lora.hpp"
#include "stepzero/ops/move/norm.hpp"
#include "stepzero/ops/move/pointwise.hpp"
#include "stepzero/ops/move/sums.hpp"
#include "stepzero/ops/move/tables.hpp"

namespace stepzero {

namespace {

template <class Op>
std::string why_not(const Op&) {
  constexpr bool alone = requires(const Op& op, const MoveDoor& door) { move(op, door); };
  return alone || std::is_same_v<Op, CrossEntropy> ? "" : Op::kind;
}

template <bool centred>
std::string why_not(const Norm<centred>& op) {
  return op.groups == 1 ? "" : "a gain of its own for each head";  // those of heads alike go with their attention
}

std::string why_not(const Attention& op) { return op.sinks && op.buckets > 0 ? "sinks beside learned biases of scores" : ""; }

std::string why_not(const Experts& op) {
  return op.most > 0 || op.offset != 0 ? "experts with clamped gates"
         : op.scales_input             ? "experts whose inputs are scaled by their gates"
                                       : "";
}

std::string why_not(const Dropout& op) { return op.p == 0 ? "" : "dropout that drops"; }

}  // namespace

std::string not_moved(const AnyOp& any) {
  if (pointwise(any, 1) || for_heads(any, 1)) return "";
  return std::visit([](const auto& op) -> std::string { return why_not(op); }, any);
}

Mover move_alone(const AnyOp& any, const MoveDoor& door) {
  return std::visit(
      [&](const auto& op) -> Mover {
        if constexpr (requires { move(op, door); }) return move(op, door);
        return {};
      },
      any);
}

}  // namespace stepzero
