#include "stepzero/ops/move/twice.hpp"

#include <algorithm>
#include <cmath>

namespace stepzero {

namespace {

constexpr Draws by_grid = {.place = 0, .effort = 1, .single = 0};  // tables of functions are kept from call to call

// (1)
DownWire doubled(const Square& K, const Square& stretch, const Square& C) {
  const Index tokens = K.tokens();
  const Square X = stretch * K + K;  // <x'_t, x_s>
  Square after = C + X;              // X (I + E)' + C
  gemm<double>(Trans::no, Trans::yes, 1.0, X.view(), stretch.view(), 1.0, after.view());
  DownWire out{Moment{.K = Kernel::from(2 * tokens, [&](Index t, Index s) {
                        if (t < tokens) return (K(t, s) + K(s, t)) / 2;
                        if (s < tokens) return X(t - tokens, s);
                        return (after(t - tokens, s - tokens) + after(s - tokens, t - tokens)) / 2;
                      })}};
  return out;
}

Square corner(const Kernel& K, Index t0, Index s0) {
  const Index tokens = K.tokens() / 2;
  return Square::from(tokens, [&](Index t, Index s) { return K(t0 + t, s0 + s); });
}

// (2)
Square size_of(const Kernel& K) {
  const Index n = K.tokens() / 2;
  return Square::from(n, [&](Index t, Index s) { return (K(n + t, n + s) - K(n + t, s)) - (K(t, n + s) - K(t, s)); });
}

Batch twice_as_many(Batch batch) {
  batch.sequences *= 2;
  const auto again = [](auto& list) {
    const auto copy = list;
    list.insert(list.end(), copy.begin(), copy.end());
  };
  again(batch.ids), again(batch.targets), again(batch.encoder_ids);
  return batch;
}

}  // namespace

Twice::Twice(const Batch& batch, std::vector<ChainNode> nodes, std::span<const DrawnFrom> inputs)
    : batch_(twice_as_many(batch)), nodes_(std::move(nodes)) {
  for (const DrawnFrom& from : inputs) K_.push_back(Square::of(from.wire->K));
  std::vector<DownWire> x;
  for (const Square& K : K_) x.push_back(doubled(K, Square(K.tokens()), Square(K.tokens())));
  inverse_ = inverse_of(corner(down(std::move(x)).y.back().K, 0, 0));
}

std::vector<const DownWire*> Twice::inputs_of(const Values& v, const ChainNode& node) const {
  std::vector<const DownWire*> list;
  for (const int from : node.inputs)
    list.push_back(from >= 0 ? &v.y[static_cast<std::size_t>(from)] : &v.x[static_cast<std::size_t>(-1 - from)]);
  return list;
}

Twice::Values Twice::down(std::vector<DownWire> x) const {
  Values v{std::move(x), {}};
  v.y.reserve(nodes_.size());
  for (const ChainNode& node : nodes_) {
    const auto in = inputs_of(v, node);
    v.y.push_back(std::visit([&](const auto& op) -> DownWire { return op.push(PushDoor{batch_, in, {}, by_grid}); }, node.op));
  }
  return v;
}

std::vector<WireChange> Twice::run(std::span<const WireChange* const> dx, std::span<const Square> kernels,
                                   std::span<const Square> responses) const {
  const Index tokens = K_[0].tokens();
  std::vector<DownWire> x;
  for (std::size_t k = 0; k < dx.size(); ++k) x.push_back(doubled(K_[k], dx[k]->stretch, kernels[k]));
  const Values v = down(std::move(x));
  std::vector<WireChange> out;
  for (const DownWire& y : v.y) out.push_back({.response = Square(tokens), .size = size_of(y.K), .stretch = Square(tokens)});
  const Kernel& last = v.y.back().K;
  out.back().stretch = (corner(last, tokens, 0) - corner(last, 0, 0)) * inverse_;
  // slopes, by the way that gradients go
  std::vector<UpWire> d(nodes_.size()), of_x(dx.size());
  d.back() = UpWire(Kernel::from(2 * tokens, [](Index, Index) { return 1.0; }));
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const auto in = inputs_of(v, nodes_[i]);
    const Pulled up =
        std::visit([&](const auto& op) -> Pulled { return op.pull(PullDoor{batch_, in, {}, v.y[i], d[i], by_grid}); }, nodes_[i].op);
    for (std::size_t k = 0; k < nodes_[i].inputs.size(); ++k) {
      const int from = nodes_[i].inputs[k];
      (from >= 0 ? d[static_cast<std::size_t>(from)] : of_x[static_cast<std::size_t>(-1 - from)]) = UpWire(up.dx[k].G);
    }
  }
  for (std::size_t k = 0; k < dx.size(); ++k) out.back().response += by_entry(responses[k], corner(of_x[k].G, tokens, 0));
  return out;
}

}  // namespace stepzero
