#include "stepzero/ops/move/pointwise.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/move/drawn.hpp"
#include "stepzero/ops/move/twice.hpp"

namespace stepzero {

namespace {

template <class T>
inline constexpr bool channel_by_channel =
    std::is_same_v<T, Multiply> || std::is_same_v<T, Softcap> || std::is_same_v<T, Clip> || requires(T op) { typename T::phi; };

// Channels that were drawn.
struct Block {
  std::vector<DrawnInput> in;
  std::vector<Tensor<double>> slope;  // J of every input
  Tensor<double> y;
};

// An input: its update as drawn gradients have it, over what normal ones would give.
struct Input {
  double lean = 1, direct = 1;
  Square size;  // of the update alone
};

struct State {
  Twice twice;
  std::vector<Input> inputs;
  Dependence dependence, finite;
  double finite_response = 1, moved = 0;
};

// The kernel of what an input moves by that its gradient tells.
Square told_by_gradient(const WireChange& x, const Input& in, const Square& K) {
  const ChannelMove& how = *x.channels;
  Square told = (x.apart.empty() ? x.size - between(x.stretch, K) : x.apart) - how.left;
  if (how.matrix == nullptr) return told;
  const MatrixMove& m = *how.matrix;
  const double rate = how.factor.of(m.weight);
  if (rate == 0 || in.size.empty()) return told;
  const Square whole = Square::one(told.tokens()) + x.stretch;
  told += ((in.direct - 1) * rate * rate) * between(whole, in.size);
  const Square half = (whole * m.direct.A) * m.use.G;
  Square cross(told.tokens());  // with what comes from before the matrix
  gemm<double>(Trans::no, Trans::yes, 2 * (in.lean - 1) * rate / m.use.n_out, half.view(), how.carried.view(), 0.0, cross.view());
  return told + cross.symmetric();
}

// The response of an input, as its matrix's update has it for the gradients that were drawn.
Square response_of(const WireChange& x, double lean) {
  const ChannelMove& how = *x.channels;
  if (how.matrix == nullptr || lean == 1) return x.response;
  const double rate = how.factor.of(how.matrix->weight);
  return x.response + (rate * (lean - 1)) * (x.stretch * how.matrix->direct.A + how.matrix->direct.A);
}

Tensor<double> ones(Index rows, Index cols) {
  Tensor<double> out(rows, cols);
  std::fill_n(out.data(), out.size(), 1.0);
  return out;
}

// By how much of their size inputs move.
double share_moved(const Twice& twice, std::span<const WireChange* const> dx) {
  double sum = 0;
  for (std::size_t k = 0; k < dx.size(); ++k) {
    const double size = twice.kernel(k).trace();
    sum += size > 0 ? std::max(dx[k]->size.trace(), 0.0) / size : 0;
  }
  return sum;
}

std::vector<WireChange> run(const State& s, std::span<const WireChange* const> dx) {
  std::vector<Square> kernels, responses;
  for (std::size_t k = 0; k < dx.size(); ++k) {
    const WireChange& x = *dx[k];
    kernels.push_back(x.channels->left + s.dependence.times(told_by_gradient(x, s.inputs[k], s.twice.kernel(k))));
    responses.push_back(response_of(x, s.inputs[k].lean));
  }
  std::vector<WireChange> out = s.twice.run(dx, kernels, responses);
  const double share = s.moved > 0 ? std::min(1.0, share_moved(s.twice, dx) / s.moved) : 0;
  out.back().size = s.finite.times(out.back().size, share);
  out.back().response = (1 + share * (s.finite_response - 1)) * out.back().response;
  return out;
}

// What a channel moves by that its gradient tells.
Tensor<double> told_of(const DrawnInput& in, const WireChange& x) {
  const ChannelMove& how = *x.channels;
  Tensor<double> o = times(how.carried, in.d);
  const double rate = how.matrix != nullptr ? how.factor.of(how.matrix->weight) : 0;
  const double rate_b = how.matrix != nullptr ? how.factor.of(how.matrix->bias) : 0;
  if (in.direct.size() > 0 && rate != 0) {
    const Square whole = Square::one(x.stretch.tokens()) + x.stretch;
    gemm<double>(Trans::no, Trans::no, rate, whole.view(), in.direct.view(), 1.0, o.view());
  }
  for (Index t = 0; rate_b != 0 && t < o.rows(); ++t) {
    for (Index c = 0; c < o.cols(); ++c) o(t, c) += rate_b * in.bias[static_cast<std::size_t>(c)];
  }
  return o;
}

// What depends: the change that a channel's own gradient makes, and the slope that it meets, which made that gradient.
void add_dependence(const Block& block, std::span<const WireChange* const> dx, Square& together, Square& apart) {
  const Index tokens = block.in[0].d.rows(), columns = block.in[0].d.cols();
  Tensor<double> sum(tokens, columns);
  std::fill_n(sum.data(), sum.size(), 0.0);
  for (std::size_t k = 0; k < dx.size(); ++k) {
    const Tensor<double> o = told_of(block.in[k], *dx[k]);
    for (Index i = 0; i < sum.size(); ++i) sum.data()[i] += block.slope[k].data()[i] * o.data()[i];
    apart += by_entry(covariance(block.slope[k].view(), block.slope[k].view()), covariance(o.view(), o.view()));
  }
  together += covariance(sum.view(), sum.view());
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

namespace {

// Channels, drawn, with their gradients.
class Drawing {
 public:
  Drawing(const Batch& batch, std::vector<ChainNode> nodes, std::span<const DrawnFrom> inputs, const Kernel& G, Index width,
          std::uint64_t place, double effort)
      : inputs_(inputs), place_(place), width_(width), columns_(std::max<Index>(256, 2 * G.tokens())) {
    for (ChainNode& node : nodes) node.op = *pointwise(node.op, columns_);
    chain_.emplace(batch, std::move(nodes));
    const double wanted = effort * (inputs.size() > 1 ? 2048 : 1024);
    blocks.resize(static_cast<std::size_t>(std::max(2.0, std::ceil(wanted / static_cast<double>(columns_)))));
    for (const DrawnFrom& from : inputs) roots_.push_back(root_of(Square::of(from.wire->K)));
    for (std::size_t k = 0; k < inputs.size(); ++k) draw_stems(batch, k);
    up_ = (1 / std::sqrt(static_cast<double>(width))) * root_of(Square::of(G));
    drawn = std::make_shared<Tensor<double>>(G.tokens(), columns_ * std::ssize(blocks));
    parallel_for(std::ssize(blocks), [&](Index b) { draw(b); });
  }

  // What the update of a matrix takes from the loss.
  [[nodiscard]] double pull(std::size_t k) const {
    const MatrixMove* m = inputs_[k].matrix;
    double sum = 0;
    const double share = 1 / static_cast<double>(blocks.size());
    if (m == nullptr || m->weight.rule != Update::Rule::polar || !m->weight.moves()) {
      for (const Block& block : blocks) sum += block.in[k].pull;
      return sum * share * static_cast<double>(width_) / static_cast<double>(columns_);
    }
    const double width = static_cast<double>(width_);  // of as many channels as the tensor has
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const Tensor<double>& d = blocks[b].in[k].d;
      const View<const double> some = d.view().columns(0, std::min(width_, d.cols()));
      const Square G = width * covariance(some, some), K = m->reads * between(stems_[k][b], Square::one(d.rows()));
      sum += share * inner(polar_response(m->weight, K, G, m->use.n_in, width), G);
    }
    return sum;
  }

  // Mean square of what the update of a matrix does.
  [[nodiscard]] double direct(std::size_t k) const {
    double sum = 0;
    for (const Block& block : blocks) sum += mean_direct(block.in[k]) / static_cast<double>(blocks.size());
    return sum;
  }

  // The channels themselves after the step, and what the closed form makes of their moments.
  void see_finite(const Twice& twice, std::span<const WireChange* const> given, Likeness& to) const {
    const Index tokens = up_.tokens();
    const std::size_t inputs = inputs_.size();
    std::vector<Square> left, kernels, responses;
    for (const WireChange* x : given) left.push_back(root_of(x->channels->left));
    for (std::size_t k = 0; k < inputs; ++k) {
      Square own(tokens);
      const double share = 1 / static_cast<double>(blocks.size());
      for (const Block& block : blocks) {
        const Tensor<double> o = told_of(block.in[k], *given[k]);
        own += share * covariance(o.view(), o.view());
      }
      kernels.push_back(given[k]->channels->left + to.dependence.times(own));
      responses.push_back(response_of(*given[k], to.pulls[k]));
    }
    const WireChange closed = twice.run(given, kernels, responses).back();
    std::vector<Square> sizes(blocks.size()), slopes(blocks.size());
    parallel_for(std::ssize(blocks), [&](Index b) {
      const Block& block = blocks[static_cast<std::size_t>(b)];
      Square &size = sizes[static_cast<std::size_t>(b)] = Square(tokens), &slope = slopes[static_cast<std::size_t>(b)] = Square(tokens);
      for (const double sign : {1.0, -1.0}) {
        std::vector<Tensor<double>> x;
        for (std::size_t k = 0; k < inputs; ++k) x.push_back(moved(block.in[k], *given[k], left[k]).with(sign));
        const Chain::Values after = chain_->forward(std::move(x));
        Tensor<double> D(tokens, columns_);
        for (Index i = 0; i < D.size(); ++i) D.data()[i] = after.y.back().data()[i] - block.y.data()[i];
        size += 0.5 * covariance(D.view(), D.view());
        const std::vector<Tensor<double>> J = chain_->backward(after, ones(tokens, columns_));
        for (std::size_t k = 0; k < inputs; ++k) slope += 0.5 * by_entry(responses[k], covariance(J[k].view(), block.slope[k].view()));
      }
    });
    Square size(tokens), response(tokens);
    for (const Square& one : sizes) size += (1 / static_cast<double>(blocks.size())) * one;
    for (const Square& one : slopes) response += (1 / static_cast<double>(blocks.size())) * one;
    to.finite = Dependence(size, closed.size);
    const double square = inner(closed.response, closed.response);
    to.finite_response = square > 0 ? inner(response, closed.response) / square : 1;
    to.moved = share_moved(twice, given);
  }

  std::vector<Block> blocks;
  std::shared_ptr<Tensor<double>> drawn;

 private:
  // Roots of draws of what a matrix reads, one for each block.
  void draw_stems(const Batch& batch, std::size_t k) {
    stems_.emplace_back();
    const DrawnFrom& from = inputs_[k];
    if (from.matrix == nullptr) return;
    if (k > 0 && from.stem == inputs_[k - 1].stem) {
      stems_[k] = stems_[k - 1];
      return;
    }
    const DownWire& stem = from.stem != nullptr ? *from.stem : *from.wire;
    const KernelDraw kernel(stem, stem.f.noise, batch.length, from.place);
    for (Index b = 0; b < std::ssize(blocks); ++b) stems_[k].push_back(square_root(kernel.root(b)));
  }

  void draw(Index b) {
    Block& block = blocks[static_cast<std::size_t>(b)];
    const Index tokens = up_.tokens(), draw = b * (std::ssize(inputs_) + 1);
    std::vector<Tensor<double>> x;
    for (std::size_t k = 0; k < inputs_.size(); ++k)
      x.push_back(times(roots_[k], normal_columns(place_, "x", draw + static_cast<Index>(k), tokens, columns_, true)));
    Chain::Values before = chain_->forward(std::move(x));
    std::vector<Tensor<double>> d = chain_->backward(before, times(up_, normal_columns(place_, "dy", b, tokens, columns_, true)));
    block.slope = chain_->backward(before, ones(tokens, columns_));
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      DrawnInput& in = block.in.emplace_back();
      in.d = std::move(d[k]);
      in.x = Tensor<double>(tokens, columns_);
      std::copy_n(before.x[k].data(), in.x.size(), in.x.data());
      Square polar, rest;
      const MatrixMove* m = inputs_[k].matrix;
      if (m != nullptr && m->weight.rule == Update::Rule::polar) polar = m->direct.A, rest = root_of(m->direct.R);
      const Square* own = m != nullptr && polar.empty() ? &stems_[k][static_cast<std::size_t>(b)] : nullptr;
      prepare(in, m, own, polar, rest, 0, place_, draw + static_cast<Index>(k));
    }
    const Tensor<double>& y = before.y.back();
    for (Index t = 0; t < tokens; ++t) std::copy_n(y.view().row(t), columns_, drawn->view().row(t) + b * columns_);
    block.y = std::move(before.y.back());
  }

  std::span<const DrawnFrom> inputs_;
  std::uint64_t place_;
  Index width_, columns_;
  std::optional<Chain> chain_;
  std::vector<Square> roots_;
  std::vector<std::vector<Square>> stems_;
  Square up_;
};

}  // namespace

ChainMover move_pointwise(const Batch& batch, std::vector<ChainNode> nodes, std::span<const DrawnFrom> inputs, const Kernel& G, Index width,
                          std::uint64_t place, double effort, std::span<const WireChange* const> given, Likeness& seen) {
  ChainMover out;
  auto s = std::make_shared<State>(State{Twice(batch, nodes, inputs), {}, {}, {}});
  if (seen.fresh()) {
    const Drawing drawing(batch, nodes, inputs, G, width, place, effort);
    Square together(G.tokens()), apart(G.tokens());
    for (const Block& block : drawing.blocks) add_dependence(block, given, together, apart);
    seen.dependence = Dependence(together, apart);
    seen.drawn = drawing.drawn;
    for (std::size_t k = 0; k < inputs.size(); ++k) seen.see(k, inputs[k].matrix, drawing.pull(k), drawing.direct(k));
    constexpr double small = 0.01;  // below it the step is small
    if (share_moved(s->twice, given) > small) drawing.see_finite(s->twice, given, seen);
  }
  s->finite = seen.finite;
  s->finite_response = seen.finite_response;
  s->moved = seen.moved;
  s->dependence = seen.dependence;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const MatrixMove* m = inputs[k].matrix;
    s->inputs.push_back({seen.pulls[k], seen.directs[k], m != nullptr ? m->direct.size(m->use.G, m->use.n_out) : Square()});
    out.decreases.push_back(seen.decrease(k, inputs[k].matrix));
    out.directs.push_back(seen.direct(k, inputs[k].matrix));
  }
  out.params.resize(nodes.size());
  out.drawn = seen.drawn;
  out.run = [s](std::span<const WireChange* const> dx, const Factor&) { return run(*s, dx); };
  return out;
}

WireChange with_channels(WireChange x, const Kernel& K, const Kernel& G, double width) {
  if (x.channels) return x;
  auto how = std::make_shared<ChannelMove>();
  how->carried = x.response;
  if (x.apart.empty()) x.apart = x.size - between(x.stretch, Square::of(K));
  how->left = x.apart - (1 / width) * between(x.response, Square::of(G));
  x.channels = std::move(how);
  return x;
}

}  // namespace stepzero
