#include "stepzero/pass/first_update.hpp"

#include <cmath>

namespace stepzero {

namespace {

template <class... F>
struct Match : F... {
  using F::operator()...;
};

// AdamW: averages of one number, unbiased, are that number: g / (|g| + eps).
template <class S>
std::function<void(S*, Index)> adam_direction(double shrink, double eps) {
  return [shrink = S(shrink), eps = S(eps)](S* g, Index n) {
    for (Index i = 0; i < n; ++i) {
      const S d = shrink * g[i];
      g[i] = d == S(0) ? S(0) : d / (std::abs(d) + eps);
    }
  };
}

template <class S>
void lion_direction(S* g, Index n) {
  for (Index i = 0; i < n; ++i) g[i] = g[i] > S(0) ? S(1) : g[i] < S(0) ? S(-1) : S(0);
}

// The first momentum is the gradient; Nesterov's look ahead adds it once more.
template <class R>
double first_momentum(const R& rule) {
  return rule.nesterov ? 1 + rule.momentum : 1;
}

// g = D'X over all blocks, D = C F', X = L B': polar(g) = F polar(C'L) B', and so of any odd function of g.
template <class S>
void plan_muon(const Muon& rule, double shrink, std::span<FirstPass<S>* const> blocks) {
  const Index tokens = blocks[0]->space.tokens;
  std::vector<double> gram(blocks[0]->down.gram.size(), 0.0);
  for (const FirstPass<S>* block : blocks) {
    for (std::size_t i = 0; i < gram.size(); ++i) gram[i] += block->down.gram[i];
  }
  const auto left = std::make_shared<const RowSpace>(factor(std::move(gram), tokens));
  const auto right = std::make_shared<const RowSpace>(blocks[0]->space);
  Tensor<double> core(left->rank, right->rank);
  const double by = shrink * first_momentum(rule);
  for (Index i = 0; i < core.rows(); ++i) {
    for (Index j = 0; j < core.cols(); ++j) {
      core(i, j) = by * row_sum<double>(tokens, [&](Index t) { return left->row(t)[i] * right->row(t)[j]; });
    }
  }
  const View<const double> m = std::as_const(core).view();
  Tensor<double> turned = rule.newton_schulz > 0 ? newton_schulz_factor(m, rule.newton_schulz) : polar_factor(m);
  for (Index i = 0; i < turned.size(); ++i) turned.data()[i] *= rule.scale;
  for (FirstPass<S>* block : blocks) {
    block->update.left = left;
    block->update.right = right;
    block->update.core = Tensor<double>(turned.rows(), turned.cols());
    std::copy_n(turned.data(), turned.size(), block->update.core.data());
  }
}

}  // namespace

template <class S>
void update_first(const TensorPlan& plan, View<S> w, View<const S> g, double shrink) {
  if (plan.skips_zero && std::all_of(g.data, g.data + g.size(), [](S x) { return x == S(0); })) return;
  std::vector<Tensor<S>> memory = blank_memory<S>(plan.rule, w.rows, w.cols);
  const Turn<S> turn{w, g, shrink, plan.rate, 0, memory};
  std::visit(
      [&](const auto& rule) {
        if constexpr (requires { rule.update(turn); }) {
          rule.update(turn);
        } else {
          rule.finish(rule.take(turn), memory[0]);
        }
      },
      plan.rule);
}

template <class S>
void plan_first_update(const TensorPlan& plan, double shrink, std::span<FirstPass<S>* const> all) {
  std::vector<FirstPass<S>*> blocks;
  for (FirstPass<S>* block : all) {
    block->update = {.rate = plan.rate.rate, .decay = plan.rate.decay};
    if (plan.rate.rate == 0) continue;  // there is nothing to make
    if (block->x.rows() > 0 && block->space.finite && block->down.finite) blocks.push_back(block);
    if (block->x.rows() == 0 && plan.skips_zero) block->update.decay = 0;
  }
  if (blocks.empty()) return;
  const auto by_element = [&](const std::function<void(S*, Index)>& direction) {
    for (FirstPass<S>* block : blocks) block->update.by_element = direction;
  };
  std::visit(Match{[&](const Sgd& rule) {
                     for (FirstPass<S>* block : blocks) block->update.times = shrink * first_momentum(rule);
                   },
                   [&](const AdamW&) { by_element(adam_direction<S>(shrink, plan.rate.eps)); },
                   [&](const Lion&) { by_element(lion_direction<S>); }, [&](const Muon& rule) { plan_muon<S>(rule, shrink, blocks); }},
             plan.rule);
}

template void update_first(const TensorPlan&, View<float>, View<const float>, double);
template void update_first(const TensorPlan&, View<double>, View<const double>, double);
template void plan_first_update(const TensorPlan&, double, std::span<FirstPass<float>* const>);
template void plan_first_update(const TensorPlan&, double, std::span<FirstPass<double>* const>);

}  // namespace stepzero
