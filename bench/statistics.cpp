// The statistics of activations: checked against a naive double loop, then timed beside a plain reading of the memory.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <vector>

#include <fmt/format.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/statistics.hpp"

using namespace stepzero;

namespace {

struct Shape {
  Index rows, cols;
};

Tensor<float> signal(Shape shape) {
  Tensor<float> x(shape.rows, shape.cols);
  std::minstd_rand rng(7);
  std::normal_distribution<float> normal(0.1f, 1.0f);
  // A random table, read at a moving offset: drawing 13 million normals would take longer than all the rest.
  std::vector<float> table(65537);
  for (float& v : table) v = normal(rng);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = table[static_cast<std::size_t>(i * 31 % 65537)];
  return x;
}

double worst_error(const Tensor<float>& x) {
  const double n = static_cast<double>(x.size());
  double sum = 0, m2 = 0, squares = 0, pairs = 0;
  std::vector<double> total(static_cast<std::size_t>(x.cols()));
  for (Index i = 0; i < x.size(); ++i) sum += static_cast<double>(x.data()[i]);
  for (Index r = 0; r < x.rows(); ++r) {
    double norm = 0;
    for (Index c = 0; c < x.cols(); ++c) {
      const double v = static_cast<double>(x(r, c));
      norm += v * v;
      m2 += (v - sum / n) * (v - sum / n);
    }
    squares += norm;
    for (std::size_t c = 0; c < total.size(); ++c) {
      total[c] += static_cast<double>(x(r, static_cast<Index>(c))) / std::sqrt(norm);
    }
  }
  for (const double t : total) pairs += t * t;
  const double length = static_cast<double>(x.rows());
  const double cosine = (pairs - length) / (length * (length - 1));

  const SignalStats got = signal_stats<float>(x, 1, x.rows());
  // The cosine is promised to 4e-7; the others have a hundred thousandth of that.
  return std::max({std::abs(got.moments.mean - sum / n) * 1e5, std::abs(got.moments.m2 / m2 - 1) * 1e5,
                   std::abs(sum_squares<float>(x) / squares - 1) * 1e5,
                   std::abs(got.token_cosine - cosine) / (std::abs(cosine) + 1 / length)});
}

// Plain reading: the sum of floats in 64 chains, which the compiler turns into vector additions.
float read_all(View<const float> x) {
  std::vector<float> parts(static_cast<std::size_t>((x.rows + 31) / 32));
  parallel_ranges(x.rows, 32, [&](Index begin, Index end) {
    float lanes[64] = {};
    const float* p = x.row(begin);
    for (Index i = 0; i + 64 <= (end - begin) * x.cols; i += 64) {
      for (Index lane = 0; lane < 64; ++lane) lanes[lane] += p[i + lane];
    }
    for (const float lane : lanes) parts[static_cast<std::size_t>(begin / 32)] += lane;
  });
  float out = 0;
  for (const float part : parts) out += part;
  return out;
}

volatile double sink;

template <class F>
double gigabytes_per_second(const Tensor<float>& x, F&& f) {
  const double bytes = static_cast<double>(x.size()) * sizeof(float);
  const int repeats = std::max(3, static_cast<int>(3e8 / bytes));
  sink = f(x);
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    sink = f(x);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, bytes / time.count() * 1e-9);
  }
  return best;
}

}  // namespace

int main() {
  const std::vector<Shape> shapes = {{256, 768}, {256, 3072}, {1024, 3072}, {256, 50257}};
  const int all = threads();
  bool good = true;
  fmt::print("{:>12} {:>7} {:>10} {:>12} {:>6} {:>12} {:>6}  error\n", "shape", "threads", "read GB/s", "stats GB/s", "ratio",
             "squares GB/s", "ratio");
  for (const Shape shape : shapes) {
    const Tensor<float> x = signal(shape);
    const double error = worst_error(x);
    if (!(error <= 4e-7)) good = false;
    for (const int n : {1, all}) {
      set_threads(n);
      const double read = gigabytes_per_second(x, [](const auto& t) { return read_all(t); });
      const double stats = gigabytes_per_second(x, [](const auto& t) { return signal_stats<float>(t, 1, t.rows()).token_cosine; });
      const double squares = gigabytes_per_second(x, [](const auto& t) { return sum_squares<float>(t); });
      fmt::print("{:>12} {:>7} {:>10.1f} {:>12.1f} {:>6.2f} {:>12.1f} {:>6.2f}  {:.1e}{}\n", fmt::format("{}x{}", shape.rows, shape.cols),
                 n, read, stats, stats / read, squares, squares / read, error, good ? "" : " WRONG");
      if (all == 1) break;
    }
  }
  return good ? 0 : 1;
}
