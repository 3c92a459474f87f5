#include "stepzero/ops/move/pointwise.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/move/drawn.hpp"

namespace stepzero {

namespace {

template <class T>
inline constexpr bool channel_by_channel =
    std::is_same_v<T, Multiply> || std::is_same_v<T, Softcap> || std::is_same_v<T, Clip> || requires(T op) { typename T::phi; };

struct Block {
  Chain::Values before;
  std::vector<DrawnInput> in;
  std::vector<Tensor<double>> slope;  // J of every input
};

struct State {
  Chain chain;
  std::vector<Block> blocks;
  std::vector<double> lean;
  Square inverse;  // of the drawn kernel
  double columns;
};

// The response of an input, as its matrix's update has it for the gradients that were drawn.
Square response_of(const WireChange& x, double lean) {
  const ChannelMove& how = *x.channels;
  if (how.matrix == nullptr) return how.carried;
  const double rate = how.factor * how.matrix->weight.rate, rate_b = how.factor * how.matrix->bias.rate;
  const Square whole = Square::one(x.stretch.tokens()) + x.stretch;
  return how.carried + (rate * lean) * (whole * how.matrix->direct.A) + rate_b * how.matrix->of_bias.A;
}

Tensor<double> ones(Index rows, Index cols) {
  Tensor<double> out(rows, cols);
  std::fill_n(out.data(), out.size(), 1.0);
  return out;
}

Tensor<double> difference(const Tensor<double>& a, const Tensor<double>& b) {
  Tensor<double> out(a.rows(), a.cols());
  for (Index i = 0; i < out.size(); ++i) out.data()[i] = a.data()[i] - b.data()[i];
  return out;
}

std::vector<WireChange> run(const State& s, std::span<const WireChange* const> dx, double) {
  const std::size_t nodes = s.chain.nodes().size(), inputs = dx.size();
  const Index tokens = dx[0]->stretch.tokens();
  struct Sums {
    std::vector<Square> size, slopes;
    Square Y;
  };
  std::vector<Sums> sums(s.blocks.size());
  parallel_for(std::ssize(s.blocks), [&](Index b) {
    const Block& block = s.blocks[static_cast<std::size_t>(b)];
    Sums& to = sums[static_cast<std::size_t>(b)];
    to = {std::vector<Square>(nodes, Square(tokens)), std::vector<Square>(inputs, Square(tokens)), Square(tokens)};
    for (const double sign : {1.0, -1.0}) {
      std::vector<Tensor<double>> x(inputs);
      for (std::size_t k = 0; k < inputs; ++k) moved(block.in[k], *dx[k], sign, x[k]);
      const Chain::Values after = s.chain.forward(std::move(x));
      for (std::size_t i = 0; i < nodes; ++i) {
        const Tensor<double> D = difference(after.y[i], block.before.y[i]);
        to.size[i] += 0.5 * covariance(D.view(), D.view());
        if (i + 1 == nodes) to.Y += 0.5 * covariance(D.view(), block.before.y[i].view());
      }
      const std::vector<Tensor<double>> slope = s.chain.backward(after, ones(tokens, after.y.back().cols()));
      for (std::size_t k = 0; k < inputs; ++k) to.slopes[k] += 0.5 * covariance(slope[k].view(), block.slope[k].view());
    }
  });
  const double share = 1 / static_cast<double>(s.blocks.size());
  std::vector<WireChange> out(nodes);
  for (std::size_t i = 0; i < nodes; ++i) {
    out[i] = {.response = Square(tokens), .size = Square(tokens), .stretch = Square(tokens)};
    for (const Sums& b : sums) out[i].size += share * b.size[i];
  }
  Square Y(tokens);
  for (const Sums& b : sums) Y += share * b.Y;
  out.back().stretch = Y * s.inverse;  // (1)
  for (std::size_t k = 0; k < inputs; ++k) {
    Square slopes(tokens);
    for (const Sums& b : sums) slopes += share * b.slopes[k];
    out.back().response += by_entry(response_of(*dx[k], s.lean[k]), slopes);  // (2)
  }
  return out;
}

}  // namespace

std::optional<AnyOp> pointwise(const AnyOp& any, Index channels) {
  return std::visit(
      [&](const auto& op) -> std::optional<AnyOp> {
        if constexpr (channel_by_channel<std::remove_cvref_t<decltype(op)>>) {
          auto resized = op;
          resized.width = channels;
          return resized;
        } else {
          return {};
        }
      },
      any);
}

ChainMover move_pointwise(const Batch& batch, std::vector<ChainNode> nodes, std::span<const DrawnFrom> inputs, const Kernel& G, Index width,
                          std::uint64_t place, double effort) {
  const Index tokens = G.tokens(), columns = std::clamp<Index>(1024, 4 * tokens, 4096);
  const auto count = std::max<Index>(1, static_cast<Index>(effort * (inputs.size() > 1 ? 8192 : 4096)) / columns);
  for (ChainNode& node : nodes) node.op = *pointwise(node.op, columns);
  auto s = std::make_shared<State>(State{Chain(batch, std::move(nodes)), {}, {}, {}, static_cast<double>(columns * count)});
  s->blocks.resize(static_cast<std::size_t>(count));
  std::vector<Square> roots;
  for (const DrawnFrom& from : inputs) roots.push_back(root_of(Square::of(from.wire->K)));
  std::vector<std::vector<Square>> stems(inputs.size());  // roots of draws of what the matrices read, one for each block
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (inputs[k].matrix == nullptr) continue;
    if (k > 0 && inputs[k].stem == inputs[k - 1].stem) {
      stems[k] = stems[k - 1];
      continue;
    }
    const DownWire& stem = inputs[k].stem != nullptr ? *inputs[k].stem : *inputs[k].wire;
    const KernelDraw draw(stem, stem.f.noise, batch.length, inputs[k].place);
    for (Index b = 0; b < count; ++b) stems[k].push_back(square_root(draw.root(b)));
  }
  const Square up = (1 / std::sqrt(static_cast<double>(width))) * root_of(Square::of(G));
  auto drawn = std::make_shared<Tensor<double>>(tokens, columns * count);
  parallel_for(count, [&](Index b) {
    Block& block = s->blocks[static_cast<std::size_t>(b)];
    const Index draw = b * (static_cast<Index>(inputs.size()) + 1);
    std::vector<Tensor<double>> x;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      x.push_back(times(roots[k], normal_columns(place, "x", draw + static_cast<Index>(k), tokens, columns, true)));
    }
    block.before = s->chain.forward(std::move(x));
    const Tensor<double> dy = times(up, normal_columns(place, "dy", b, tokens, columns, true));
    std::vector<Tensor<double>> d = s->chain.backward(block.before, dy);
    block.slope = s->chain.backward(block.before, ones(tokens, columns));
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      DrawnInput& in = block.in.emplace_back();
      in.x = Tensor<double>(tokens, columns);
      std::copy_n(block.before.x[k].data(), in.x.size(), in.x.data());
      in.d = std::move(d[k]);
      Square polar, rest;
      if (inputs[k].matrix != nullptr && inputs[k].matrix->weight.rule == Update::Rule::polar) {
        polar = inputs[k].matrix->direct.A;
        rest = root_of(inputs[k].matrix->direct.R);
      }
      const Square* own = inputs[k].matrix != nullptr && polar.empty() ? &stems[k][static_cast<std::size_t>(b)] : nullptr;
      prepare(in, inputs[k].matrix, own, polar, rest, 0, place, draw + static_cast<Index>(k));
    }
    const Tensor<double>& y = block.before.y.back();
    for (Index t = 0; t < tokens; ++t) std::copy_n(y.view().row(t), columns, drawn->view().row(t) + b * columns);
  });
  ChainMover out;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    double pull = 0, square = 0;
    for (const Block& block : s->blocks) {
      pull += block.in[k].pull;
      square += mean_direct(block.in[k]) / static_cast<double>(s->blocks.size());
    }
    out.directs.push_back(square);
    pull *= static_cast<double>(width) / s->columns;
    if (const MatrixMove* m = inputs[k].matrix; m != nullptr && m->weight.rule == Update::Rule::polar && m->weight.moves()) {
      // of as many channels as the tensor has
      pull = 0;
      for (std::size_t b = 0; b < s->blocks.size(); ++b) {
        const Tensor<double>& d = s->blocks[b].in[k].d;
        const Index n = std::min(width, d.cols());
        const View<const double> some = d.view().columns(0, n);
        const Square G = static_cast<double>(width) * covariance(some, some);
        const Square K = between(stems[k][b], Square::one(tokens));
        pull += inner(polar_response(m->weight, K, G, m->use.n_in, static_cast<double>(width)), G) / static_cast<double>(s->blocks.size());
      }
    }
    const double normal = inputs[k].matrix != nullptr ? inputs[k].matrix->direct.decrease : 0;
    s->lean.push_back(normal > 0 ? pull / normal : 1);
    out.decreases.push_back(pull);
  }
  s->inverse = inverse_of(covariance(drawn->view(), drawn->view()));
  out.params.resize(s->chain.nodes().size());
  out.drawn = drawn;
  out.run = [s](std::span<const WireChange* const> dx, double factor) { return run(*s, dx, factor); };
  return out;
}

WireChange with_channels(WireChange x, const Kernel& K, const Kernel& G, double width) {
  if (x.channels) return x;
  auto how = std::make_shared<ChannelMove>();
  how->carried = x.response;
  const Square left = x.size - between(x.stretch, Square::of(K)) - (1 / width) * between(x.response, Square::of(G));
  how->left = std::make_shared<const Square>(root_of(left));
  x.channels = std::move(how);
  return x;
}

}  // namespace stepzero
