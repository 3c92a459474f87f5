#include "stepzero/claims/training.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/pass/fill_pass.hpp"

namespace stepzero::claims {

namespace {

void fill_tokens(Batch& batch, const Task& task, std::uint64_t seed, int step) {
  std::vector<float> u(batch.ids.size());
  fill(Distribution::uniform(0.5, 0.5), make_stream(seed, fmt::format("step.{}", step)), 0, std::span<float>(u));
  for (std::size_t i = 0; i < u.size(); ++i) {
    batch.ids[i] = std::min(static_cast<std::int32_t>(u[i] * static_cast<float>(task.vocab)), static_cast<std::int32_t>(task.vocab - 1));
    const bool scored = static_cast<Index>(i) % task.length >= task.distance;
    batch.targets[i] = scored ? batch.ids[i - static_cast<std::size_t>(task.distance)] : -1;
  }
}

}  // namespace

Course train_runs(const Description& d, const Task& task, const Training& training, const Settings& settings, int runs) {
  Description own = d;
  own.tokens = task.length;
  own.source = "equal";
  own.set.push_back(fmt::format("vocab={}", task.vocab));
  Model model = make_model(own);
  model.batch.sequences = task.sequences;
  model.batch.ids.resize(static_cast<std::size_t>(model.batch.tokens()));
  model.batch.targets.resize(model.batch.ids.size());
  const OptimizerOptions adamw{.rate = training.rate, .beta2 = 0.99, .clip = 1};
  const TrainOptions options{.optimizer = settled(adamw).value(), .rates = training.rates, .schedule = {.warmup = 5}};
  std::vector<std::vector<TrainStep>> courses(static_cast<std::size_t>(runs));
  parallel_for(runs, [&](Index i) {
    Batch batch = model.batch;
    const std::uint64_t seed = settings.seed(static_cast<int>(i));
    TrainRun<float> run(model.graph, batch, options, [&](int step, int) { fill_tokens(batch, task, seed, step); });
    draw_weights(run.pass(), model.graph, model.laws, seed);
    auto& course = courses[static_cast<std::size_t>(i)];
    while (run.updates() < training.steps && !run.over()) course.push_back(run.step());
  });
  Course out;
  const auto steps = static_cast<std::size_t>(training.steps);
  out.loss.assign(steps, 0.0);
  out.gradient.assign(steps, 0.0);
  for (const auto& course : courses) {
    Running last, whole;
    double largest = 0;
    for (std::size_t s = 0; s < steps; ++s) {
      // a run that blew up stays where a uniform guess is
      const TrainStep at =
          s < course.size() && std::isfinite(course[s].loss) ? course[s] : TrainStep{std::log(static_cast<double>(task.vocab)), 0, 0};
      out.loss[s] += at.loss / static_cast<double>(runs);
      out.gradient[s] += at.gradient_norm / static_cast<double>(runs);
      whole.add(at.loss);
      largest = std::max(largest, at.gradient_norm);
      if (s >= steps - std::max<std::size_t>(1, steps / 10)) last.add(at.loss);
    }
    out.last.add(last.mean);
    out.largest.add(largest / course[0].gradient_norm);
    out.means.push_back(whole.mean);
  }
  return out;
}

RateTable layer_decay(Index layers, double decay, bool from_output) {
  const auto share = [&](Index place) { return std::pow(decay, static_cast<double>(from_output ? layers + 1 - place : place)); };
  RateTable table;
  table.rows.push_back({.layer = -1, .times = share(layers + 1)});
  for (const Role before : {Role::token_embedding, Role::position_embedding}) {
    table.rows.push_back({.role = before, .layer = -1, .times = share(0) / share(layers + 1)});
  }
  for (Index l = 0; l < layers; ++l) table.rows.push_back({.layer = static_cast<int>(l), .times = share(l + 1)});
  return table;
}

Curve loss_curve(std::string name, const Course& course) {
  Curve out{std::move(name), {}, course.loss};
  for (std::size_t i = 0; i < course.loss.size(); ++i) out.x.push_back(static_cast<double>(i));
  return out;
}

Course train_deep(const Settings& settings, const std::string& scheme, const std::vector<std::string>& set, int runs) {
  Description d{.scheme = scheme, .set = {"width=32", "heads=1", "position=sinusoidal", fmt::format("layers={}", kDeepLayers)}};
  d.set.insert(d.set.end(), set.begin(), set.end());
  const Task task{.vocab = 8, .length = 8, .sequences = 6};
  Course c = train_runs(d, task, {.steps = static_cast<int>(settings.size("steps")), .rate = 3e-3}, settings, runs);
  const double unit = std::log(static_cast<double>(task.vocab));
  c.last = {c.last.count, c.last.mean / unit, c.last.deviations / (unit * unit)};
  return c;
}

std::string residual_scale(double scale) { return fmt::format("residual_scale={}", scale); }

}  // namespace stepzero::claims
