#pragma once
// Two passes over one batch, before and after an update: what has changed on every wire, and what changed it. Works node by node while
// the second pass runs down; the first has the outputs that are asked for.
#include <map>

#include "stepzero/pass/pass.hpp"
#include "stepzero/signal/step_signal.hpp"

namespace stepzero {

// A root of a mean square that grows.
struct MeanSquare {
  double squares = 0, entries = 0;

  void add(double more, double of) {
    squares += more;
    entries += of;
  }
  [[nodiscard]] double root() const;
};

// Root mean square of the change of the scores, over heads, queries and visible keys.
template <class S>
double score_change(const Attention& op, const Batch& batch, std::span<const View<const S>> before, std::span<const View<const S>> after);

template <class S>
class StepScan {
 public:
  // `again` (may be null) are the stand-ins of the second pass: what they meet again they have split themselves.
  StepScan(const Graph& graph, const Batch& batch, const Pass<S>& before, const Pass<S>& after, const Weightless* again, StepSignal& to)
      : graph_(graph), batch_(batch), before_(before), after_(after), again_(again), to_(to), direct_(graph.params.size()) {}

  // The output of a node of the second pass, and what it keeps.
  void look(int node, View<const S> y, View<const S> keep);
  // To what one parameter alone does to the outputs of its nodes.
  void add_direct(int param, double squares, double entries) { direct_[static_cast<std::size_t>(param)].add(squares, entries); }
  // Once all nodes have been seen.
  void finish();

 private:
  void split(std::size_t node, View<const S> y, StepSignal::Wire& wire);
  void run(std::size_t node, std::span<const View<const S>> x, std::span<const View<const S>> theta, View<S> y) const;

  const Graph& graph_;
  const Batch& batch_;
  const Pass<S>& before_;
  const Pass<S>& after_;
  const Weightless* again_;
  StepSignal& to_;
  std::vector<MeanSquare> direct_;  // of every parameter
  std::size_t attention_ = 0;
};

extern template class StepScan<float>;
extern template class StepScan<double>;

}  // namespace stepzero
