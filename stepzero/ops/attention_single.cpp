// The moment doors of attention in one draw of a model: its own heads, drawn once, with values of their own. Given them, what comes up
// is known in the mean over gradients; where heads turn its kernel before the turn is drawn.
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "stepzero/kernels/decompose.hpp"
#include "stepzero/ops/attention_heads.hpp"
#include "stepzero/ops/single_draw.hpp"

namespace stepzero {

DownWire push_drawn(const Attention& op, const PushDoor& p) {
  const HeadMaker maker(op, p.batch, p.x, p.theta, p.draws);
  const auto heads = std::make_shared<std::vector<HeadMaker::Head>>();  // they stay for the way up
  const Index tokens = p.batch.tokens();
  Tensor<float> all(tokens, op.heads * op.value_dim);
  AttentionSummary sum;
  const double share = 1 / static_cast<double>(op.heads);
  for (Index i = 0; i < op.heads; ++i) {
    HeadMaker::Head& h = heads->emplace_back(maker.head(i));
    maker.draw_values(h, i);
    const Tensor<float> mix = maker.mixed(h);
    for (Index t = 0; t < tokens; ++t) std::copy_n(mix.view().row(t), mix.cols(), all.view().row(t) + i * mix.cols());
    const AttentionSummary own = h.op.summary(p.batch, View<const float>(h.keep.view()));
    sum.score_variance += share * (own.score_variance + (1 - share) * own.mean_score * own.mean_score);
    sum.entropy += share * own.entropy;
    sum.sum_squares += share * own.sum_squares;
  }
  DownWire out(Moment{.K = gram_in_double(all, share)});
  out.note = AttentionNote{.summary = sum, .keep = heads};
  return out;
}

Pulled pull_drawn(const Attention& op, const PullDoor& p) {
  const Kernel& G = p.dy.G;
  const Index tokens = p.batch.tokens();
  const double size = G.trace() / static_cast<double>(tokens);  // floats stay in range
  if (!(size > 0)) return {{UpWire(G), UpWire(G), UpWire(G)}, {}};
  const HeadMaker maker(op, p.batch, p.x, p.theta, p.draws);
  const Tensor<float> up = kernels::root(G, 1 / std::sqrt(size));
  const Tensor<float> field = product(Trans::yes, Trans::no, up, up);
  const HeadMaker::OutputProjection projection(maker, p.y, p.dy.r);
  HeadMaker::Reached to(tokens);
  std::array<Matrix, 5> sums = {zeros(tokens), zeros(tokens), zeros(tokens), zeros(tokens), zeros(tokens)};
  const auto& heads = *std::static_pointer_cast<const std::vector<HeadMaker::Head>>(note_of<AttentionNote>(p.y)->keep);
  for (Index i = 0; i < op.heads; ++i) {
    const HeadMaker::Head& h = heads[static_cast<std::size_t>(i)];
    maker.reach(h, up, field, projection, to);
    add(to.gq, sums[0]);
    add(to.gk, sums[1]);
    add(to.gv, sums[2]);
    if (!maker.turns()) continue;
    const HeadMaker::Sides d = maker.turned_back(maker.to_scores(h, up, p.draws.single * op.heads + i));
    gram(d.q, to.gq);
    gram(d.k, to.gk);
    add(to.gq, sums[3]);
    add(to.gk, sums[4]);
  }
  const double share = size / static_cast<double>(op.heads);
  const auto side = [&](std::size_t part) {
    const Kernel g = mean_of(sums[part], share);
    UpWire d(g);
    d.note = TurnedBack{g, {}};
    if (!maker.turns()) return d;
    // not put to the sizes of g, which are known: what cancels over the tokens would be spoilt, and biases and weights are made of it
    d.note = TurnedBack{mean_of(sums[part + 3], share), {}};
    return d;
  };
  return {{side(0), side(1), UpWire(mean_of(sums[2], share))}, {}};
}

}  // namespace stepzero
