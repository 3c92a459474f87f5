#pragma once
// The walk over moments: kernels down the graph, kernels up. predict records what it sees on the way; a draw of a model's kernels
// (predict_drawn) goes the same way.
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/signal/order.hpp"
#include "stepzero/theory/coherence.hpp"
#include "stepzero/theory/node_laws.hpp"

namespace stepzero {

// A field of a Fluctuation or a Response, to see what it is worth: what `hold` makes of it is what no draw differs by.
struct FluctuationField {
  const char* name;
  void (*hold)(Fluctuation& down, Response& up);
};
std::span<const FluctuationField> fluctuation_fields();

class MomentWalk {
 public:
  struct Options {
    Order order = Order::fluctuations;  // draws: kernels of one draw, the one that `effort` names
    bool keep_all = true;               // else streams and what mixes tokens stay in memory, everything else is made again on the way up
    std::function<Draws(std::size_t node, bool down)> effort = {};  // for rules that draw
    const FluctuationField* without = nullptr;                      // a field that is held at every node
  };

  // All that it is given but the options must outlive it.
  MomentWalk(const Graph& graph, const Batch& batch, const NodeLaws& laws, Options options);

  // see(node, wire) as soon as a wire is made; it may change it.
  using SeeDown = std::function<void(std::size_t node, DownWire& wire)>;
  void down(const SeeDown& see);

  // From node `last` on, whose gradient has the kernel `start`; see(node) when all of a node's gradient is there. last_time: the
  // moments are not needed again.
  using SeeUp = std::function<void(std::size_t node, const UpWire& gradient, const Spread& spread)>;
  void up(std::size_t last, const Kernel& start, bool last_time, const SeeUp& see);

  // Of a node whose wire is still needed, or kept.
  [[nodiscard]] const DownWire& moment(std::size_t node) const { return moments_[node]; }

  // E ||dtheta||^2 of every parameter, and its standard deviation over draws: what the last way up has summed.
  [[nodiscard]] const std::vector<double>& squares() const { return squares_; }
  [[nodiscard]] const std::vector<double>& deviations() const { return deviations_; }
  // Parameters whose gradient no rule covers: learned scalars between sums whose wires share sources.
  [[nodiscard]] bool untold(std::size_t param) const { return untold_[param]; }

 private:
  void push(std::size_t i);
  void expand(std::size_t i);
  void meet(std::size_t to, const Expansions::Expansion& gradient);
  void pull(std::size_t i);
  void share_values(std::size_t i);
  void send_to_values(std::size_t i);
  void restore(std::size_t i);
  [[nodiscard]] bool kept(std::size_t i) const;
  [[nodiscard]] std::vector<const DownWire*> inputs_of(const Node& node) const;

  const Graph& graph_;
  const Batch& batch_;
  Options options_;
  const NodeLaws& theta_;
  std::vector<DownWire> moments_;
  std::vector<UpWire> adjoints_;
  std::vector<Spread> spreads_;                           // of the adjoints
  std::optional<Expansions> sources_, gradient_sources_;  // where sums have wires that share sources
  std::vector<std::size_t> last_use_;
  std::vector<double> squares_, deviations_;
  std::vector<bool> untold_;
  std::vector<Maps> maps_;
  std::vector<Matrix> weights_;    // E[A] of attentions that share their values with others
  std::vector<Matrix> to_values_;  // of a wire of values: what gradients of several maps have in common
};

}  // namespace stepzero
