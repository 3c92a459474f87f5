#pragma once
// A claim of the source documents as an experiment. Each has a file of its own; list.cpp has them all.
//
// An experiment yields rows. A row holds one measured number, with its standard error over independent draws, against
// what a formula allows. What the row says is decided by an interval that misses the truth once in a million times
// (Student's t over the draws): agrees, if all of it is allowed; differs, if none of it is; undecided, if neither. The
// verdict follows from the rows and from nothing else.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/core/running.hpp"
#include "stepzero/core/view.hpp"
#include "stepzero/report/plot.hpp"

namespace stepzero::claims {

enum class Verdict : std::uint8_t { holds, holds_if, fails, undecided };
std::string_view to_string(Verdict verdict);

enum class Outcome : std::uint8_t { agrees, differs, undecided };
std::string_view to_string(Outcome outcome);

enum class Kind : std::uint8_t {
  statement,   // what the document says, in the case or the reading in which it can be true
  counter,     // what the document says, outside the condition that the document does not state: there it must differ
  contrast,    // the same, where the document's own assumption is dropped: shows that the assumption is needed
  correction,  // what is true instead, or besides: must agree without bias
};
std::string_view to_string(Kind kind);

struct Row {
  Kind kind = Kind::statement;
  std::string what;
  double predicted = 0;
  double low = 0;  // what is allowed
  double high = 0;
  double measured = 0;
  double error = 0;  // standard error; of what has no chance in it, a bound of the rounding
  double draws = 0;  // 0: no chance in it

  [[nodiscard]] double reach() const;  // half of the interval around `measured`
  [[nodiscard]] Outcome outcome() const;
};

constexpr double kMissed = 1e-6;     // how often an interval may miss the truth
constexpr double kTolerance = 0.05;  // what "equal" allows where a claim does not say otherwise

struct Evidence {
  std::vector<Row> rows;
  Plot plot;
  Plot course = {};  // loss against step, where the plot shows something else

  [[nodiscard]] std::vector<Plot> plots() const;  // those that have curves

  // measured = predicted up to a share `tolerance` of it
  void equal(Kind kind, std::string what, double predicted, const Running& measured, double tolerance = kTolerance);
  // ... up to `slack`, for a prediction of 0
  void near(Kind kind, std::string what, double predicted, const Running& measured, double slack);
  // a number with no chance in it, known to `rounding`
  void exact(Kind kind, std::string what, double predicted, double measured, double rounding, double tolerance = 1e-9);
  void at_most(Kind kind, std::string what, double bound, const Running& measured);
  void at_least(Kind kind, std::string what, double bound, const Running& measured);

  [[nodiscard]] Verdict verdict() const;
  // The number that stands for the claim: of the first correction, else of the first statement.
  [[nodiscard]] const Row& headline() const;
};

// A size of the experiment, or a constant of the statement: change it, and it is another statement.
struct Setting {
  std::string_view name;
  double value;
  std::string_view meaning;
  double low = -1e6;
  double high = 1e6;
  bool whole = false;
};
constexpr Setting size(std::string_view name, double value, double most, std::string_view meaning) {
  return {name, value, meaning, 1, most, true};
}
constexpr Setting draws(double value) { return {"draws", value, "independent draws", 2, 100000, true}; }

class Settings {
 public:
  Settings(std::uint64_t seed, const std::vector<Setting>& defaults);
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] std::uint64_t seed(int draw) const { return seed_ * 1'000'000 + static_cast<std::uint64_t>(draw); }
  [[nodiscard]] double operator()(std::string_view name) const;
  [[nodiscard]] Index size(std::string_view name) const { return static_cast<Index>((*this)(name)); }
  [[nodiscard]] int draws() const { return static_cast<int>((*this)("draws")); }
  void set(std::string_view name, double value);

 private:
  std::uint64_t seed_;
  std::map<std::string, double, std::less<>> values_;
};

// The source documents, by file name.
inline constexpr std::string_view kProducts = "000_4d0dca0384afe855.txt";
inline constexpr std::string_view kBackprop = "001_2c6f00b4e2d00110.txt and 002_e18c142dc2989a6c.txt";
inline constexpr std::string_view kInitialization = "003_96ebd8648173a638.txt";

// What a stranger needs to know of it: "the second ... (001_....txt)".
std::string source_text(std::string_view source);

struct Claim {
  std::string_view id;
  std::string_view source;     // file name of the document
  std::string_view statement;  // as the document has it
  std::string_view tested;     // exactly what is held against measurement
  Verdict recorded;
  std::string_view condition;   // of holds if
  std::string_view correction;  // of fails; or what else is true
  std::string_view why;
  std::vector<Setting> settings;
  Evidence (*run)(const Settings& settings);
};

// "key=value"
Expected<void> set(const Claim& claim, Settings& settings, std::string_view assignment);

}  // namespace stepzero::claims
