#include "stepzero/models/config_reader.hpp"

#include <fmt/format.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

const nlohmann::json* ConfigReader::find(Keys keys, std::string_view& found) {
  const nlohmann::json* value = nullptr;
  for (const std::string_view key : keys) {
    const auto it = object_.find(key);
    if (it == object_.end() || it->is_null()) continue;
    if (value != nullptr && *value != *it) {
      complain(key, fmt::format("says {}, but its other name \"{}\" says {}", show(it->dump()), found, show(value->dump())));
    }
    if (value == nullptr) {
      value = &*it;
      found = key;
    }
  }
  return value;
}

void ConfigReader::complain(std::string_view key, std::string message) {
  if (!error_.message.empty()) return;
  error_ = {fmt::format("{}: \"{}\": {}", show(file_), show(key), message), ""};
}

Index ConfigReader::count(Keys keys, Index fallback, Index low, Index high) {
  std::string_view key;
  const auto* value = find(keys, key);
  if (value == nullptr) return fallback;
  const bool fits = value->is_number_integer() && *value >= low && *value <= high;
  if (!fits) {
    complain(key, fmt::format("expected a whole number from {} to {}, found {}", low, high, show(value->dump())));
    return fallback;
  }
  return value->get<Index>();
}

double ConfigReader::number(Keys keys, double fallback, double low, double high) {
  std::string_view key;
  const auto* value = find(keys, key);
  if (value == nullptr) return fallback;
  const double x = value->is_number() ? value->get<double>() : -1e300;
  if (!(x >= low && x <= high)) {
    complain(key, fmt::format("expected a number from {} to {}, found {}", low, high, show(value->dump())));
    return fallback;
  }
  return x;
}

bool ConfigReader::flag(Keys keys, bool fallback) {
  std::string_view key;
  const auto* value = find(keys, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    complain(key, fmt::format("expected true or false, found {}", show(value->dump())));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::text(Keys keys, std::string_view fallback) {
  std::string_view key;
  const auto* value = find(keys, key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    complain(key, fmt::format("expected a string, found {}", show(value->dump())));
    return std::string(fallback);
  }
  return value->get<std::string>();
}

const nlohmann::json* ConfigReader::object(std::string_view key) {
  std::string_view found;
  const auto* value = find({key}, found);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) complain(key, fmt::format("expected an object, found {}", show(value->dump())));
  return value->is_object() ? value : nullptr;
}

const nlohmann::json* ConfigReader::array(std::string_view key) {
  std::string_view found;
  const auto* value = find({key}, found);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) complain(key, fmt::format("expected a list, found {}", show(value->dump())));
  return value->is_array() ? value : nullptr;
}

Expected<void> ConfigReader::finish() const {
  if (!error_.message.empty()) return std::unexpected(error_);
  return {};
}

}  // namespace stepzero
