#include "stepzero/pass/train.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/kernels/statistics.hpp"

namespace stepzero {

namespace {

// What the optimiser remembers of each parameter. AdamW: Loshchilov and Hutter 2019.
class Steps {
 public:
  Steps(const Graph& graph, const TrainOptions& options) : graph_(graph), options_(options) {
    for (const Param& p : graph.params) {
      const auto n = static_cast<std::size_t>(p.size());
      layers_ = std::max<Index>(layers_, p.layer + 1);
      gradient_.emplace_back(n, 0.0F);
      first_.emplace_back(uses_first() ? n : 0, 0.0F);
      second_.emplace_back(options.optimiser == Optimiser::adamw ? n : 0, 0.0F);
    }
  }

  void keep(int param, View<const float> d) {
    squares_ += sum_squares(d);
    std::copy_n(d.data, d.size(), gradient_[static_cast<std::size_t>(param)].begin());
  }

  // Returns the norm of the gradient.
  double take(Pass<float>& pass, int step) {
    const double norm = std::sqrt(squares_);
    squares_ = 0;
    const double shrink = options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1;
    const double rate = options_.rate * (step < options_.warmup ? (step + 1.0) / options_.warmup : 1);
    for (std::size_t i = 0; i < graph_.params.size(); ++i) {
      const double own = rate * layer_share(graph_.params[i], layers_, options_);
      const View<float> w = pass.weight(static_cast<int>(i));
      if (graph_.params[i].rows() > 1 && options_.weight_decay > 0) {
        const auto kept = static_cast<float>(1 - own * options_.weight_decay);
        for (Index k = 0; k < w.size(); ++k) w.data[k] *= kept;
      }
      options_.optimiser == Optimiser::adamw ? adamw(i, w, own, shrink, step) : sgd(i, w, own, shrink);
    }
    return norm;
  }

 private:
  [[nodiscard]] bool uses_first() const { return options_.optimiser == Optimiser::adamw || options_.momentum != 0; }

  void adamw(std::size_t i, View<float> w, double rate, double shrink, int step) {
    const auto b1 = static_cast<float>(options_.beta1), b2 = static_cast<float>(options_.beta2);
    const auto eps = static_cast<float>(options_.eps), scale = static_cast<float>(shrink);
    const auto size = static_cast<float>(rate / (1 - std::pow(options_.beta1, step + 1)));
    const auto unbias = static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, step + 1)));
    float* m = first_[i].data();
    float* v = second_[i].data();
    const float* g = gradient_[i].data();
    for (Index k = 0; k < w.size(); ++k) {
      const float d = scale * g[k];
      m[k] = b1 * m[k] + (1 - b1) * d;
      v[k] = b2 * v[k] + (1 - b2) * d * d;
      w.data[k] -= size * m[k] / (std::sqrt(v[k]) * unbias + eps);
    }
  }

  void sgd(std::size_t i, View<float> w, double rate, double shrink) {
    const auto size = static_cast<float>(rate), scale = static_cast<float>(shrink), mu = static_cast<float>(options_.momentum);
    const float* g = gradient_[i].data();
    for (Index k = 0; k < w.size(); ++k) {
      float d = scale * g[k];
      if (mu != 0) d = first_[i][static_cast<std::size_t>(k)] = mu * first_[i][static_cast<std::size_t>(k)] + d;
      w.data[k] -= size * d;
    }
  }

  const Graph& graph_;
  const TrainOptions& options_;
  Index layers_ = 0;
  double squares_ = 0;
  std::vector<std::vector<float>> gradient_, first_, second_;
};

}  // namespace

double layer_share(const Param& p, Index layers, const TrainOptions& options) {
  const bool before = p.role == Role::token_embedding || p.role == Role::position_embedding;
  const Index place = p.layer >= 0 ? p.layer + 1 : before ? 0 : layers + 1;
  const Index distance = options.from_output ? layers + 1 - place : place;
  return std::pow(options.layer_decay, static_cast<double>(distance));
}

std::vector<TrainStep> train(Pass<float>& pass, const Graph& graph, const TrainOptions& options,
                             const std::function<void(int step)>& next) {
  Steps steps(graph, options);
  std::vector<TrainStep> run;
  for (int step = 0; step < options.steps; ++step) {
    next(step);
    const double loss = pass.forward();
    if (!std::isfinite(loss)) {
      run.push_back({loss, NAN});
      break;
    }
    pass.backward({.parameter = [&](int param, View<const float> d) { steps.keep(param, d); }});
    run.push_back({loss, steps.take(pass, step)});
  }
  return run;
}

}  // namespace stepzero
