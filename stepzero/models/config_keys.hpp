#pragma once
// What a family's architecture file reads of a config.json: key("hidden_size", 4096) inside arch(...).
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "stepzero/core/view.hpp"
#include "stepzero/lang/evaluator.hpp"

namespace stepzero {

// A config.json as a file of a family reads it. `config` null: the file stands alone, and every key has its default.
class ConfigKeys {
 public:
  explicit ConfigKeys(const nlohmann::json* config) : config_(config) {}

  // key(name, default, also=[other names], null=default): of the default's type; "rope_scaling.factor" looks inside an object.
  Expected<lang::Value> key(const lang::Call& call);
  // "missing", "null" or "given"
  Expected<lang::Value> state(const lang::Call& call);

  // count_key(name, default): how many entries an object or a list has
  Expected<lang::Value> count(const lang::Call& call);

  // ignored("verbose", ...): keys that change nothing about the model
  Expected<lang::Value> ignored(const lang::Call& call);

  [[nodiscard]] const std::set<std::string, std::less<>>& asked() const { return asked_; }
  // Sizes that the configuration does not give.
  [[nodiscard]] const std::vector<std::pair<std::string, Index>>& assumed() const { return assumed_; }

 private:
  const nlohmann::json* find(const std::string& path);

  const nlohmann::json* config_;
  std::set<std::string, std::less<>> asked_;
  std::vector<std::pair<std::string, Index>> assumed_;
};

}  // namespace stepzero
