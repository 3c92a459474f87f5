#pragma once
// Measured first steps in files, so that they need not be taken again: one file a model, all optimizers in it.
//
//     a line a number:  optimizer <tab> where <tab> what <tab> value <tab> its standard error
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "bench/accuracy_store.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/signal/step_signal.hpp"

namespace stepzero {

// Of one optimizer: at which rate, over how many draws, and what came of it.
struct StoredStep {
  double rate = 0, rate_adamw = 0;
  int draws = 0;
  std::map<Key, Stored> numbers;
};

class StepStore {
 public:
  StepStore(const std::filesystem::path& dir, const std::string& model) : path_(file_of_row(dir, model)) {
    std::ifstream in(path_);
    std::string line;
    while (std::getline(in, line)) {
      std::istringstream words(line);
      std::string optimizer, where, what, value, error;
      for (std::string* word : {&optimizer, &where, &what, &value, &error}) std::getline(words, *word, '\t');
      StoredStep& to = steps_[optimizer];
      const double x = std::strtod(value.c_str(), nullptr);
      if (what == "rate") to.rate = x;
      if (what == "rate_adamw") to.rate_adamw = x;
      if (what == "draws") to.draws = static_cast<int>(x);
      to.numbers[{where, what}] = {x, std::strtod(error.c_str(), nullptr)};
    }
  }

  [[nodiscard]] const StoredStep* find(const std::string& optimizer) const {
    const auto it = steps_.find(optimizer);
    return it == steps_.end() ? nullptr : &it->second;
  }

  // Adds to the file what is judged.
  void keep(const std::string& optimizer, double rate, double rate_adamw, int draws, const Graph& graph, StepSignal step) const {
    std::filesystem::create_directories(path_.parent_path());
    std::ofstream out(path_, std::ios::app);
    out << fmt::format("{}\t\trate\t{:.17g}\t\n{}\t\trate_adamw\t{:.17g}\t\n{}\t\tdraws\t{}\t\n", optimizer, rate, optimizer, rate_adamw,
                       optimizer, draws);
    std::map<std::string, bool, std::less<>> judged;  // wires, tensors
    for (const Node& node : graph.nodes) {
      if (node.is_stream() || std::holds_alternative<Residual>(node.op)) judged[node.name] = true;
    }
    judged[step.wires[step.logits].name] = true;
    for (const Param& p : graph.params) {
      if (p.rows() > 1 && p.cols() > 1) judged[p.name] = true;
    }
    for_each_step_value(step, [&](const Value& v, Average, const auto& where, std::string_view what) {
      const bool whole = what.starts_with("loss before") || what == "loss after the step" || what == "loss after" ||
                         what.starts_with("change of the") || what == StepSignal::searched;
      const bool kept = what == "change" || what == "relative change" || what == "direct change" || what.starts_with("decrease");
      if (v.measured && (whole || (kept && judged.contains(where))))
        out << fmt::format("{}\t{}\t{}\t{:.5g}\t{:.2g}\n", optimizer, where, what, *v.measured, v.standard_error.value_or(0));
    });
  }

 private:
  std::filesystem::path path_;
  std::map<std::string, StoredStep> steps_;
};

// The names of `like` with the numbers that were kept.
inline StepSignal measured_of(const StoredStep& stored, StepSignal like) {
  for_each_step_value(like, [&](Value& v, Average, const auto& where, const char* what) {
    v = {};
    const auto found = stored.numbers.find({std::string(where), what});
    if (found == stored.numbers.end()) return;
    v.measured = found->second.value;
    v.standard_error = found->second.spread;
  });
  return like;
}

}  // namespace stepzero
