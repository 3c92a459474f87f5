#pragma once
// How much of a finite width a prediction knows.
#include <array>
#include <cstdint>
#include <string_view>

#include "stepzero/core/error.hpp"

namespace stepzero {

enum class Order : std::uint8_t {
  limit,         // infinite width
  fluctuations,  // and how single draws differ, to first order in 1/width
  draws,         // and draws of the kernels themselves, where gradients feel them
};

inline constexpr std::array<std::string_view, 3> order_names = {"limit", "fluctuations", "draws"};

// By its name; the error lists them.
Expected<Order> order_of(std::string_view name);

}  // namespace stepzero
