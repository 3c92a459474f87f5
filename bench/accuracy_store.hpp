#pragma once
// Numbers of signals in files: measurements that need not be drawn again, and predictions that a change should leave as they are.
//
//     a line a number:  where <tab> what <tab> value <tab> its standard error or spread; the first line says how many draws
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "stepzero/signal/signal.hpp"

namespace stepzero {

using Key = std::pair<std::string, std::string>;  // where, what
struct Stored {
  double value = 0, spread = 0;
};
struct StoredSignal {
  int draws = 0;
  std::map<Key, Stored> numbers;
};

// "llama score variance 4" -> DIR/llama_score_variance_4.tsv
inline std::filesystem::path file_of_row(const std::filesystem::path& dir, std::string name) {
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return dir / (name + ".tsv");
}

// Predictions are kept to the bit; of measurements what is judged, to what their error leaves of it.
inline void store_measured(const Signal& s, const std::filesystem::path& path) {
  std::ofstream out(path);
  out << "draws\t" << s.seeds << "\n";
  for_each_value(s, [&](const Value& v, Average, const auto& where, std::string_view what) {
    const bool judged = what == "loss" || what == "entropy" || what == "score variance" || what.ends_with("second moment") ||
                        what.ends_with("norm") || what.ends_with("cosine");
    if (v.measured && judged) out << fmt::format("{}\t{}\t{:.6g}\t{:.2g}\n", where, what, *v.measured, v.standard_error.value_or(0));
  });
}
inline void store_predicted(const Signal& s, const std::filesystem::path& path) {
  std::ofstream out(path);
  out << "draws\t" << s.kernel_draws << "\n";
  for_each_value(s, [&](const Value& v, Average, const auto& where, const char* what) {
    if (v.predicted) out << fmt::format("{}\t{}\t{:a}\t{:a}\n", where, what, *v.predicted, v.spread.value_or(0));
  });
}

inline std::optional<StoredSignal> read_stored(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line, where, what, value, spread;
  if (!std::getline(in, line) || !line.starts_with("draws\t")) return {};
  StoredSignal out;
  out.draws = std::atoi(line.c_str() + 6);
  while (std::getline(in, line)) {
    std::istringstream words(line);
    for (std::string* word : {&where, &what, &value, &spread}) std::getline(words, *word, '\t');
    out.numbers[{where, what}] = {std::strtod(value.c_str(), nullptr), std::strtod(spread.c_str(), nullptr)};
  }
  return out;
}

// The prediction with the stored measurement beside it.
inline Signal join_stored(const Signal& predicted, const StoredSignal& stored) {
  Signal both = predicted;
  both.seeds = stored.draws;
  for_each_value(both, [&](Value& v, Average, const auto& where, const char* what) {
    const auto found = stored.numbers.find({std::string(where), what});
    if (found == stored.numbers.end()) return;
    v.measured = found->second.value;
    v.standard_error = found->second.spread;
  });
  return both;
}

// Predicted values and spreads that are not those stored, and the largest relative difference.
struct Changed {
  int numbers = 0, values = 0, spreads = 0;
  double value = 0, spread = 0;
  std::string where;  // of the largest difference of values
};
inline Changed changed(const Signal& s, const StoredSignal& stored) {
  Changed out;
  const auto differ = [](double a, double b) {
    return a == b || (std::isnan(a) && std::isnan(b)) ? 0 : std::abs(a - b) / std::max({std::abs(a), std::abs(b), 1e-300});
  };
  for_each_value(s, [&](const Value& v, Average, const auto& where, const char* what) {
    if (!v.predicted) return;
    ++out.numbers;
    const auto found = stored.numbers.find({std::string(where), what});
    const Stored old = found == stored.numbers.end() ? Stored{NAN, NAN} : found->second;
    const double value = differ(*v.predicted, old.value), spread = differ(v.spread.value_or(0), old.spread);
    out.values += !(value == 0);
    out.spreads += !(spread == 0);
    if (!(value <= out.value)) {
      out.value = value;
      out.where = fmt::format("{} {}", where, what);
    }
    if (!(spread <= out.spread)) out.spread = spread;
  });
  return out;
}

}  // namespace stepzero
