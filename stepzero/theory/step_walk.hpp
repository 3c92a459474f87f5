#pragma once
// The third walk, down the graph: how every wire has changed after one update, at several steps at once (all rates times a factor, or
// without some of them).
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stepzero/ops/move/heads.hpp"
#include "stepzero/ops/move/likeness.hpp"
#include "stepzero/ops/move/logits.hpp"
#include "stepzero/signal/signal.hpp"
#include "stepzero/theory/moment_walk.hpp"
#include "stepzero/theory/step_parts.hpp"
#include "stepzero/theory/step_tied.hpp"
#include "stepzero/theory/step_told.hpp"

namespace stepzero {

class StepWalk {
 public:
  // Of what predict's walks keep: kernels down and up, and how single draws differ. All must outlive it but the laws.
  StepWalk(const Graph& graph, const Batch& batch, const Assignment& laws, const std::vector<StepPart>& parts,
           const std::vector<Update>& updates, const Signal& predicted, double effort);

  // The loss after each step; what wires, scores and parameters do at the first is told. tell: of the share that is done.
  std::vector<double> first(std::vector<Factor> factors, StepSignal& step, const std::function<void(double)>& tell);
  // The same at other steps, with what first() has prepared; only where may_again().
  std::vector<double> again(std::vector<Factor> factors);
  [[nodiscard]] bool may_again() const { return keeps_; }

  [[nodiscard]] double drawn_loss() const { return logits_.loss; }  // before the step, of the draws that losses are told by
  [[nodiscard]] const StepTold& told() const { return told_; }

 private:
  // Of a tensor that several nodes use.
  struct TensorGram {
    int uses = 0;
    double out = 0, squares = 0;
    Square G;
  };

  void gather();
  void look_at_head();
  void walk();
  void take(const StepPart& part);
  void take_single(std::size_t i);
  void take_chain(const StepPart& part);
  void take_logits(const StepPart& part);
  Mover prepare(std::size_t i);
  void prepare_chain(const StepPart& part, const std::vector<std::vector<WireChange>>& inputs);
  Likeness& likeness_of(const StepPart& part);
  [[nodiscard]] std::vector<TableUse> tables_of(std::size_t i) const;
  void tell(std::size_t i);
  void drop(std::size_t part);
  // f(place) for every step, the first before all others.
  void for_each_step(const std::function<void(std::size_t)>& f) const;
  [[nodiscard]] std::vector<Update> updates_of(const Node& node) const;
  [[nodiscard]] const DownWire& wire(const Node& node, std::size_t k) const { return down_[static_cast<std::size_t>(node.inputs[k])]; }
  [[nodiscard]] const Kernel& gradient(std::size_t i) const { return up_[i].G; }
  [[nodiscard]] bool is_tied(std::size_t i) const;
  [[nodiscard]] std::map<std::int32_t, double> looked_up(std::size_t i) const;
  struct OtherUses {
    std::vector<double> squares, told_here;  // of every token
  };
  [[nodiscard]] OtherUses other_uses(std::size_t i) const;

  const Graph& graph_;
  const Batch& batch_;
  const std::vector<StepPart>& parts_;
  const std::vector<Update>& updates_;
  const Signal& signal_;
  double effort_;
  NodeLaws theta_;
  std::vector<DownWire> down_;
  std::vector<UpWire> up_;
  std::vector<double> noise_up_;
  std::map<int, TensorGram> grams_;
  StepTold told_;
  std::vector<std::size_t> last_use_;  // of every node: the part that reads it last

  std::vector<Mover> movers_;
  std::map<std::size_t, ChainMover> chains_;  // by their last node
  LogitsMover logits_;
  TiedStep tied_;
  std::vector<Square> tied_shares_;  // of every node
  std::vector<std::unique_ptr<Likeness>> likenesses_;
  struct Kind {
    int seen = 0;
    Likeness* last = nullptr;
  };
  std::map<std::string, Kind> kinds_;  // of chains
  bool prepared_ = false, keeps_ = false;

  std::vector<Factor> factors_;
  std::vector<std::vector<WireChange>> changes_;  // by step and node
  StepSignal* step_ = nullptr;                    // to tell
  std::size_t attention_ = 0;
};

}  // namespace stepzero
