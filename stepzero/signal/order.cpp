#include "stepzero/signal/order.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

Expected<Order> order_of(std::string_view name) {
  const auto at = std::ranges::find(order_names, name);
  if (at == order_names.end())
    return fail(fmt::format("\"{}\" is no order of a prediction", show(std::string(name))),
                fmt::format("one of {}", fmt::join(order_names, ", ")));
  return static_cast<Order>(at - order_names.begin());
}

}  // namespace stepzero
