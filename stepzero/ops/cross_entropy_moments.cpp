// The moment doors of the loss: what a softmax over V Gaussian logits does.
#include <algorithm>
#include <array>
#include <cmath>

#include "stepzero/core/random.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/ops/cross_entropy.hpp"

namespace stepzero {

namespace {

// Of V independent logits of variance v: E ln sum exp, and E sum p^2.
struct Softmax {
  double log_sum;
  double sum_squares;
};

// Small variance: the sum is sharp, ln E less half its relative variance. Large: a few logits carry it, so draw them.
Softmax gaussian_softmax(double v, double vocab) {
  const double relative_variance = std::expm1(v) / vocab;
  if (relative_variance < 0.01) return {std::log(vocab) + v / 2 - relative_variance / 2, std::exp(v) / vocab};
  const int draws = static_cast<int>(std::clamp(8192 / vocab, 32.0, 1024.0));
  const double root = std::sqrt(v);
  constexpr double nothing = 60;  // e^-60 of the largest, times any vocabulary
  std::vector<double> z(static_cast<std::size_t>(vocab));
  Softmax mean{0, 0};
  for (int d = 0; d < draws; ++d) {
    fill(Distribution::normal(1), make_stream(0, "logits"), static_cast<std::uint64_t>(d) * z.size(), std::span<double>(z));
    double top = -1e300, sum = 0, squares = 0;
    for (const double x : z) top = std::max(top, x);
    const double least = top - nothing / root;
    for (const double x : z) {
      if (x < least) continue;
      const double e = std::exp(root * (x - top));
      sum += e;
      squares += e * e;
    }
    mean.log_sum += (root * top + std::log(sum)) / draws;
    mean.sum_squares += squares / (sum * sum) / draws;
  }
  return mean;
}

// v without the last bits, which rounding decides.
double without_rounding(double v) {
  constexpr double grid = 0x1p40;
  int exponent = 0;
  const double mantissa = std::frexp(v, &exponent);
  return std::ldexp(std::round(mantissa * grid) / grid, exponent);
}

// Of variances that differ by rounding only, those of the tokens on the way down and on the way up, once. What is found does not depend
// on what was asked before: draws of kernels ask in an order that threads decide.
Softmax gaussian_softmax_once(double v, double vocab) {
  struct Known {
    double v = -1, vocab = 0;
    Softmax softmax{};
  };
  thread_local std::array<Known, 16> known;
  thread_local std::size_t next = 0;
  v = without_rounding(v);
  const auto it = std::ranges::find_if(known, [&](const Known& k) { return k.vocab == vocab && k.v == v; });
  if (it != known.end()) return it->softmax;
  Known& made = known[next++ % known.size()];
  made = {v, vocab, gaussian_softmax(v, vocab)};
  return made.softmax;
}

// The softmax of every token, with the own id's logit set apart under a tied head.
struct Tokens {
  std::vector<double> log_sum, own_probability, own_logit, sum_squares;
  bool tied;

  Tokens(const Moment& x, Index tokens, double vocab) : tied(!x.own.empty()) {
    for (Index t = 0; t < tokens; ++t) {
      const Softmax rest = gaussian_softmax_once(x.K(t, t), tied ? vocab - 1 : vocab);
      const double mu = x.own_at(t);
      const double top = std::max(mu, rest.log_sum);
      const double total = tied ? top + std::log(std::exp(mu - top) + std::exp(rest.log_sum - top)) : rest.log_sum;
      log_sum.push_back(total);
      own_logit.push_back(mu);
      own_probability.push_back(tied ? std::exp(mu - total) : 0);
      sum_squares.push_back(rest.sum_squares);
    }
  }
};

// E<dx_t, x_s> from the mean logits: that of the id of s is own_logit[s], all others are 0.
template <class Probability>
Matrix along_embeddings(const Batch& batch, const std::vector<double>& own_logit, const Probability& probability, double n) {
  Matrix to(batch.tokens(), batch.tokens());
  for (Index t = 0; t < batch.tokens(); ++t) {
    for (Index s = 0; s < batch.tokens(); ++s) {
      const double target = batch.targets[t] == batch.ids[s] ? 1 : 0;
      to(t, s) = batch.targets[t] < 0 ? 0 : own_logit[s] * (probability(t, batch.ids[s]) - target) / n;
    }
  }
  return to;
}

}  // namespace

Moment CrossEntropy::push(const PushDoor& p) const {
  const Tokens tokens(*p.x[0], p.x[0]->K.tokens(), static_cast<double>(vocab));
  const double n = scored(p.batch);
  Moment y;
  for (Index t = 0; t < p.x[0]->K.tokens(); ++t) {
    const bool own = tokens.tied && p.batch.targets[t] == p.batch.ids[t];
    y.mean.push_back(p.batch.targets[t] < 0 ? 0 : (tokens.log_sum[t] - (own ? tokens.own_logit[t] : 0)) / n);  // (4)
  }
  y.K = Kernel::from(p.x[0]->K.tokens(), [&](Index t, Index s) { return y.mean[t] * y.mean[s]; });
  return y;
}

// One draw's loss differs mostly by the logits of the targets.
std::any CrossEntropy::note(const PushDoor& p) const {
  const double n = scored(p.batch);
  double variance = 0;
  for (Index t = 0; t < p.x[0]->K.tokens(); ++t) {
    for (Index s = 0; s < p.x[0]->K.tokens(); ++s) {
      if (p.batch.targets[t] >= 0 && p.batch.targets[t] == p.batch.targets[s]) variance += p.x[0]->K(t, s) / (n * n);
    }
  }
  return LossNote{variance};
}

Pulled CrossEntropy::pull(const PullDoor& p) const {
  const Moment& x = *p.x[0];
  const double v = static_cast<double>(vocab);
  const Tokens tokens(x, x.K.tokens(), v);
  const auto& own = tokens.own_probability;
  const auto& ids = p.batch.ids;
  const auto& targets = p.batch.targets;
  const double n = scored(p.batch);
  // p_t(y): the own id apart, the rest alike in expectation
  const auto probability = [&](Index t, Index y) { return tokens.tied && y == ids[t] ? own[t] : (1 - own[t]) / (tokens.tied ? v - 1 : v); };
  // <p_t, p_s>: e^(K_ts)/V for the rest, which at t = s is sum p^2
  const auto overlap = [&](Index t, Index s) {
    const double rest = std::sqrt(tokens.sum_squares[t] * tokens.sum_squares[s]) * std::exp(x.K(t, s) - (x.K(t, t) + x.K(s, s)) / 2);
    double sum = (1 - own[t]) * (1 - own[s]) * rest;
    if (tokens.tied) sum += ids[t] == ids[s] ? own[t] * own[s] : (own[t] * (1 - own[s]) + own[s] * (1 - own[t])) / v;
    return sum;
  };
  Kernel G = Kernel::from(p.x[0]->K.tokens(), [&](Index t, Index s) {
    if (targets[t] < 0 || targets[s] < 0) return 0.0;
    const double same = targets[t] == targets[s] ? 1 : 0;
    return p.dy.G(t, s) * (same - probability(t, targets[s]) - probability(s, targets[t]) + overlap(t, s)) / (n * n);  // (5)
  });
  // E<dx_t, x_t> = v (1 - sum p^2) / N by Stein's lemma: probabilities lean towards the larger logits
  auto head = std::make_shared<TiedHead>();
  for (Index t = 0; t < p.x[0]->K.tokens(); ++t) {
    const double squares = own[t] * own[t] + (1 - own[t]) * (1 - own[t]) * tokens.sum_squares[t];
    head->radial.push_back(targets[t] < 0 ? 0 : x.K(t, t) * (1 - squares) / n);
  }
  if (tokens.tied) head->shared = along_embeddings(p.batch, tokens.own_logit, probability, n);
  return {{Adjoint{G, std::move(head)}}, {}};
}

}  // namespace stepzero
