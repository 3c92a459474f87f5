#pragma once
// The measure walk: a real pass down and up, statistics of every node and parameter on the way, over one or more draws.
#include <functional>
#include <string>

#include "stepzero/core/running.hpp"
#include "stepzero/core/streaming_moments.hpp"
#include "stepzero/core/team.hpp"
#include "stepzero/pass/pass.hpp"
#include "stepzero/signal/signal.hpp"
#include "stepzero/weights/weights.hpp"

namespace stepzero {

// Moments leave out what is not finite; a signal that has any has no moments to speak of: NaN then.
double unless_broken(const Moments& m, double value);

// Rows for which a measured pass runs the head at a time. The bits of a head's gradient depend on it, so it is one for all; each
// piece reads and writes that gradient once.
inline constexpr Index measured_head_rows = 512;

// One pass with statistics, on weights that are already in `pass`. Fills `signal` (see describe).
// `tick` is called after every node, on the way down and on the way up.
template <class S>
void measure_pass(Pass<S>& pass, const Graph& graph, const Batch& batch, Signal& signal, const std::function<void()>& tick = {});

// Averages over seeds, with standard errors. Seeds are added in order, so the bits do not depend on who ran them.
class Ensemble {
 public:
  void add(const Signal& signal);
  [[nodiscard]] Signal result() const;
  [[nodiscard]] int count() const { return count_; }
  // The largest relative standard error among the second moments of all nodes, forward and backward, and the whole gradient's
  // norm. A few draws know little of their own error: infinite below eight.
  [[nodiscard]] double error() const;

 private:
  Signal first_;
  std::vector<Running> running_;
  int count_ = 0;
};

// The first number that is not finite, in the order of the pass (down, then up): {} where all is well.
struct NotFinite {
  std::string where;
  std::string what;
};
std::optional<NotFinite> find_not_finite(const Signal& signal);

struct MeasureOptions {
  const Scheme* scheme = nullptr;  // draw under this scheme ...
  std::string weights = {};        // ... or run the weights of this file or directory
  std::string adapter = {};        // and those of the adapters from this file or directory, rather than drawn
  bool weightless = false;         // with a scheme: sample the pass without making the weights
  bool stream = false;             // hold the weights of one node at a time; without this only where all do not fit into memory
  DType dtype = DType::F32;        // what the weights drawn are rounded to: F32, BF16, F16
  double memory = 0;               // bytes that may be used; 0: what the system can give
  std::uint64_t seed = 0;
  int seeds = 1;
  Team team = {};                                    // seeds are spread over its members; all get the same result, to the bit
  std::function<bool(const Ensemble&)> enough = {};  // asked after every draw: true ends the run before `seeds`
  std::function<void(double fraction)> progress = {};
  std::function<void(const std::string&)> warn = {};
  std::function<void(const std::string&)> note = {};  // what was decided, and why
};

Expected<Signal> measure(const Graph& graph, const Architecture& a, const Batch& batch, const MeasureOptions& options);

}  // namespace stepzero
