#pragma once
// A coordinate check: one model at several widths or depths, a few updates each, and the slope of every size over the axis, held
// against what keeps a rate right. Rows come from any number of draws: a slope is fitted to each of them, its error is that of the mean.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stepzero/graph/param.hpp"
#include "stepzero/signal/value.hpp"

namespace stepzero {

// start: a size before the first update. effect: what a tensor's update does to the output of its nodes. change: of a wire, of scores, of
// logits, by all updates together. setting: rate * decay of a tensor, or Adam's eps over the root mean square of its gradient.
enum class CoordQuantity : std::uint8_t { start, effect, change, setting };
const char* to_string(CoordQuantity q);

struct CoordRow {
  CoordQuantity quantity = CoordQuantity::change;
  std::string what;                             // "logits", "stream.2", "scores", "transformer.h.*.mlp.c_fc.weight"
  int step = 0;                                 // 0: before the first update
  std::optional<Role> role = {};                // of tensors
  bool conv = false;                            // the tensor is a kernel of a convolution
  std::vector<std::vector<double>> draws = {};  // of each point of the axis: a number a draw

  // What is demanded of the slope: `expected`, or anything from `low` to `high`.
  double expected = 0, low = 0, high = 0;
  bool zero = false;    // demanded to be 0 everywhere
  double harmless = 0;  // values that are all below this pass whatever their slope
  // fitted
  std::vector<double> values = {};  // means over draws
  double slope = 0, error = 0;
  bool pass = true;
};

// What is known of a check besides its rows.
struct CoordFacts {
  bool width = true;       // the axis; else the depth
  bool tied = false;       // the head is the table of the embeddings
  bool head_dim = false;   // heads grow rather than their number
  bool kept_keys = false;  // the number of key heads stays
  std::string optimizer;
};

// A mistake that explains what fails.
struct CoordMistake {
  std::string id, evidence, remedy;
};

struct Coord {
  CoordFacts facts;
  std::vector<double> values;  // widths or depths
  std::vector<CoordRow> rows;
  std::vector<CoordMistake> mistakes;

  [[nodiscard]] bool pass() const;
};

// A slope may differ by this much from what is demanded: a finite width bends lines, a mistake tilts them by 1/2 or more.
inline constexpr double coord_tolerance = 0.2;

// Fits every row, judges it, and names what is wrong.
void judge(Coord& coord);

// By the pattern of slopes; in signal/coord_mistakes.cpp.
std::vector<CoordMistake> name_mistakes(const Coord& coord);

}  // namespace stepzero
