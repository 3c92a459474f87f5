#pragma once
// Law L1 for one op:  <dy, J v> = <backward(dy), v>,  with v on one input or one parameter at a time, so that a small
// gradient cannot hide behind a large one. J v comes from dual numbers through the op's own forward.
#include <cmath>
#include <random>

#include "tests/laws/examples.hpp"

namespace stepzero::laws {

struct Duality {
  std::string where;       // "input 0", "parameter 1"
  double up = 0;           // <backward(dy), v>
  double down = 0;         // <dy, J v>
  double differences = 0;  // <dy, (f(x + h v) - f(x - h v)) / 2h>, the independent witness
  [[nodiscard]] double error() const { return std::abs(up - down) / std::max({std::abs(up), std::abs(down), 1e-300}); }
};

// What a mutant spoils: the gradient of one place by a factor. -1: nothing.
struct Spoil {
  int place = -1;
  double factor = 1.02;
};

// All tensors of one op in double, with random contents.
struct Stage {
  Batch batch = example_batch();
  std::vector<Tensor<double>> places;  // inputs, then parameters
  int inputs = 0;

  Stage(const Example& example, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto shapes = std::visit([](const auto& op) { return op.params(); }, example.op);
    const Index rows = std::visit([&](const auto& op) { return rows_before(op, batch); }, example.op);
    for (const Index channels : example.input_channels) places.push_back(draw(rows, channels, random));
    inputs = static_cast<int>(places.size());
    for (const auto& shape : shapes) places.push_back(draw(shape.rows, shape.cols, random));
  }

  static Tensor<double> draw(Index rows, Index cols, std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    Tensor<double> tensor(rows, cols);
    for (Index i = 0; i < tensor.size(); ++i) tensor.data()[i] = normal(random);
    return tensor;
  }
};

template <class S, class Operation>
Tensor<S> run_forward(const Operation& op, const Stage& stage, const std::vector<Tensor<S>>& places, Tensor<S>& keep) {
  std::vector<View<const S>> views(places.begin(), places.end());
  const std::span<const View<const S>> all(views);
  const Index rows = rows_after(op, stage.batch, rows_before(op, stage.batch));
  Tensor<S> y(rows, op.channels());
  keep = Tensor<S>(rows, std::max<Index>(op.keep(), 1));
  op.forward(
      Down<S>{stage.batch, all.first(stage.inputs), all.subspan(stage.inputs), y.view(), View<S>(keep.data(), keep.rows(), op.keep())});
  return y;
}

template <class S, class Operation>
std::vector<Tensor<S>> run_backward(const Operation& op, const Stage& stage, const std::vector<Tensor<S>>& places, const Tensor<S>& y,
                                    const Tensor<S>& keep, const Tensor<S>& dy, bool add, S before) {
  std::vector<View<const S>> views(places.begin(), places.end());
  const std::span<const View<const S>> all(views);
  std::vector<Tensor<S>> gradients;
  std::vector<Into<S>> into;
  for (const auto& place : places) {
    auto& g = gradients.emplace_back(place.rows(), place.cols());
    std::fill_n(g.data(), g.size(), before);
    into.push_back({g.view(), add});
  }
  const std::span<const Into<S>> ways(into);
  op.backward(Up<S>{stage.batch, all.first(stage.inputs), all.subspan(stage.inputs), y.view(),
                    View<const S>(keep.data(), keep.rows(), op.keep()), dy.view(), ways.first(stage.inputs), ways.subspan(stage.inputs)});
  return gradients;
}

inline double inner(const Tensor<double>& a, const Tensor<double>& b) {
  double sum = 0;
  for (Index i = 0; i < a.size(); ++i) sum += a.data()[i] * b.data()[i];
  return sum;
}

template <class Operation>
double along(const Operation& op, const Stage& stage, std::size_t place, const Tensor<double>& v, const Tensor<double>& dy) {
  std::vector<Tensor<Dual>> duals;
  for (std::size_t k = 0; k < stage.places.size(); ++k) {
    const auto& from = stage.places[k];
    auto& to = duals.emplace_back(from.rows(), from.cols());
    for (Index i = 0; i < from.size(); ++i) to.data()[i] = {from.data()[i], k == place ? v.data()[i] : 0.0};
  }
  Tensor<Dual> keep;
  const Tensor<Dual> y = run_forward(op, stage, duals, keep);
  double sum = 0;
  for (Index i = 0; i < y.size(); ++i) sum += dy.data()[i] * y.data()[i].slope;
  return sum;
}

template <class Operation>
double by_differences(const Operation& op, const Stage& stage, std::size_t place, const Tensor<double>& v, const Tensor<double>& dy) {
  constexpr double h = 1e-5;
  const auto at = [&](double sign) {
    std::vector<Tensor<double>> moved;
    for (std::size_t k = 0; k < stage.places.size(); ++k) {
      const auto& from = stage.places[k];
      auto& to = moved.emplace_back(from.rows(), from.cols());
      for (Index i = 0; i < from.size(); ++i) to.data()[i] = from.data()[i] + (k == place ? sign * h * v.data()[i] : 0.0);
    }
    Tensor<double> keep;
    return inner(dy, run_forward(op, stage, moved, keep));
  };
  return (at(1) - at(-1)) / (2 * h);
}

inline std::vector<Duality> check_duality(const Example& example, std::uint64_t seed, Spoil spoil = {}) {
  return std::visit(
      [&](const auto& op) {
        const Stage stage(example, seed);
        std::mt19937_64 random(seed + 1);
        Tensor<double> keep;
        const Tensor<double> y = run_forward(op, stage, stage.places, keep);
        const Tensor<double> dy = Stage::draw(y.rows(), y.cols(), random);
        auto gradients = run_backward(op, stage, stage.places, y, keep, dy, false, std::nan(""));
        std::vector<Duality> rows;
        for (std::size_t k = 0; k < stage.places.size(); ++k) {
          if (static_cast<int>(k) == spoil.place) {
            for (Index i = 0; i < gradients[k].size(); ++i) gradients[k].data()[i] *= spoil.factor;
          }
          const Tensor<double> v = Stage::draw(stage.places[k].rows(), stage.places[k].cols(), random);
          const bool input = static_cast<int>(k) < stage.inputs;
          rows.push_back({input ? "input " + std::to_string(k) : "parameter " + std::to_string(k - stage.inputs), inner(gradients[k], v),
                          along(op, stage, k, v, dy), by_differences(op, stage, k, v, dy)});
        }
        return rows;
      },
      example.op);
}

}  // namespace stepzero::laws
