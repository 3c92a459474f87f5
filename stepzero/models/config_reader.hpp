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

// Whether a key says a size that every configuration should give.
bool is_size_key(std::string_view key);

// What a configuration says that was not asked for, and sizes that it does not say, in words.
std::vector<std::string> notices_of(const nlohmann::json& object, const std::string& file, const std::set<std::string, std::less<>>& asked,
                                    const std::vector<std::pair<std::string, Index>>& assumed);

// An error where a configuration says something that makes another model, and that was not asked for.
Expected<void> refuse_unread(const nlohmann::json& object, const std::string& file, const std::set<std::string, std::less<>>& asked);

class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& object, std::string file) : object_(object), file_(std::move(file)) {}

  [[nodiscard]] bool has(std::string_view key) const {
    asked_.emplace(key);
    return object_.contains(key);
  }
  [[nodiscard]] bool is_null(std::string_view key) const {
    asked_.emplace(key);
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
  [[nodiscard]] std::vector<std::string> notices() const { return notices_of(object_, file_, asked_, assumed_); }
  // Names of the sizes that were not given.
  [[nodiscard]] std::vector<std::string> sizes_not_given() const;

 private:
  const nlohmann::json* find(Keys keys, std::string_view& found);

  const nlohmann::json& object_;
  std::string file_;
  Error error_;
  mutable std::set<std::string, std::less<>> asked_;    // keys of the configuration
  std::vector<std::pair<std::string, Index>> assumed_;  // sizes that were not given
};

}  // namespace stepzero
