#include "stepzero/ops/move/heads.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/move/drawn.hpp"

namespace stepzero {

namespace {

struct Item {
  Chain chain;
  Chain::Values before;
  std::vector<DrawnInput> in;
  Tensor<double> probe;                // a white gradient of the output
  std::vector<Tensor<double>> probed;  // what it makes of the inputs' gradients
  Chain::Parameters gradients, updates;
};

struct State {
  Attention op;
  const Batch* batch;
  std::vector<Item> items;
  std::vector<double> lean;
  Square inverse;
  Index group;
  std::vector<std::vector<double>> rates;  // of the chain's parameters
  std::size_t value;                       // which input the values are; inputs.size(): none
};

const Attention& attention_of(const Chain& chain) { return std::get<Attention>(chain.nodes().back().op); }

Square response_of(const WireChange& x, double lean) {
  const ChannelMove& how = *x.channels;
  if (how.matrix == nullptr) return how.carried;
  const double rate = how.factor * how.matrix->weight.rate, rate_b = how.factor * how.matrix->bias.rate;
  const Square whole = Square::one(x.stretch.tokens()) + x.stretch;
  return how.carried + (rate * lean) * (whole * how.matrix->direct.A) + rate_b * how.matrix->of_bias.A;
}

// Attention weights of each head, (T, T): the output for values that are the identity.
std::vector<Square> weights_of(const Chain& chain, const Chain::Values& v, const Batch& batch) {
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
  op.forward(Down<double>{batch, x, {}, y.view(), keep.view()});
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

Tensor<double> copy_of(const Tensor<double>& x) {
  Tensor<double> out(x.rows(), x.cols());
  std::copy_n(x.data(), x.size(), out.data());
  return out;
}

Tensor<double> sum_of(const Tensor<double>& a, double c, const Tensor<double>& b) {
  Tensor<double> out(a.rows(), a.cols());
  for (Index i = 0; i < out.size(); ++i) out.data()[i] = a.data()[i] + c * b.data()[i];
  return out;
}

// The parameters of the chain after the step, for a sign of the gradient.
Chain::Parameters stepped(const State& s, const Item& item, double step) {
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

std::vector<WireChange> run(const State& s, std::span<const WireChange* const> dx, double factor) {
  const std::size_t inputs = dx.size(), nodes = s.items[0].chain.nodes().size();
  const Index tokens = s.batch->tokens();
  std::vector<Square> response;
  for (std::size_t k = 0; k < inputs; ++k) response.push_back(response_of(*dx[k], s.lean[k]));
  struct Sums {
    std::vector<Square> size;
    Square Y, response;
    double scores = 0, visible = 0;
  };
  std::vector<Sums> sums(s.items.size());
  parallel_for(std::ssize(s.items), [&](Index i) {
    const Item& item = s.items[static_cast<std::size_t>(i)];
    Sums& to = sums[static_cast<std::size_t>(i)];
    to = {std::vector<Square>(nodes, Square(tokens)), Square(tokens), Square(tokens)};
    for (const double sign : {1.0, -1.0}) {
      std::vector<Tensor<double>> x(inputs);
      for (std::size_t k = 0; k < inputs; ++k) moved(item.in[k], *dx[k], sign, x[k]);
      const Chain::Parameters theta = stepped(s, item, sign * factor);
      const Chain::Values after = item.chain.forward(std::move(x), theta);
      for (std::size_t n = 0; n < nodes; ++n) {
        const Tensor<double> D = sum_of(after.y[n], -1, item.before.y[n]);
        to.size[n] += 0.5 * covariance(D.view(), D.view());
        if (n + 1 == nodes) to.Y += 0.5 * covariance(D.view(), item.before.y[n].view());
      }
      const auto [change, count] = score_change(item.chain, after, item.before, *s.batch);
      to.scores += change;
      to.visible += count;
      if (sign < 0) continue;
      // (1): the values' part as it is, the others' along the drawn direction
      const std::vector<Square> now = weights_of(item.chain, after, *s.batch), was = weights_of(item.chain, item.before, *s.batch);
      const double heads = static_cast<double>(now.size());
      for (std::size_t h = 0; h < now.size(); ++h) {
        const Square half = now[h] * response[s.value];
        gemm<double>(Trans::no, Trans::yes, 1 / heads, half.view(), was[h].view(), 1.0, to.response.view());
      }
      std::vector<Tensor<double>> forth(inputs), back(inputs);
      double shift = 0, size = 0;
      for (std::size_t k = 0; k < inputs; ++k) {
        const Tensor<double> way = k == s.value ? Tensor<double>() : times(response[k], item.probed[k]);
        for (Index j = 0; k != s.value && j < way.size(); ++j) {
          shift += way.data()[j] * way.data()[j];
          size += after.x[k].data()[j] * after.x[k].data()[j];
        }
        forth[k] = copy_of(way);
      }
      if (!(shift > 0)) continue;
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
      to.response += (1 / (2 * step)) * covariance(slope.view(), item.probe.view());
    }
  });
  const double share = 1 / static_cast<double>(s.items.size());
  std::vector<WireChange> out(nodes);
  Square Y(tokens);
  double scores = 0, visible = 0;
  for (WireChange& y : out) y = {.response = Square(tokens), .size = Square(tokens), .stretch = Square(tokens)};
  for (const Sums& i : sums) {
    for (std::size_t n = 0; n < nodes; ++n) out[n].size += share * i.size[n];
    Y += share * i.Y;
    out.back().response += share * i.response;
    scores += i.scores;
    visible += i.visible;
  }
  out.back().stretch = Y * s.inverse;
  out.back().scores = std::sqrt(scores / visible);
  return out;
}

}  // namespace

std::optional<AnyOp> for_heads(const AnyOp& any, Index heads) {
  if (const auto* rotary = std::get_if<Rotary>(&any)) {
    Rotary some = *rotary;
    some.heads = heads;
    return some;
  }
  const auto norm = [&](const auto* op) -> std::optional<AnyOp> {
    if (op == nullptr || op->groups == 1 || op->gain_per_group) return {};
    auto some = *op;
    some.groups = heads;
    return some;
  };
  if (auto some = norm(std::get_if<LayerNorm>(&any))) return some;
  return norm(std::get_if<RmsNorm>(&any));
}

namespace {

// Of gains of heads: what all heads of a model pull at, and what the optimizer makes of it.
std::vector<std::vector<ParameterMove>> update_gains(State& s, std::span<const std::vector<Update>> updates, Index of_model) {
  std::vector<std::vector<ParameterMove>> told(updates.size());
  const std::size_t count = s.items.size(), together = static_cast<std::size_t>(of_model);
  for (Item& item : s.items) {
    for (const auto& list : item.chain.theta()) {
      auto& to = item.updates.emplace_back();
      for (const auto& t : list) {
        Tensor<double>& zeros = to.emplace_back(t.rows(), t.cols());
        std::fill_n(zeros.data(), zeros.size(), 0.0);
      }
    }
  }
  for (std::size_t n = 0; n < updates.size(); ++n) {
    s.rates.emplace_back();
    for (std::size_t k = 0; k < updates[n].size(); ++k) {
      const Update& u = updates[n][k];
      s.rates.back().push_back(u.rate);
      ParameterMove& move = told[n].emplace_back();
      for (std::size_t first = 0; first < count; first += together) {
        Tensor<double>& to = s.items[first].updates[n][k];
        for (Index c = 0; c < to.size(); ++c) {
          double g = 0;
          for (std::size_t i = first; i < first + together; ++i) g += s.items[i].gradients[n][k].data()[c];
          const double x = u.rule == Update::Rule::sgd              ? u.times * g
                           : u.rule == Update::Rule::sign && g != 0 ? g / (std::abs(g) + u.eps)
                                                                    : 0;
          const double share = static_cast<double>(together) / static_cast<double>(count);
          move.norm2 += share * x * x;
          move.decrease += share * x * g;
          move.direct += share * x * x / static_cast<double>(to.size());
          for (std::size_t i = first; i < first + together; ++i) s.items[i].updates[n][k].data()[c] = x;
        }
      }
    }
  }
  return told;
}

}  // namespace

ChainMover move_heads(const Batch& batch, std::vector<ChainNode> nodes, std::span<const DrawnFrom> inputs,
                      std::span<const std::vector<Update>> updates, const Kernel& G, std::uint64_t place, double effort) {
  const Attention op = std::get<Attention>(nodes.back().op);
  const Index group = op.heads / op.kv_heads, tokens = G.tokens();
  // which input each side of the attention comes from
  std::vector<std::size_t> side(inputs.size(), 0);
  for (std::size_t k = 0; k < 3; ++k) {
    int from = nodes.back().inputs[k];
    while (from >= 0) from = nodes[static_cast<std::size_t>(from)].inputs[0];
    side[static_cast<std::size_t>(-1 - from)] = k;
  }
  const auto least = std::max<Index>(static_cast<Index>(effort * 48) / group, 2 * op.kv_heads);
  const Index models = (least + op.kv_heads - 1) / op.kv_heads, count = models * op.kv_heads;
  auto s = std::make_shared<State>(State{op, &batch, {}, {}, {}, group, {}, 0});
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (side[k] == 2) s->value = k;
  }
  const Square up = (1 / std::sqrt(static_cast<double>(op.channels()))) * root_of(Square::of(G));
  std::vector<KernelDraw> stems;
  for (const DrawnFrom& from : inputs) {
    const DownWire& stem = from.stem != nullptr ? *from.stem : *from.wire;
    stems.emplace_back(stem, stem.f.noise, batch.length, from.place);
  }
  for (Index i = 0; i < count; ++i) {
    std::vector<ChainNode> own = nodes;
    for (std::size_t n = 0; n + 1 < own.size(); ++n) {
      int from = own[n].inputs[0];
      while (from >= 0) from = own[static_cast<std::size_t>(from)].inputs[0];
      own[n].op = *for_heads(own[n].op, side[static_cast<std::size_t>(-1 - from)] == 0 ? group : 1);
    }
    Attention some = op;
    some.heads = group;
    some.kv_heads = 1;
    if (!op.alibi.empty()) {
      const Index first = i % op.kv_heads * group;
      some.alibi.assign(op.alibi.begin() + first, op.alibi.begin() + first + group);
    }
    own.back().op = some;
    s->items.push_back(Item{Chain(batch, std::move(own)), {}, {}, {}, {}, {}, {}});
  }
  std::vector<std::vector<Square>> roots(s->items.size());  // of every input's stem, in this draw
  parallel_for(count, [&](Index i) {
    Item& item = s->items[static_cast<std::size_t>(i)];
    std::vector<Tensor<double>> x;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      auto& list = roots[static_cast<std::size_t>(i)];
      const bool again = k > 0 && inputs[k].stem != nullptr && inputs[k].stem == inputs[k - 1].stem;
      list.push_back(again ? list.back() : square_root(stems[k].root(i)));
      const Square& L = list.back();
      const Index columns = side[k] == 0 ? group * op.key_dim : side[k] == 1 ? op.key_dim : op.value_dim;
      const DownWire& stem = inputs[k].stem != nullptr ? *inputs[k].stem : *inputs[k].wire;
      const double by = stem.K.trace() > 0 ? std::sqrt(inputs[k].wire->K.trace() / stem.K.trace()) : 0;
      static constexpr const char* names[] = {"q", "k", "v"};
      x.push_back(times(by * L, normal_columns(place, names[side[k]], i, tokens, columns, false)));
    }
    item.before = item.chain.forward(std::move(x));
    const Index n = item.before.y.back().cols();
    const Tensor<double> dy = times(up, normal_columns(place, "dy", i, tokens, n, false));
    std::vector<Tensor<double>> d = item.chain.backward(item.before, dy, &item.gradients);
    item.probe = normal_columns(place, "probe", i, tokens, n, false);
    item.probed = item.chain.backward(item.before, item.probe);
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      DrawnInput& in = item.in.emplace_back();
      in.x = copy_of(item.before.x[k]);
      in.d = std::move(d[k]);
    }
  });
  // Muon: the gradient of all heads of a model, of all parts of a tensor
  std::vector<std::vector<Square>> polar(inputs.size(), std::vector<Square>(static_cast<std::size_t>(models)));
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const MatrixMove* m = inputs[k].matrix;
    if (m == nullptr || m->weight.rule != Update::Rule::polar) continue;
    for (Index j = 0; j < models; ++j) {
      Square whole(tokens);
      for (std::size_t other = 0; other < inputs.size(); ++other) {
        const MatrixMove* o = inputs[other].matrix;
        if (other != k && (o == nullptr || o->tensor != m->tensor)) continue;
        for (Index i = j * op.kv_heads; i < (j + 1) * op.kv_heads; ++i) {
          const Tensor<double>& d = s->items[static_cast<std::size_t>(i)].in[other].d;
          whole += static_cast<double>(d.cols()) * covariance(d.view(), d.view());
        }
      }
      polar[k][static_cast<std::size_t>(j)] = polar_response(m->weight, m->use.K, whole, m->use.n_in, m->use.whole_out);
    }
  }
  parallel_for(count, [&](Index i) {
    Item& item = s->items[static_cast<std::size_t>(i)];
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const bool drawn = inputs[k].stem != nullptr;
      prepare(item.in[k], inputs[k].matrix, drawn ? &roots[static_cast<std::size_t>(i)][k] : nullptr,
              polar[k][static_cast<std::size_t>(i / op.kv_heads)], {},
              drawn || inputs[k].matrix == nullptr ? 0 : inputs[k].matrix->use.noise,
              place + (static_cast<std::uint64_t>(side[k] + 1) << 40U), i);
    }
  });
  ChainMover out;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    double pull = 0, square = 0;
    for (const Item& item : s->items) {
      pull += item.in[k].pull;
      square += mean_direct(item.in[k]) / static_cast<double>(count);
    }
    out.directs.push_back(square);
    pull /= static_cast<double>(models);
    const double normal = inputs[k].matrix != nullptr ? inputs[k].matrix->direct.decrease : 0;
    s->lean.push_back(normal > 0 ? pull / normal : 1);
    out.decreases.push_back(pull);
  }
  Square K(tokens);
  auto drawn = std::make_shared<Tensor<double>>(tokens, count * group * op.value_dim);
  for (Index i = 0; i < count; ++i) {
    const Tensor<double>& y = s->items[static_cast<std::size_t>(i)].before.y.back();
    K += (1 / static_cast<double>(count)) * covariance(y.view(), y.view());
    for (Index t = 0; t < tokens; ++t) std::copy_n(y.view().row(t), y.cols(), drawn->view().row(t) + i * y.cols());
  }
  s->inverse = inverse_of(K);
  out.params = update_gains(*s, updates, op.kv_heads);
  out.params.resize(nodes.size());
  out.drawn = drawn;
  out.run = [s](std::span<const WireChange* const> dx, double factor) { return run(*s, dx, factor); };
  return out;
}

}  // namespace stepzero
