#pragma once
// Typed, checked access to a config.json: aliases, defaults, ranges; the first error is kept and told at the end.
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "stepzero/core/error.hpp"
#include "stepzero/core/view.hpp"

namespace stepzero {

class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& object, std::string file) : object_(object), file_(std::move(file)) {}

  [[nodiscard]] bool has(std::string_view key) const {
    asked_.insert(key);
    return object_.contains(key);
  }
  [[nodiscard]] bool is_null(std::string_view key) const {
    asked_.insert(key);
    const auto it = object_.find(key);
    return it != object_.end() && it->is_null();
  }

  using Keys = std::initializer_list<std::string_view>;  // a key and its aliases; null counts as missing

  Index count(Keys keys, Index fallback, Index low = 1, Index high = Index{1} << 31);
  double number(Keys keys, double fallback, double low, double high = 1e30);
  bool flag(Keys keys, bool fallback);
  std::string text(Keys keys, std::string_view fallback);
  [[nodiscard]] const nlohmann::json* object(std::string_view key);
  [[nodiscard]] const nlohmann::json* array(std::string_view key);
  [[nodiscard]] const std::string& file() const { return file_; }

  void complain(std::string_view key, std::string message);
  [[nodiscard]] Expected<void> finish() const;
  // What was given and not read, and sizes that were not given: in words.
  [[nodiscard]] std::vector<std::string> notices() const;
  // Names of the sizes that were not given.
  [[nodiscard]] std::vector<std::string> sizes_not_given() const;

 private:
  const nlohmann::json* find(Keys keys, std::string_view& found);

  const nlohmann::json& object_;
  std::string file_;
  Error error_;
  mutable std::set<std::string_view> asked_;                 // keys of the configuration; literals
  std::vector<std::pair<std::string_view, Index>> assumed_;  // sizes that were not given
};

}  // namespace stepzero
