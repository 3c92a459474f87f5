#include "stepzero/pass/pass.hpp"

#include <algorithm>
#include <utility>

#include "stepzero/graph/questions.hpp"
#include "stepzero/pass/pass_plan.hpp"

namespace stepzero {

template <class S>
Tensor<S> Pool<S>::take(Index rows, Index cols) {
  const auto it = free_.find(rows * cols);
  if (it == free_.end()) return Tensor<S>(rows, cols);
  Tensor<S> tensor = std::move(it->second);
  free_.erase(it);
  tensor.reshape(rows, cols);
  return tensor;
}

template <class S>
Tensor<S> Pool<S>::take_at_least(Index size) {
  const auto it = free_.lower_bound(size);
  if (it == free_.end()) return Tensor<S>(1, size);
  Tensor<S> tensor = std::move(it->second);
  free_.erase(it);
  return tensor;
}

template <class S>
void Pool<S>::give(Tensor<S> tensor) {
  const Index size = tensor.size();
  if (size == 0) return;
  free_.emplace(size, std::move(tensor));
}

template <class S>
Pass<S>::Pass(const Graph& graph, const Batch& batch, PassOptions options)
    : graph_(graph),
      batch_(batch),
      options_(options),
      head_(plan_head(graph, batch, options)),
      rows_(rows_held(graph, batch, head_)),
      row_spaces_(graph.nodes.size()),
      gradients_(plan_gradients(graph, batch, options, head_)),
      unmade_squares_(graph.params.size(), 0.0),
      outputs_(graph.nodes.size()),
      keeps_(graph.nodes.size()),
      wire_gradients_(graph.nodes.size()),
      param_gradients_(graph.params.size()),
      written_(graph.params.size()),
      first_use_(graph.params.size(), graph.nodes.size()) {
  if (options.stream) {
    memory_.emplace_back(1, largest_weights(graph));
    weights_.resize(graph.params.size());
  }
  for (std::size_t k = 0; !options.stream && k < graph.params.size(); ++k) {
    memory_.emplace_back(rows_made(options, graph, k), graph.params[k].cols());
    weights_.push_back(memory_.back().view());
  }
  const std::vector<bool> cuts = options.checkpoint ? find_cuts(graph, head_.begin) : std::vector<bool>(graph.nodes.size(), false);
  again_ = find_repeats(graph, cuts, rows_, options.keep_bytes / sizeof(S));
  std::size_t begin = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    segment_.push_back(begin);
    if (cuts[i]) begin = i + 1;
    if (!options.checkpoint) {
      outputs_[i] = Tensor<S>(rows_[i], channels_of(node.op));
      keeps_[i] = Tensor<S>(rows_[i], kept_by(node.op));
    }
    for (const ParamUse& use : node.params) {
      auto& first = first_use_[static_cast<std::size_t>(use.param)];
      first = std::min(first, i);
    }
  }
}

template <class S>
void Pass<S>::stream(WeightSource<S> source) {
  source_ = std::move(source);
  std::ranges::fill(weights_, View<S>());
}

// Makes the weights of a node, unless the node before used the same tensors (the thirds of a fused projection).
template <class S>
void Pass<S>::hold_weights(const Node& node) {
  const auto held = [&](const ParamUse& use) { return !weights_[static_cast<std::size_t>(use.param)].empty(); };
  if (!options_.stream || std::ranges::all_of(node.params, held)) return;
  std::ranges::fill(weights_, View<S>());
  place_weights(graph_, node, [&](int param, Index at) {
    const auto k = static_cast<std::size_t>(param);
    weights_[k] = {memory_[0].data() + at, graph_.params[k].rows(), graph_.params[k].cols()};
    source_(param, weights_[k]);
  });
}

template <class S>
std::vector<View<const S>> Pass<S>::inputs_of(const Node& node) const {
  std::vector<View<const S>> views;
  for (const int wire : node.inputs) views.push_back(output(wire));
  return views;
}

template <class S>
std::vector<View<const S>> Pass<S>::params_of(const Node& node) const {
  std::vector<View<const S>> views;
  for (const ParamUse& use : node.params) {
    const View<const S> whole = weights_[static_cast<std::size_t>(use.param)];
    views.push_back(is_made(options_, static_cast<std::size_t>(use.param)) ? whole.block(use.row0, use.rows, use.col0, use.cols) : whole);
  }
  return views;
}

template <class S>
const RowSpace& Pass<S>::row_space_of(const Node& node) {
  static const RowSpace none;
  if (node.inputs.empty()) return none;
  RowSpace& space = row_spaces_[static_cast<std::size_t>(node.inputs[0])];
  if (space.empty()) space = row_space(output(node.inputs[0]));
  return space;
}

template <class S>
void Pass<S>::run(std::size_t i) {
  const Node& node = graph_.nodes[i];
  if (outputs_[i].rows() == 0) outputs_[i] = pool_.take(rows_[i], channels_of(node.op));
  if (keeps_[i].rows() == 0) keeps_[i] = pool_.take(rows_[i], kept_by(node.op));
  row_spaces_[i] = {};
  hold_weights(node);
  const auto x = inputs_of(node);
  const auto theta = params_of(node);
  const Down<S> door{batch_, x, theta, outputs_[i].view(), keeps_[i].view()};
  if (!is_stand_in(options_, i)) {
    std::visit([&](const auto& op) { op.forward(door); }, node.op);
    return;
  }
  std::visit(
      [&](const auto& stand_in) {
        if constexpr (StandIn<std::remove_cvref_t<decltype(stand_in)>>) stand_in.forward(door, row_space_of(node));
      },
      options_.weightless->nodes[i]);
}

template <class S>
void Pass<S>::release(std::size_t i) {
  pool_.give(std::exchange(outputs_[i], {}));
  pool_.give(std::exchange(keeps_[i], {}));
  row_spaces_[i] = {};
}

template <class S>
void Pass<S>::restore(std::size_t cut) {
  for (std::size_t i = segment_[cut]; i < cut; ++i) run(i);
}

template <class S>
double Pass<S>::forward(const Observer<S>& observer) {
  for (std::size_t i = 0; i < head_.begin; ++i) {
    run(i);
    if (observer.forward) observer.forward(static_cast<int>(i), outputs_[i].view(), keeps_[i].view());
    if (!again_[i]) continue;
    for (std::size_t j = segment_[i]; j < i; ++j) release(j);
  }
  if (head_.begin < graph_.nodes.size()) return run_head(observer);
  double loss = 0;
  const View<const S> shares = output(static_cast<int>(graph_.nodes.size()) - 1);
  for (Index t = 0; t < shares.rows; ++t) loss += static_cast<double>(shares(t, 0));
  return loss;
}

template <class S>
Into<S> Pass<S>::wire_gradient(int wire) {
  const auto i = static_cast<std::size_t>(wire);
  auto& gradient = wire_gradients_[i];
  const bool add = gradient.size() > 0;
  if (!add) gradient = pool_.take(rows_[i], channels_of(graph_.nodes[i].op));
  return {gradient.view(), add};
}

template <class S>
View<S> Pass<S>::whole_gradient(std::size_t k) {
  return {param_gradients_[k].data(), gradients_[k].rows_made(graph_.params[k]), graph_.params[k].cols()};
}

template <class S>
Into<S> Pass<S>::param_gradient(const ParamUse& use) {
  const auto k = static_cast<std::size_t>(use.param);
  auto& gradient = param_gradients_[k];
  auto& written = written_[k];
  const Index size = gradients_[k].rows_made(graph_.params[k]) * graph_.params[k].cols();
  if (size == 0) return {};
  if (gradient.size() == 0) gradient = param_pool_.take_at_least(size);
  const bool add = std::ranges::find(written, use) != written.end();
  if (!add) written.push_back(use);
  if (!gradients_[k].whole) return {whole_gradient(k), add};
  return {whole_gradient(k).block(use.row0, use.rows, use.col0, use.cols), add};
}

template <class S>
void Pass<S>::finish_params(std::size_t node, const Observer<S>& observer) {
  std::vector<int> done;  // a node may use several blocks of one tensor
  for (const ParamUse& use : graph_.nodes[node].params) {
    const auto k = static_cast<std::size_t>(use.param);
    if (first_use_[k] != node || std::ranges::find(done, use.param) != done.end()) continue;
    done.push_back(use.param);
    if (!gradients_[k].whole) {
      const double squares = std::exchange(unmade_squares_[k], 0.0);
      if (observer.unmade) observer.unmade(use.param, whole_gradient(k), squares);
    } else if (observer.parameter && param_gradients_[k].size() > 0) {
      observer.parameter(use.param, whole_gradient(k));
    }
    if (param_gradients_[k].size() == 0) continue;
    param_pool_.give(std::exchange(param_gradients_[k], {}));
    written_[k].clear();
  }
}

template <class S>
const CentredRows& Pass<S>::centred_rows_of(int wire) {
  if (std::exchange(centred_wire_, wire) != wire) centred_ = centred_rows(output(wire));
  return centred_;
}

// For a matrix whose gradient's norm is enough: adds its squares, and makes the explicit rows.
template <class S>
void Pass<S>::add_squares(const Node& node, View<const S> x, View<const S> dy) {
  const ParamUse& use = node.params[0];
  const auto k = static_cast<std::size_t>(use.param);
  const std::vector<Index>& rows = gradients_[k].rows;
  unmade_squares_[k] += product_squares(centred_rows_of(node.inputs[0]), centred_rows(dy, rows));
  row_gradients(x, dy, rows, param_gradient(use));
}

template <class S>
void Pass<S>::open_up(std::size_t i, const Up<S>& door) {
  const Node& node = graph_.nodes[i];
  if (is_stand_in(options_, i)) {
    std::visit(
        [&](const auto& stand_in) {
          if constexpr (StandIn<std::remove_cvref_t<decltype(stand_in)>>) {
            const std::vector<double> squares = stand_in.backward(door, row_space_of(node));
            for (std::size_t k = 0; k < squares.size(); ++k) unmade_squares_[static_cast<std::size_t>(node.params[k].param)] += squares[k];
          }
        },
        options_.weightless->nodes[i]);
    return;
  }
  const bool whole = node.params.empty() || gradients_[static_cast<std::size_t>(node.params[0].param)].whole;
  if (!whole) {
    if (const auto table = seen_table(node.op, batch_, gradients_[static_cast<std::size_t>(node.params[0].param)].rows)) {
      return void(table->backward(door, {}));
    }
  }
  std::visit([&](const auto& op) { op.backward(door); }, node.op);
  if (!whole) add_squares(node, door.x[0], door.dy);
}

template <class S>
void Pass<S>::up(std::size_t i, const Observer<S>& observer) {
  if (wire_gradients_[i].size() == 0) return;  // nothing downstream reads it
  const Node& node = graph_.nodes[i];
  const View<const S> dy = wire_gradients_[i].view();
  if (observer.backward) observer.backward(static_cast<int>(i), dy);
  hold_weights(node);
  const auto x = inputs_of(node);
  const auto theta = params_of(node);
  std::vector<Into<S>> dx, dtheta;
  for (const int wire : node.inputs) dx.push_back(wire_gradient(wire));
  for (const ParamUse& use : node.params) {
    const bool squares = options_.norms && !gradients_[static_cast<std::size_t>(use.param)].whole && !looks_up(node.op);
    dtheta.push_back(squares ? Into<S>() : param_gradient(use));
  }
  open_up(i, {batch_, x, theta, outputs_[i].view(), keeps_[i].view(), dy, dx, dtheta});
  finish_params(i, observer);
  pool_.give(std::exchange(wire_gradients_[i], {}));
}

template <class S>
void Pass<S>::backward(const Observer<S>& observer) {
  centred_wire_ = -1;
  for (std::size_t i = graph_.nodes.size(); i-- > head_.begin;) finish_params(i, observer);  // forward has been here
  if (head_.begin == graph_.nodes.size()) {
    const Into<S> seed = wire_gradient(static_cast<int>(head_.begin) - 1);
    std::fill_n(seed.d.data, seed.d.size(), S(1));
  }
  for (std::size_t i = head_.begin; i-- > 0;) {
    if (again_[i]) restore(i);
    const bool used = wire_gradients_[i].size() > 0;
    up(i, observer);
    if (used && options_.checkpoint && !(options_.keep_cuts && again_[i])) release(i);
  }
}

template <class S>
std::vector<std::size_t> Pass<S>::segment_ends() const {
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < again_.size(); ++i) {
    if (again_[i] || i + 1 == again_.size()) ends.push_back(i);
  }
  return ends;
}

template <class S>
void Pass<S>::replay(std::size_t end, View<const S> gradient) {
  const std::size_t begin = segment_[end];
  for (std::size_t i = begin; i <= end; ++i) run(i);
  const Into<S> last = wire_gradient(static_cast<int>(end));
  if (gradient.empty()) std::fill_n(last.d.data, last.d.size(), S(1));
  for (Index t = 0; t < gradient.rows; ++t) std::copy_n(gradient.row(t), gradient.cols, last.d.row(t));
  for (std::size_t i = end + 1; i-- > begin;) up(i, {});
  for (std::size_t i = 0; i < begin; ++i) pool_.give(std::exchange(wire_gradients_[i], {}));
  for (std::size_t k = 0; k < graph_.params.size(); ++k) {  // of tensors that other segments use too
    if (param_gradients_[k].size() > 0) param_pool_.give(std::exchange(param_gradients_[k], {}));
    written_[k].clear();
    unmade_squares_[k] = 0;
  }
}

template <class S>
void Pass<S>::drop(std::size_t end) {
  for (std::size_t i = segment_[end]; i < end; ++i) release(i);
}

template class Pool<float>;
template class Pool<double>;
template class Pass<float>;
template class Pass<double>;

}  // namespace stepzero
