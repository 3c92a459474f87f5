// Steps of real weights.
#include <cmath>
#include <limits>
#include <utility>

#include "stepzero/kernels/products.hpp"
#include "stepzero/kernels/spectral_norm.hpp"
#include "stepzero/kernels/statistics.hpp"
#include "stepzero/pass/step_scan.hpp"
#include "stepzero/pass/steps.hpp"
#include "stepzero/signal/describe.hpp"

namespace stepzero {

struct RealSteps::State {
  const Graph& graph;
  const Batch& batch;
  const StepOptions& options;
  Pass<float> other;
  std::vector<Tensor<float>> gradients;  // after an update: that update
  double squares = 0;                    // of the whole gradient

  [[nodiscard]] std::size_t count() const { return graph.params.size(); }

  void keep(int param, View<const float> d) {
    Tensor<float>& to = gradients[static_cast<std::size_t>(param)];
    if (to.size() == 0) to = Tensor<float>(d.rows, d.cols);
    std::copy_n(d.data, d.size(), to.data());
    squares += sum_squares(d);
  }

  // A parameter that nothing depends on has no gradient.
  void update(Optimizer<float>& optimizer, Pass<float>& before, Pass<float>& after) {
    const double shrink = clipped_share(std::sqrt(std::exchange(squares, 0.0)), options.optimizer.clip);
    for (std::size_t k = 0; k < count(); ++k) {
      const int param = static_cast<int>(k);
      const View<float> w = before.weight(param), to = after.weight(param);
      std::copy_n(w.data, w.size(), to.data);
      if (gradients[k].size() > 0) optimizer.take(param, to, std::as_const(gradients[k]).view(), 1, shrink);
    }
    optimizer.finish();
  }

  // What the update is, and takes from the loss; leaves it in the place of the gradients.
  void look_at_update(Pass<float>& before, Pass<float>& after, StepSignal& step) {
    double decrease = 0;
    for (std::size_t k = 0; k < count(); ++k) {
      const View<const float> w = before.weight(static_cast<int>(k)), now = after.weight(static_cast<int>(k));
      StepSignal::Parameter& p = step.parameters[k];
      if (gradients[k].size() == 0) continue;
      float* d = gradients[k].data();
      constexpr Index piece = Index{1} << 16;
      std::vector<double> along(static_cast<std::size_t>((w.size() + piece - 1) / piece));
      parallel_ranges(w.size(), piece, [&](Index i0, Index i1) {
        along[static_cast<std::size_t>(i0 / piece)] = row_sum<double>(i1 - i0, [&](Index i) {
          const float change = now.data[i0 + i] - w.data[i0 + i];
          return static_cast<double>(std::exchange(d[i0 + i], change)) * static_cast<double>(change);
        });
      });
      double sum = 0;
      for (const double part : along) sum += part;
      const View<const float> change = std::as_const(gradients[k]).view();
      const double norm = std::sqrt(sum_squares(change)), weights = std::sqrt(sum_squares(w));
      p.update_norm.measured = norm;
      if (weights > 0) p.relative.measured = norm / weights;
      if (w.rows > 1 && w.cols > 1) p.spectral_norm.measured = spectral_norm(change);
      p.decrease.measured = -sum;
      decrease -= sum;
    }
    step.first_order.measured = -decrease;
  }

  // The loss along the update, in the pass that is not needed any more.
  void search(Pass<float>& scratch, Pass<float>& after, double rate, StepSignal& step) {
    for (const double factor : searched_rates()) {
      for (std::size_t k = 0; k < count(); ++k) {
        const View<const float> w = after.weight(static_cast<int>(k));
        const View<float> to = scratch.weight(static_cast<int>(k));
        const float* d = gradients[k].data();
        const auto by = static_cast<float>(factor - 1);
        if (gradients[k].size() == 0) continue;
        parallel_ranges(w.size(), Index{1} << 16, [&](Index i0, Index i1) {
          for (Index i = i0; i < i1; ++i) to.data[i] = w.data[i] + by * d[i];
        });
      }
      StepSignal::Rate at{.rate = rate * factor};
      at.loss.measured = scratch.forward();
      step.rates.push_back(std::move(at));
    }
  }
};

RealSteps::RealSteps(const Graph& graph, const Batch& batch, const StepOptions& options)
    : state_(new State{.graph = graph, .batch = batch, .options = options, .other = Pass<float>(graph, batch), .gradients = {}}) {
  state_->gradients.resize(graph.params.size());
}

RealSteps::~RealSteps() = default;

Observer<float> RealSteps::observer() {
  return {.parameter = [this](int param, View<const float> d) { state_->keep(param, d); }};
}

void RealSteps::run(Pass<float>& pass, Signal& signal, const std::function<void()>& tick) {
  State& s = *state_;
  Optimizer<float> optimizer(s.graph, s.options.optimizer, s.options.rates);
  Pass<float>*before = &pass, *after = &s.other;
  double loss = signal.loss.measured.value_or(std::numeric_limits<double>::quiet_NaN());
  for (int k = 0; k < s.options.steps; ++k) {
    if (k > 0) before->backward(observer());
    StepSignal& step = signal.steps.emplace_back(describe_step(s.graph, signal));
    step.before.measured = loss;
    s.update(optimizer, *before, *after);
    s.look_at_update(*before, *after, step);
    StepScan<float> scan(s.graph, s.batch, *before, *after, nullptr, step);
    loss = after->forward({.forward = [&](int node, View<const float> y, View<const float> keep) {
      scan.look(node, y, keep);
      if (tick) tick();
    }});
    scan.finish();
    step.after.measured = loss;
    if (k == 0 && s.options.search) s.search(*before, *after, s.options.optimizer.rate.value_or(0), step);
    std::swap(before, after);
  }
}

double RealSteps::memory_needed(const Graph& graph, const Batch& batch, const StepOptions& options) {
  double numbers = 0;  // gradients, and what the optimizer remembers
  const std::vector<TensorPlan> plans = plan_tensors(graph, options.optimizer, options.rates);
  for (std::size_t k = 0; k < plans.size(); ++k) {
    const int memories = std::visit([](const auto& rule) { return rule.memories(); }, plans[k].rule);
    numbers += (1.0 + memories) * static_cast<double>(graph.params[k].size());
  }
  return 2 * Pass<float>::memory_needed(graph, batch) + numbers * sizeof(float);
}

}  // namespace stepzero
