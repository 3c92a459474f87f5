// The end of a pass, some rows at a time: logits and loss down and at once up, since the loss is last and its gradient is 1. Only the
// gradients of the head's input and of its weights stay; every piece adds to them.
#include <utility>

#include "stepzero/pass/pass.hpp"
#include "stepzero/pass/pass_plan.hpp"

namespace stepzero {

template <class S>
View<const S> Pass<S>::head_input(std::size_t i, Index first, Index rows) const {
  const View<const S> all = outputs_[static_cast<std::size_t>(graph_.nodes[i].inputs[0])].view();
  return all.slice(i == head_.begin ? first : 0, rows);
}

template <class S>
void Pass<S>::head_down(std::size_t i, Index first, Index rows) {
  const Node& node = graph_.nodes[i];
  if (outputs_[i].rows() == 0) outputs_[i] = pool_.take(rows_[i], channels_of(node.op));
  if (keeps_[i].rows() == 0) keeps_[i] = pool_.take(rows_[i], kept_by(node.op));
  hold_weights(node);
  const View<const S> x = head_input(i, first, rows);
  const auto theta = params_of(node);
  const Down<S> door{batch_, {&x, 1}, theta, outputs_[i].view().slice(0, rows), keeps_[i].view().slice(0, rows), first};
  std::visit([&](const auto& op) { op.forward(door); }, node.op);
}

template <class S>
void Pass<S>::head_up(std::size_t i, Index first, Index rows, const Observer<S>& observer) {
  const Node& node = graph_.nodes[i];
  const View<const S> dy = std::as_const(wire_gradients_[i]).view().slice(0, rows);
  if (observer.backward) observer.backward(static_cast<int>(i), dy);
  hold_weights(node);
  const View<const S> x = head_input(i, first, rows);
  const auto theta = params_of(node);
  // what the head reads has no other gradient yet: each piece writes rows of its own
  const Into<S> dx{wire_gradient(node.inputs[0]).d.slice(i == head_.begin ? first : 0, rows)};
  std::vector<Into<S>> dtheta;
  for (const ParamUse& use : node.params) dtheta.push_back(param_gradient(use));  // to add, from the second piece on
  const Up<S> door{
      batch_,   {&x, 1}, theta, std::as_const(outputs_[i]).view().slice(0, rows), std::as_const(keeps_[i]).view().slice(0, rows), dy,
      {&dx, 1}, dtheta,  first};
  std::visit([&](const auto& op) { op.backward(door); }, node.op);
  pool_.give(std::exchange(wire_gradients_[i], {}));
}

template <class S>
double Pass<S>::run_head(const Observer<S>& observer) {
  const std::size_t last = graph_.nodes.size() - 1;
  // of a pass down that no pass up followed
  for (const ParamUse& use : graph_.nodes[head_.begin].params) written_[static_cast<std::size_t>(use.param)].clear();
  pool_.give(std::exchange(wire_gradients_[static_cast<std::size_t>(graph_.nodes[head_.begin].inputs[0])], {}));
  double loss = 0;
  for (std::size_t piece = 0; piece + 1 < head_.cuts.size(); ++piece) {
    const Index first = head_.cuts[piece], rows = head_.cuts[piece + 1] - first;
    for (std::size_t i = head_.begin; i <= last; ++i) {
      head_down(i, first, rows);
      if (observer.forward) {
        observer.forward(static_cast<int>(i), outputs_[i].view().slice(0, rows), keeps_[i].view().slice(0, rows));
      }
    }
    const View<const S> shares = outputs_[last].view();
    for (Index t = 0; t < rows; ++t) loss += static_cast<double>(shares(t, 0));
    const Into<S> seed = wire_gradient(static_cast<int>(last));
    std::fill_n(seed.d.data, seed.d.size(), S(1));
    for (std::size_t i = last + 1; i-- > head_.begin;) head_up(i, first, rows, observer);
  }
  return loss;
}

template View<const float> Pass<float>::head_input(std::size_t, Index, Index) const;
template void Pass<float>::head_down(std::size_t, Index, Index);
template void Pass<float>::head_up(std::size_t, Index, Index, const Observer<float>&);
template double Pass<float>::run_head(const Observer<float>&);
template View<const double> Pass<double>::head_input(std::size_t, Index, Index) const;
template void Pass<double>::head_down(std::size_t, Index, Index);
template void Pass<double>::head_up(std::size_t, Index, Index, const Observer<double>&);
template double Pass<double>::run_head(const Observer<double>&);

}  // namespace stepzero
