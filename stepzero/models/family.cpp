#include "stepzero/models/family.hpp"

#include <algorithm>
#include <array>

namespace stepzero {

std::span<const Family> families() {
  static const std::array list = {gpt2_family, llama_family};
  return list;
}

const Family* find_family(std::string_view model_type) {
  const auto list = families();
  const auto it = std::ranges::find(list, model_type, &Family::model_type);
  return it == list.end() ? nullptr : &*it;
}

}  // namespace stepzero
