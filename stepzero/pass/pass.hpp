#pragma once
// One real pass down and up a graph: tensors on every wire. Observers look at each tensor while it is hot.
// Wire gradients live only until they are used, parameter gradients only until they are observed.
#include <functional>
#include <map>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/kernels/product/product_norm.hpp"
#include "stepzero/pass/weightless.hpp"

namespace stepzero {

// Each sees a tensor whole, but of the head's nodes (PassOptions::head_rows) the next rows at every call.
template <class S>
struct Observer {
  std::function<void(int node, View<const S> y, View<const S> keep)> forward = {};
  std::function<void(int node, View<const S> dy)> backward = {};        // the complete gradient of the node's output
  std::function<void(int param, View<const S> dtheta)> parameter = {};  // the complete gradient of the tensor
  // ... of one that is not made: the gradient of its explicit rows, and the sum of squares of all the rest
  std::function<void(int param, View<const S> rows, double squares)> unmade = {};
};

struct PassOptions {
  // Keep the wires at the cuts of the graph only, and make what lies between them again on the way up: the same bits,
  // a third more work, the memory of one block instead of all.
  bool checkpoint = false;
  bool keep_cuts = false;  // with checkpoints: the wires at the cuts stay after backward, for replay()
  double keep_bytes = 0;   // of what would be made again, this much is kept all the same: what lies nearest to the end
  // Hold the weights of one node at a time, made when it runs and again on the way up (Pass::stream): the same bits.
  bool stream = false;
  // Run the head and the loss for at most so many rows at a time (at least one sequence of fewer), down and at once up: no tensor
  // (tokens, vocabulary) is ever whole. Then forward calls the observer of their gradients too, and their
  // outputs are not there to be asked for. 0: they run like all others.
  Index head_rows = 0;
  // Of the gradients of matrices the norms are enough (Observer::unmade): they are not made where that is the longer way
  // (kernels/product/product_norm.hpp).
  bool norms = false;
  const Weightless* weightless = nullptr;  // stand-ins for nodes whose weights are not made
};

// Writes all the numbers of a parameter, the same at every call.
template <class S>
using WeightSource = std::function<void(int param, View<S> w)>;

// The nodes that run some rows at a time, from `begin` to the end of the graph, and where they are cut: cuts[i] to cuts[i + 1].
struct HeadPlan {
  std::size_t begin = 0;
  std::vector<Index> cuts = {};

  [[nodiscard]] Index most() const;  // rows at a time
};

// Of a parameter's gradient either all is made, or some rows, and of the others the sum of squares alone; of a frozen one nothing.
struct GradientPlan {
  bool whole = true;
  std::vector<Index> rows = {};  // ascending

  [[nodiscard]] Index rows_made(const Param& param) const { return param.frozen ? 0 : whole ? param.rows() : std::ssize(rows); }
};

// A pool of buffers: fresh memory is touched once, not in every pass.
template <class S>
class Pool {
 public:
  Tensor<S> take(Index rows, Index cols);
  Tensor<S> take_at_least(Index size);
  void give(Tensor<S> tensor);

 private:
  std::multimap<Index, Tensor<S>> free_;
};

template <class S>
class Pass {
 public:
  Pass(const Graph& graph, const Batch& batch, PassOptions options = {});

  [[nodiscard]] View<S> weight(int param) { return weights_[static_cast<std::size_t>(param)]; }  // streamed: not to be asked for
  // Where a streamed pass has its weights from; must be told before it runs, and once for every draw.
  void stream(WeightSource<S> source);
  // Runs forward, returns the loss. With checkpoints, outputs between the cuts are gone afterwards.
  double forward(const Observer<S>& observer = {});
  void backward(const Observer<S>& observer = {});
  // Of a pass that kept its cuts, after backward: the nodes behind one cut up to the next, or to the end.
  [[nodiscard]] std::vector<std::size_t> segment_ends() const;
  // The outputs of the segment that ends with node `end` again, and all its gradients once more from that of its last wire (empty: the
  // loss). The outputs stay until drop().
  void replay(std::size_t end, View<const S> gradient);
  void drop(std::size_t end);
  [[nodiscard]] View<const S> output(int node) const {
    STEPZERO_CHECK(static_cast<std::size_t>(node) < head_.begin);
    return outputs_[static_cast<std::size_t>(node)].view();
  }

  // What a node reads.
  [[nodiscard]] std::vector<View<const S>> inputs_of(const Node& node) const;
  [[nodiscard]] std::vector<View<const S>> params_of(const Node& node) const;

  // Bytes that weights and kept activations take, before anything is allocated.
  static double memory_needed(const Graph& graph, const Batch& batch, PassOptions options = {});

 private:
  void hold_weights(const Node& node);
  double run_head(const Observer<S>& observer);
  void head_down(std::size_t node, Index first, Index rows);
  void head_up(std::size_t node, Index first, Index rows, const Observer<S>& observer);
  [[nodiscard]] View<const S> head_input(std::size_t node, Index first, Index rows) const;
  void run(std::size_t node);                              // its door down
  void up(std::size_t node, const Observer<S>& observer);  // all of its way up
  void release(std::size_t node);                          // its output and what it keeps
  void restore(std::size_t cut);                           // what lies between this cut and the one before
  const RowSpace& row_space_of(const Node& node);
  const CentredRows& centred_rows_of(int wire);
  void open_up(std::size_t node, const Up<S>& door);  // its door up
  void add_squares(const Node& node, View<const S> x, View<const S> dy);
  Into<S> wire_gradient(int wire);
  View<S> whole_gradient(std::size_t param);
  Into<S> param_gradient(const ParamUse& use);
  void finish_params(std::size_t node, const Observer<S>& observer);

  const Graph& graph_;
  const Batch& batch_;
  PassOptions options_;
  HeadPlan head_;
  std::vector<Index> rows_;           // of every wire that are held at a time
  std::vector<bool> again_;           // cuts before which everything is let go and made again; without checkpoints none
  std::vector<std::size_t> segment_;  // the first node behind the cut before
  std::vector<RowSpace> row_spaces_;  // of the wires that weightless nodes read
  std::vector<GradientPlan> gradients_;
  std::vector<double> unmade_squares_;
  int centred_wire_ = -1;  // whose rows these are: queries, keys and values read the same
  CentredRows centred_;
  std::vector<Tensor<S>> memory_;  // of the weights: a tensor each, or one for all that are held at a time
  std::vector<View<S>> weights_;   // streamed: empty where they are not held
  WeightSource<S> source_;
  std::vector<Tensor<S>> outputs_;
  std::vector<Tensor<S>> keeps_;
  std::vector<Tensor<S>> wire_gradients_;       // empty where no use has written yet
  std::vector<Tensor<S>> param_gradients_;      // each as large as its tensor or larger
  std::vector<std::vector<ParamUse>> written_;  // blocks of each parameter's gradient already written
  std::vector<std::size_t> first_use_;          // node after whose backward a parameter's gradient is complete
  Pool<S> pool_;
  Pool<S> param_pool_;  // apart: a gradient takes any memory that is large enough
};

extern template class Pass<float>;
extern template class Pass<double>;

}  // namespace stepzero
