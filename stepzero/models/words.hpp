#pragma once
// What the words of an architecture file are made of: C++ functions that add tensors and nodes to a graph. Internal to models/.
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "stepzero/lang/evaluator.hpp"
#include "stepzero/models/config_keys.hpp"
#include "stepzero/models/own_file.hpp"

namespace stepzero {

class Words {
 public:
  Words(lang::Evaluator& evaluator, const SizeValues& settings, bool only_declared, ConfigKeys& keys);

  // What the file has made.
  [[nodiscard]] Built take() { return std::move(built_); }
  [[nodiscard]] bool declared() const { return declared_; }

 private:
  using Value = lang::Value;
  using Call = lang::Call;

  void define_tensors();
  void define_wires();
  void define_keys();
  Expected<Value> arch(Call& call);
  Expected<Value> tensor(const Call& call);
  Expected<Value> node(const Call& call);
  Expected<Value> rename(const Call& call);
  Expected<Value> channels(const Call& call);

  lang::Evaluator& evaluator_;
  const SizeValues& settings_;
  bool only_declared_;
  ConfigKeys& keys_;
  bool declared_ = false;
  Built built_;
  std::unordered_map<std::string, int> tensors_;
  std::unordered_set<std::string> names_;         // of nodes
  std::unordered_map<std::string, int> numbers_;  // that the last node of a name got, where it was taken
};

}  // namespace stepzero
