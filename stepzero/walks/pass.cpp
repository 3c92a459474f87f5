#include "stepzero/walks/pass.hpp"

#include <algorithm>
#include <utility>

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
void Pool<S>::give(Tensor<S> tensor) {
  const Index size = tensor.size();
  free_.emplace(size, std::move(tensor));
}

template <class S>
Pass<S>::Pass(const Graph& graph, const Batch& batch)
    : graph_(graph),
      batch_(batch),
      wire_gradients_(graph.nodes.size()),
      param_gradients_(graph.params.size()),
      written_(graph.params.size()),
      first_use_(graph.params.size(), graph.nodes.size()) {
  for (const Param& p : graph.params) weights_.emplace_back(p.rows(), p.cols());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    outputs_.emplace_back(batch.tokens(), channels_of(node.op));
    keeps_.emplace_back(batch.tokens(), std::visit([](const auto& op) { return op.keep(); }, node.op));
    for (const ParamUse& use : node.params) {
      auto& first = first_use_[static_cast<std::size_t>(use.param)];
      first = std::min(first, i);
    }
  }
}

template <class S>
double Pass<S>::memory_needed(const Graph& graph, const Batch& batch) {
  double numbers = 0, largest_param = 0, largest_wire = 0;
  for (const Param& p : graph.params) {
    numbers += static_cast<double>(p.size());
    largest_param = std::max(largest_param, static_cast<double>(p.size()));
  }
  for (const Node& node : graph.nodes) {
    const double channels = static_cast<double>(channels_of(node.op));
    const double kept = static_cast<double>(std::visit([](const auto& op) { return op.keep(); }, node.op));
    numbers += static_cast<double>(batch.tokens()) * (channels + kept);
    largest_wire = std::max(largest_wire, static_cast<double>(batch.tokens()) * channels);
  }
  return (numbers + 2 * largest_param + 2 * largest_wire) * sizeof(S);
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
    views.push_back(weights_[static_cast<std::size_t>(use.param)].view().block(use.row0, use.rows, use.col0, use.cols));
  }
  return views;
}

template <class S>
double Pass<S>::forward(const Observer<S>& observer) {
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    const auto x = inputs_of(node);
    const auto theta = params_of(node);
    const Down<S> door{batch_, x, theta, outputs_[i].view(), keeps_[i].view()};
    std::visit([&](const auto& op) { op.forward(door); }, node.op);
    if (observer.forward) observer.forward(static_cast<int>(i), door.y, door.keep);
  }
  double loss = 0;
  const View<const S> shares = output(static_cast<int>(graph_.nodes.size()) - 1);
  for (Index t = 0; t < shares.rows; ++t) loss += static_cast<double>(shares(t, 0));
  return loss;
}

template <class S>
Into<S> Pass<S>::wire_gradient(int wire) {
  auto& gradient = wire_gradients_[static_cast<std::size_t>(wire)];
  const bool add = gradient.size() > 0;
  if (!add) gradient = pool_.take(batch_.tokens(), channels_of(graph_.nodes[static_cast<std::size_t>(wire)].op));
  return {gradient.view(), add};
}

template <class S>
Into<S> Pass<S>::param_gradient(const ParamUse& use) {
  auto& gradient = param_gradients_[static_cast<std::size_t>(use.param)];
  auto& written = written_[static_cast<std::size_t>(use.param)];
  const Param& p = graph_.params[static_cast<std::size_t>(use.param)];
  if (gradient.size() == 0) gradient = pool_.take(p.rows(), p.cols());
  const bool add = std::ranges::find(written, use) != written.end();
  if (!add) written.push_back(use);
  return {gradient.view().block(use.row0, use.rows, use.col0, use.cols), add};
}

template <class S>
void Pass<S>::finish_params(std::size_t node, const Observer<S>& observer) {
  for (const ParamUse& use : graph_.nodes[node].params) {
    const auto k = static_cast<std::size_t>(use.param);
    if (first_use_[k] != node || param_gradients_[k].size() == 0) continue;
    if (observer.parameter) observer.parameter(use.param, param_gradients_[k].view());
    pool_.give(std::exchange(param_gradients_[k], {}));
    written_[k].clear();
  }
}

template <class S>
void Pass<S>::backward(const Observer<S>& observer) {
  const std::size_t last = graph_.nodes.size() - 1;
  const Into<S> seed = wire_gradient(static_cast<int>(last));
  std::fill_n(seed.d.data, seed.d.size(), S(1));
  for (std::size_t i = last + 1; i-- > 0;) {
    if (wire_gradients_[i].size() == 0) continue;  // nothing downstream reads it
    const Node& node = graph_.nodes[i];
    const View<const S> dy = wire_gradients_[i].view();
    if (observer.backward) observer.backward(static_cast<int>(i), dy);
    const auto x = inputs_of(node);
    const auto theta = params_of(node);
    std::vector<Into<S>> dx, dtheta;
    for (const int wire : node.inputs) dx.push_back(wire_gradient(wire));
    for (const ParamUse& use : node.params) dtheta.push_back(param_gradient(use));
    const Up<S> door{batch_, x, theta, outputs_[i].view(), keeps_[i].view(), dy, dx, dtheta};
    std::visit([&](const auto& op) { op.backward(door); }, node.op);
    finish_params(i, observer);
    pool_.give(std::exchange(wire_gradients_[i], {}));
  }
}

template class Pass<float>;
template class Pass<double>;

}  // namespace stepzero
