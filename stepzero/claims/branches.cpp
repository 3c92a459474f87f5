#include "stepzero/claims/branches.hpp"

#include <cmath>

namespace stepzero::claims {

double Branches::forward() const {
  const double a = scale * scale;
  return gain > 0 ? 1 + count * a * gain * gain : std::pow(1 + a, count);
}

double Branches::backward() const {
  if (gain == 0) return forward();
  const double d = static_cast<double>(width), c = (1 - 1 / d) / (1 - 2 / d), step = scale * scale * gain * gain;
  double product = 1;
  for (int b = 0; b < count; ++b) {
    const double K = 1 + b * step, f = 1 + 5 / static_cast<double>(hidden) * b * step * step / (K * K);
    product *= 1 + step * c * f / K;
  }
  return product;
}

namespace {

struct Stack {
  Lab lab{1, 32};
  int start = 0, end = 0;
};

Stack stack_of(const Branches& b) {
  Stack stack;
  Lab& lab = stack.lab;
  stack.start = lab.source(b.width, Distribution::normal(1));
  const auto w1 = Distribution::normal(std::sqrt(2 / static_cast<double>(b.width)));
  const auto w2 = Distribution::normal(std::sqrt(1 / static_cast<double>(b.hidden)));
  int x = stack.start;
  for (int i = 0; i < b.count; ++i) {
    const int in = b.gain > 0 ? lab.add(RmsNorm{.width = b.width, .eps = 1e-12}, {x}, {Distribution::constant(b.gain)}) : x;
    const int h = lab.add(Elementwise<Relu>{b.hidden}, {lab.linear(in, b.hidden, w1)});
    x = lab.add(Residual{b.width, 1, b.scale}, {x, lab.linear(h, b.width, w2)});
  }
  stack.end = x;
  return stack;
}

}  // namespace

Running measure_forward(const Settings& settings, int draws, const Branches& b) {
  const Stack stack = stack_of(b);
  return stack.lab.run(settings, draws, [&](const Shot& shot) { return std::vector{shot.square(stack.end)}; })[0];
}

Running measure_backward(const Settings& settings, int draws, const Branches& b) {
  Stack stack = stack_of(b);
  stack.lab.pull(stack.end);
  return stack.lab.run(settings, draws, [&](const Shot& shot) { return std::vector{shot.gradient_square(stack.start)}; })[0];
}

}  // namespace stepzero::claims
