// Attention at one step: drawn heads before and after it, or by what they told in a layer that is alike.
#include <algorithm>
#include <array>
#include <cmath>

#include "stepzero/ops/move/head_items.hpp"

namespace stepzero {

namespace {

const Attention& attention_of(const Chain& chain) { return std::get<Attention>(chain.nodes().back().op); }

Square response_of(const WireChange& x, double lean) {
  const ChannelMove& how = *x.channels;
  if (how.matrix == nullptr) return how.carried;
  const double rate = how.factor.of(how.matrix->weight), rate_b = how.factor.of(how.matrix->bias);
  const Square whole = Square::one(x.stretch.tokens()) + x.stretch;
  return how.carried + (rate * lean) * (whole * how.matrix->direct.A) + rate_b * how.matrix->of_bias.A;
}

// Sum of squares of the change of the scores, and how many there are.
std::pair<double, double> score_change(const Chain& chain, const Chain::Values& a, const Chain::Values& b, const Batch& batch) {
  const Attention& op = attention_of(chain);
  const std::size_t last = chain.nodes().size() - 1;
  const Index length = batch.length, group = op.heads / op.kv_heads, dk = op.key_dim;
  double sum = 0, count = 0;
  Tensor<double> s(length, length);
  for (Index i = 0; i < batch.sequences; ++i) {
    for (Index h = 0; h < op.heads; ++h) {
      const auto scores = [&](const Chain::Values& v, double sign, double beta) {
        gemm<double>(Trans::no, Trans::yes, sign * op.scale, chain.input_of(v, last, 0).block(i * length, length, h * dk, dk),
                     chain.input_of(v, last, 1).block(i * length, length, h / group * dk, dk), beta, s.view());
      };
      scores(a, 1, 0);
      scores(b, -1, 1);
      for (Index t = 0; t < length; ++t) {
        const auto see = op.visible(t, length);
        for (Index j = see.begin; j < see.end; ++j) sum += s(t, j) * s(t, j);
        count += static_cast<double>(see.end - see.begin);
      }
    }
  }
  return {sum, count};
}

Tensor<double> sum_of(const Tensor<double>& a, double c, const Tensor<double>& b) {
  Tensor<double> out(a.rows(), a.cols());
  for (Index i = 0; i < out.size(); ++i) out.data()[i] = a.data()[i] + c * b.data()[i];
  return out;
}

// The parameters of the chain after the step, for a sign of the gradient.
Chain::Parameters stepped(const HeadItems& s, const HeadItem& item, double step) {
  Chain::Parameters out;
  for (std::size_t n = 0; n < item.chain.theta().size(); ++n) {
    auto& list = out.emplace_back();
    for (std::size_t k = 0; k < item.chain.theta()[n].size(); ++k) {
      const bool moves = n < s.rates.size() && k < s.rates[n].size();
      list.push_back(sum_of(item.chain.theta()[n][k], moves ? -step * s.rates[n][k] : 0, item.updates[n][k]));
    }
  }
  return out;
}

// What is measured of one item.
struct Seen {
  std::vector<Square> size;  // of every node
  Square Y, response, values;
  double scores = 0, visible = 0;
};

// The response: the values' part as it is, the others' along the drawn direction.
Square measured_response(const HeadItems& s, const HeadItem& item, const std::vector<Square>& response, const Chain::Values& after,
                         const Chain::Parameters& theta) {
  const std::size_t inputs = response.size();
  Square out(s.inverse.tokens());
  const std::vector<Square> now = weights_of(item.chain, after, *s.batch, theta),
                            was = weights_of(item.chain, item.before, *s.batch, item.chain.theta());
  const double heads = static_cast<double>(now.size());
  for (std::size_t h = 0; h < now.size(); ++h) {
    const Square half = now[h] * response[s.value];
    gemm<double>(Trans::no, Trans::yes, 1 / heads, half.view(), was[h].view(), 1.0, out.view());
  }
  std::vector<Tensor<double>> forth(inputs), back(inputs);
  double shift = 0, size = 0;
  for (std::size_t k = 0; k < inputs; ++k) {
    if (k == s.value) continue;
    forth[k] = times(response[k], item.probed[k]);
    for (Index j = 0; j < forth[k].size(); ++j) {
      shift += forth[k].data()[j] * forth[k].data()[j];
      size += after.x[k].data()[j] * after.x[k].data()[j];
    }
  }
  if (!(shift > 0)) return out;
  const double step = 1e-4 * std::sqrt(size / shift);
  for (std::size_t k = 0; k < inputs; ++k) {
    if (k == s.value) {
      forth[k] = copy_of(after.x[k]);
      back[k] = copy_of(after.x[k]);
    } else {
      back[k] = sum_of(after.x[k], -step, forth[k]);
      forth[k] = sum_of(after.x[k], step, forth[k]);
    }
  }
  const Chain::Values more = item.chain.forward(std::move(forth), theta), less = item.chain.forward(std::move(back), theta);
  const Tensor<double> slope = sum_of(more.y.back(), -1, less.y.back());
  return out + (1 / (2 * step)) * covariance(slope.view(), item.probe.view());
}

Seen see(const HeadItems& s, const HeadItem& item, std::span<const WireChange* const> dx, const std::vector<Square>& left,
         const std::vector<Square>& response, const Factor& factor) {
  const std::size_t inputs = dx.size(), nodes = item.chain.nodes().size();
  const Index tokens = s.batch->tokens();
  Seen to{std::vector<Square>(nodes, Square(tokens)), Square(tokens), Square(tokens), Square(tokens)};
  std::vector<Moved> shifts;
  for (std::size_t k = 0; k < inputs; ++k) shifts.push_back(moved(item.in[k], *dx[k], left[k]));
  for (const double sign : {1.0, -1.0}) {
    std::vector<Tensor<double>> x;
    for (const Moved& m : shifts) x.push_back(m.with(sign));
    const Tensor<double> shift = sum_of(x[s.value], -1, item.in[s.value].x);
    to.values += 0.5 * covariance(shift.view(), shift.view());
    const Chain::Parameters theta = stepped(s, item, sign * factor.times);
    const Chain::Values after = item.chain.forward(std::move(x), theta);
    for (std::size_t n = 0; n < nodes; ++n) {
      const bool last = n + 1 == nodes;
      if (!last && !factor.told()) continue;
      const Tensor<double> D = sum_of(after.y[n], -1, item.before.y[n]);
      to.size[n] += 0.5 * covariance(D.view(), D.view());
      if (last) to.Y += 0.5 * covariance(D.view(), item.before.y[n].view());
    }
    const auto [change, count] = score_change(item.chain, after, item.before, *s.batch);
    to.scores += change;
    to.visible += count;
    if (sign > 0 && factor.told()) to.response = measured_response(s, item, response, after, theta);
  }
  return to;
}

// Root mean square change of the scores, of queries and keys that know nothing of each other.
double independent_scores(const HeadItems& s, std::span<const WireChange* const> dx) {
  const Index length = s.batch->length, tokens = s.batch->tokens();
  struct Sizes {
    std::vector<double> was, by;
  };
  std::array<Sizes, 2> of;
  for (Sizes& side : of)
    side = {std::vector<double>(static_cast<std::size_t>(tokens)), std::vector<double>(static_cast<std::size_t>(tokens))};
  for (std::size_t i = 0; i < dx.size(); ++i) {
    if (s.side[i] > 1) continue;
    const Index heads = s.side[i] == 0 ? s.op.heads / s.op.kv_heads : 1;
    const double share = static_cast<double>(s.columns[i]) / static_cast<double>(heads * s.op.key_dim);
    for (Index t = 0; t < tokens; ++t) {
      of[s.side[i]].was[static_cast<std::size_t>(t)] += share * s.K[i](t, t);
      of[s.side[i]].by[static_cast<std::size_t>(t)] += share * std::max(dx[i]->size(t, t), 0.0);
    }
  }
  double sum = 0, count = 0;
  for (Index t = 0; t < tokens; ++t) {
    const auto range = s.op.visible(t % length, length);
    const Index first = t - t % length;
    const double was = of[0].was[static_cast<std::size_t>(t)], by = of[0].by[static_cast<std::size_t>(t)];
    for (Index j = first + range.begin; j < first + range.end; ++j) {
      const double other = of[1].was[static_cast<std::size_t>(j)], by_other = of[1].by[static_cast<std::size_t>(j)];
      sum += by * other + was * by_other + by * by_other;
      count += 1;
    }
  }
  return s.op.scale * std::sqrt(static_cast<double>(s.op.key_dim) * sum / count);
}

// What the mean weights make of the values' change.
struct ByMeanWeights {
  Square size, response, Y;
  double scores = 0;

  ByMeanWeights(const HeadItems& s, std::span<const WireChange* const> dx, const Square& of_values) {
    const Square& A = s.alike->weights;
    size = between(A, dx[s.value]->size);
    response = between(A, of_values);
    Y = between(A, dx[s.value]->stretch * s.K[s.value]);
    scores = independent_scores(s, dx);
  }
};

std::vector<WireChange> blank(std::size_t nodes, Index tokens) {
  std::vector<WireChange> out(nodes);
  for (WireChange& y : out) y = {.response = Square(tokens), .size = Square(tokens), .stretch = Square(tokens)};
  return out;
}

std::vector<WireChange> run_alike(const HeadItems& s, std::span<const WireChange* const> dx, const Square& of_values,
                                  const Factor& factor) {
  std::vector<WireChange> out = blank(s.source.size() + 1, s.batch->tokens());
  const ByMeanWeights mean(s, dx, of_values);
  const HeadRatios& r = s.alike->at[std::min(factor.place, s.alike->at.size() - 1)];
  WireChange& y = out.back();
  y.size = r.size.times(mean.size);
  y.response = r.response * mean.response;
  y.stretch = mean.Y * s.inverse;
  y.scores = r.scores * mean.scores;
  for (std::size_t n = 0; n < r.nodes.size(); ++n) out[n].size = r.nodes[n] * dx[static_cast<std::size_t>(s.source[n])]->size;
  return out;
}

void keep_ratios(const HeadItems& s, std::span<const WireChange* const> dx, const ByMeanWeights& mean, const std::vector<WireChange>& out,
                 HeadRatios& to) {
  const WireChange& y = out.back();
  to.size = Dependence(y.size, mean.size);
  const double square = inner(mean.response, mean.response);
  to.response = square > 0 ? inner(y.response, mean.response) / square : 1;
  to.scores = mean.scores > 0 ? y.scores / mean.scores : 1;
  to.nodes.clear();
  for (std::size_t n = 0; n + 1 < out.size(); ++n) {
    const double was = dx[static_cast<std::size_t>(s.source[n])]->size.trace();
    to.nodes.push_back(was > 0 ? out[n].size.trace() / was : 0);
  }
}

}  // namespace

// Attention weights of each head, (T, T): the output for values that are the identity.
std::vector<Square> weights_of(const Chain& chain, const Chain::Values& v, const Batch& batch, const Chain::Parameters& theta) {
  Attention op = attention_of(chain);
  const std::size_t last = chain.nodes().size() - 1;
  const Index tokens = batch.tokens(), length = batch.length;
  op.value_dim = length;
  Tensor<double> one(tokens, op.kv_heads * length), y(tokens, op.channels()), keep(tokens, op.keep());
  std::fill_n(one.data(), one.size(), 0.0);
  for (Index t = 0; t < tokens; ++t) {
    for (Index h = 0; h < op.kv_heads; ++h) one(t, h * length + batch.position(t)) = 1;
  }
  const View<const double> x[] = {chain.input_of(v, last, 0), chain.input_of(v, last, 1), one.view()};
  std::vector<View<const double>> tables;
  for (const Tensor<double>& t : theta[last]) tables.push_back(t.view());
  op.forward(Down<double>{batch, x, tables, y.view(), keep.view()});
  std::vector<Square> out;
  for (Index h = 0; h < op.heads; ++h) {
    Square& A = out.emplace_back(tokens);
    for (Index t = 0; t < tokens; ++t) {
      const Index first = t - batch.position(t);
      for (Index j = 0; j < length; ++j) A(t, first + j) = y(t, h * length + j);
    }
  }
  return out;
}

std::vector<WireChange> run_heads(const HeadItems& s, std::span<const WireChange* const> dx, const Factor& factor) {
  const std::size_t inputs = dx.size();
  std::vector<Square> response, left;
  for (std::size_t k = 0; k < inputs; ++k) response.push_back(response_of(*dx[k], s.lean[k]));
  if (s.items.empty()) return run_alike(s, dx, response[s.value], factor);
  for (std::size_t k = 0; k < inputs; ++k) left.push_back(root_of(dx[k]->channels->left));
  const std::size_t count = factor.told() ? s.items.size() : static_cast<std::size_t>(s.some);
  std::vector<Seen> seen(count);
  parallel_for(std::ssize(seen), [&](Index i) {
    const auto j = static_cast<std::size_t>(i);
    seen[j] = see(s, s.items[j], dx, left, response, factor);
  });
  const double share = 1 / static_cast<double>(count);
  std::vector<WireChange> out = blank(s.source.size() + 1, s.batch->tokens());
  WireChange& y = out.back();
  Square Y(s.batch->tokens()), values(s.batch->tokens());
  double scores = 0, visible = 0;
  for (const Seen& i : seen) {
    values += share * i.values;
    for (std::size_t n = 0; n < out.size(); ++n) out[n].size += share * i.size[n];
    Y += share * i.Y;
    y.response += share * i.response;
    scores += i.scores;
    visible += i.visible;
  }
  y.stretch = Y * s.inverse;
  y.scores = std::sqrt(scores / visible);
  const ByMeanWeights mean(s, dx, response[s.value]);
  Likeness& told = *s.alike;
  y.size += between(told.weights, dx[s.value]->size - values);  // what the drawn values' change misses of its kernel
  if (factor.told()) {
    keep_ratios(s, dx, mean, out, told.at[0]);
    Seen some;  // of the heads that serve the other steps
    double square = 0;
    for (Index i = 0; i < s.some; ++i) {
      const Seen& one = seen[static_cast<std::size_t>(i)];
      square += (one.size.back() + between(told.weights, dx[s.value]->size - one.values)).trace() / static_cast<double>(s.some);
      some.scores += one.scores, some.visible += one.visible;
    }
    told.all_over_some = square > 0 ? y.size.trace() / square : 1;
    told.scores_over_some = some.scores > 0 ? y.scores / std::sqrt(some.scores / some.visible) : 1;
    told.beside_values = y.response - mean.response;
    told.values = mean.response;
    return out;
  }
  y.size = told.all_over_some * y.size;
  y.scores *= told.scores_over_some;
  const double square = inner(told.values, told.values);
  y.response = mean.response + (square > 0 ? inner(mean.response, told.values) / square : 0) * told.beside_values;
  if (factor.place < told.at.size()) {
    keep_ratios(s, dx, mean, out, told.at[factor.place]);
    told.at[factor.place].nodes = told.at[0].nodes;
  }
  return out;
}

}  // namespace stepzero
