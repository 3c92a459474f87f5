#include "stepzero/train/run.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/kernels/statistics.hpp"

namespace stepzero {

namespace {

// The norm of the whole gradient is known only once all of it is there; and a mean only once all its parts are.
bool keeps_gradients(const TrainOptions& o) { return o.optimizer.clip > 0 || o.accumulate > 1; }

}  // namespace

template <class S>
TrainRun<S>::TrainRun(const Graph& graph, const Batch& batch, const TrainOptions& options, NextBatch next)
    : graph_(graph),
      options_(options),
      next_(std::move(next)),
      pass_(graph, batch),
      optimizer_(graph, options.optimizer, options.rates),
      made_(graph.params.size(), false) {
  if (!keeps_gradients(options)) return;
  for (const Param& p : graph.params) gradients_.push_back(p.frozen ? Tensor<S>() : Tensor<S>(p.rows(), p.cols()));
}

template <class S>
double TrainRun<S>::memory_needed(const Graph& graph, const Batch& batch, const TrainOptions& options) {
  double weights = 0;  // bytes of what is trained
  for (const Param& p : graph.params) weights += p.frozen ? 0 : static_cast<double>(p.size()) * sizeof(S);
  const double memories = options.optimizer.name == "adamw" ? 2 : 1;
  return Pass<S>::memory_needed(graph, batch) + weights * (memories + (keeps_gradients(options) ? 1 : 0));
}

// A pass down and up one batch: its gradients go to where they are kept, or to the optimizer at once. Returns the loss.
template <class S>
double TrainRun<S>::gather(int part) {
  next_(updates_, part);
  const double loss = pass_.forward();
  if (!std::isfinite(loss)) return loss;
  const double share = options_.schedule.share(updates_);
  pass_.backward({.parameter = [&](int param, View<const S> d) {
    const auto k = static_cast<std::size_t>(param);
    const double squares = sum_squares(d);
    if (broken_ < 0 && !std::isfinite(squares)) broken_ = param;
    if (broken_ >= 0) return;
    if (gradients_.empty()) {
      squares_ += squares;
      optimizer_.take(param, pass_.weight(param), d, share);
      return;
    }
    S* to = gradients_[k].data();
    if (!made_[k]) {
      std::copy_n(d.data, d.size(), to);
    } else {
      for (Index i = 0; i < d.size(); ++i) to[i] += d.data[i];
    }
    made_[k] = true;
  }});
  return loss;
}

template <class S>
TrainStep TrainRun<S>::step() {
  const double share = options_.schedule.share(updates_), parts = options_.accumulate;
  TrainStep out{.rate = *options_.optimizer.rate * share};
  squares_ = 0;
  std::fill(made_.begin(), made_.end(), false);
  for (int part = 0; part < options_.accumulate; ++part) {
    out.loss += gather(part) / parts;
    over_ = !std::isfinite(out.loss) || broken_ >= 0;
    if (over_) return out;
  }
  for (std::size_t k = 0; k < gradients_.size(); ++k) squares_ += made_[k] ? sum_squares<S>(gradients_[k].view()) / (parts * parts) : 0;
  out.gradient_norm = std::sqrt(squares_);
  update(share);
  ++updates_;
  return out;
}

template <class S>
void TrainRun<S>::update(double share) {
  const double shrink = clipped_share(std::sqrt(squares_), options_.optimizer.clip) / options_.accumulate;
  for (std::size_t k = 0; k < gradients_.size(); ++k) {
    const int param = static_cast<int>(k);
    if (made_[k]) optimizer_.take(param, pass_.weight(param), gradients_[k].view(), share, shrink);
  }
  optimizer_.finish();
}

template <class S>
TrainStep TrainRun<S>::look() {
  next_(updates_, 0);
  return {.loss = pass_.forward(), .rate = *options_.optimizer.rate * options_.schedule.share(updates_)};
}

template <class S>
std::string TrainRun<S>::where() {
  if (broken_ >= 0) {
    const auto uses = [this](const Node& node) {
      return std::ranges::any_of(node.params, [this](const ParamUse& use) { return use.param == broken_; });
    };
    return std::ranges::find_if(graph_.nodes, uses)->name;
  }
  std::string first;
  pass_.forward({.forward = [&](int node, View<const S> y, View<const S>) {
    if (first.empty() && !std::isfinite(sum_squares(y))) first = graph_.nodes[static_cast<std::size_t>(node)].name;
  }});
  return first;
}

template class TrainRun<float>;
template class TrainRun<double>;

}  // namespace stepzero
