// Normalised Hermite polynomials h_k = He_k / sqrt(k!):   sqrt(k+1) h_{k+1}(x) = x h_k(x) - sqrt(k) h_{k-1}(x)    (1)
// They form a Sturm chain: the sign changes of h_0 .. h_n at x count the roots of h_n above x.                      (2)
// h_n' = sqrt(n) h_{n-1}, and the weight of a root is 1 / (n h_{n-1}^2).                                            (3)
// Roots: bisection by (2), which cannot lose one, then Newton. For n = 200 values stay below 1e90: nothing overflows.
#include "stepzero/core/gauss.hpp"

#include <array>

#include "stepzero/core/lock.hpp"

namespace stepzero {

namespace {

struct Rule {
  std::vector<double> nodes;
  std::vector<double> weights;
};

struct Chain {
  long double value;     // h_n(x)
  long double previous;  // h_{n-1}(x)
  int roots_above;
};

Chain evaluate(int n, long double x) {
  static const auto roots = [] {
    std::array<long double, GaussHermite::max_nodes + 1> out;
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = std::sqrt(static_cast<long double>(k));
    return out;
  }();
  long double previous = 0;
  long double value = 1;
  int changes = 0;
  for (std::size_t k = 0; k < static_cast<std::size_t>(n); ++k) {
    const long double next = (x * value - roots[k] * previous) / roots[k + 1];  // (1)
    previous = value;
    value = next;
    if ((value < 0) != (previous < 0)) ++changes;
  }
  return {value, previous, changes};
}

// The root that has `above` roots above it, for those right of 0.
long double positive_root(int n, int above) {
  long double low = 0;
  long double high = 2 * std::sqrt(static_cast<long double>(n));
  for (int step = 0; step < 30; ++step) {
    const long double middle = (low + high) / 2;
    (evaluate(n, middle).roots_above > above ? low : high) = middle;  // (2)
  }
  long double x = (low + high) / 2;
  for (int step = 0; step < 2; ++step) {
    const Chain chain = evaluate(n, x);
    x -= chain.value / (std::sqrt(static_cast<long double>(n)) * chain.previous);  // (3)
  }
  return x;
}

Rule make_rule(int n) {
  const std::size_t size = static_cast<std::size_t>(n);
  Rule rule{std::vector<double>(size), std::vector<double>(size)};
  for (int i = 0; i < (n + 1) / 2; ++i) {
    const bool centre = 2 * i + 1 == n;
    const long double x = centre ? 0 : positive_root(n, i);
    const long double slope = evaluate(n, x).previous;
    const double weight = static_cast<double>(1 / (static_cast<long double>(n) * slope * slope));  // (3)
    const std::size_t left = static_cast<std::size_t>(i);
    const std::size_t right = size - 1 - left;
    rule.nodes[left] = -static_cast<double>(x);
    rule.nodes[right] = static_cast<double>(x);
    rule.weights[left] = rule.weights[right] = weight;
  }
  return rule;
}

const Rule& cached_rule(int n) {
  static std::array<Rule, GaussHermite::max_nodes + 1> rules;
  static Lock lock;
  const Hold hold(lock);
  Rule& rule = rules[static_cast<std::size_t>(n)];
  if (rule.nodes.empty()) rule = make_rule(n);
  return rule;
}

HalfLine make_half_line(int per_unit) {
  HalfLine out;
  // z from 1e-17, below which nothing lies, to 14, above which exp(-z^2/2) leaves 1e-43.
  for (int i = -11 * per_unit / 3; i <= 16 * per_unit / 3; ++i) {
    const double t = static_cast<double>(i) / per_unit;
    const double z = std::exp(t / 2 - std::exp(-t));
    const double width = z * (0.5 + std::exp(-t)) / per_unit;
    out.nodes.push_back(z);
    out.weights.push_back(width * std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi));
  }
  return out;
}

struct Legendre {
  double node;  // in (0, 1)
  double weight;
};

Legendre legendre(int n, int i) {
  const auto size = static_cast<long double>(n);
  long double x = std::cos(std::numbers::pi_v<long double> * (static_cast<long double>(i) + 0.75L) / (size + 0.5L));
  long double slope = 1;
  for (int step = 0; step < 6; ++step) {
    long double previous = 1;
    long double value = x;
    for (int k = 1; k < n; ++k) {
      const auto order = static_cast<long double>(k);
      const long double next = ((2 * order + 1) * x * value - order * previous) / (order + 1);
      previous = value;
      value = next;
    }
    slope = size * (x * value - previous) / (x * x - 1);
    x -= value / slope;
  }
  return {static_cast<double>((1 - x) / 2), static_cast<double>(1 / ((1 - x * x) * slope * slope))};
}

// Gauss-Legendre in p with x = p^2 (3 - 2p): steep activations bend near both ends of the sector.
Sector make_sector(int n) {
  const HalfLine radii = make_half_line(6);
  Sector out;
  out.radii = radii.nodes;
  for (std::size_t j = 0; j < radii.nodes.size(); ++j) {
    out.radial_weights.push_back(radii.weights[j] * std::sqrt(2 * std::numbers::pi) * radii.nodes[j]);
  }
  for (int i = 0; i < n; ++i) {
    const double p = legendre(n, i).node;
    const double q = legendre(n, n - 1 - i).node;  // 1 - p, with its own digits
    out.share.push_back(p * p * (3 - 2 * p));
    out.rest.push_back(q * q * (3 - 2 * q));
    out.angle_weights.push_back(6 * p * q * legendre(n, i).weight);
  }
  return out;
}

}  // namespace

const HalfLine& half_line() {
  static const HalfLine rule = make_half_line(12);
  return rule;
}

const Sector& sector() {
  static const Sector rule = make_sector(40);
  return rule;
}

GaussHermite::GaussHermite(int n) {
  STEPZERO_CHECK(n >= 1 && n <= max_nodes);
  const Rule& rule = cached_rule(n);
  nodes_ = rule.nodes;
  weights_ = rule.weights;
}

}  // namespace stepzero
