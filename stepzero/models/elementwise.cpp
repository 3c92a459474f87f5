#include "stepzero/models/elementwise.hpp"

namespace stepzero {

namespace {

// The one of a list of ops that is this function.
template <class... Ops>
std::variant<Ops...> find(Activation f, Index width, const std::variant<Ops...>*) {
  std::variant<Ops...> op;
  const auto try_one = [&]<class E>(const E*) {
    if constexpr (requires { typename E::phi; }) {
      if (to_string(f) == E::kind) op = E{.width = width};
    }
  };
  (try_one(static_cast<const Ops*>(nullptr)), ...);
  return op;
}

}  // namespace

AnyOp elementwise(Activation f, Index width) { return find(f, width, static_cast<const AnyOp*>(nullptr)); }
AnyActivation any_activation(Activation f, Index width) { return find(f, width, static_cast<const AnyActivation*>(nullptr)); }

}  // namespace stepzero
