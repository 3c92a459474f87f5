#include "stepzero/ops/move/linear.hpp"

#include <cmath>
#include <numbers>

#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/move/vectors.hpp"

namespace stepzero {

namespace {

double mean_square(const Square& size) { return size.trace() / static_cast<double>(size.tokens()); }

// Of a normal gradient.
double share_below(const Direct& d, const Update& u, double norm2, double entries) {
  if (u.rule != Update::Rule::sign || !(u.eps > 0)) return -1;
  (void)d;
  const double deviation = std::sqrt(norm2 / entries);
  return deviation > 0 ? std::erf(u.eps / (deviation * std::numbers::sqrt2)) : 1;
}

// Gram matrices of draws of a wire.
std::vector<Square> drawn_grams(const DownWire& x, Index length, std::uint64_t place) {
  constexpr Index draws = 8;
  const KernelDraw draw(x, x.f.noise, length, place);
  std::vector<Square> out;
  for (Index i = 0; i < draws; ++i) {
    const Tensor<float> F = draw.root(i);
    Tensor<double> wide(F.rows(), F.cols());
    for (Index j = 0; j < F.size(); ++j) wide.data()[j] = static_cast<double>(F.data()[j]);
    gemm<double>(Trans::no, Trans::yes, 1.0, wide.view(), wide.view(), 0.0, out.emplace_back(F.rows()).view());
  }
  return out;
}

// E sqrt(x' G x) of drawn channels over that of normal ones.
double lean_of(const Tensor<double>& drawn, const MatrixUse& use) {
  const Square half = root_of(use.G);
  Tensor<double> seen(drawn.rows(), drawn.cols());
  gemm<double>(Trans::yes, Trans::no, 1.0, half.view(), drawn.view(), 0.0, seen.view());
  double sum = 0;
  for (Index c = 0; c < seen.cols(); ++c) {
    double square = 0;
    for (Index t = 0; t < seen.rows(); ++t) square += seen(t, c) * seen(t, c);
    sum += std::sqrt(square);
  }
  Square own(drawn.rows());  // of the same sample: what it misses of the kernel counts on both sides
  gemm<double>(Trans::no, Trans::yes, 1 / static_cast<double>(drawn.cols()), drawn.view(), drawn.view(), 0.0, own.view());
  const double normal = inner(sign_means(own, use.G).M, use.G);
  return normal > 0 ? sum / static_cast<double>(seen.cols()) / normal : 1;
}

// What the update does to the output of the old input, and what the old weights make of the changed one.
void tell(const MatrixMove& m, const WireChange& c, double rate, double rate_b, double kept, WireChange& y) {
  y.direct = mean_square((1 / m.use.n_out) * between(rate * m.direct.A + rate_b * m.of_bias.A, m.use.G) + (rate * rate) * m.direct.R +
                         (rate_b * rate_b) * m.of_bias.R) +
             m.w * (1 - kept) * (1 - kept) * mean_square(m.use.K);
  y.carried = mean_square((1 / m.use.n_out) * between(m.w * c.response, m.use.G) + m.w * c.size);
}

WireChange changed(const MatrixMove& m, const WireChange& c, const Factor& factor) {
  const Index tokens = m.use.K.tokens();
  const double rate = factor.of(m.weight), rate_b = factor.of(m.bias), n = m.use.n_out;
  const double kept = 1 - rate * m.weight.decay;
  const Square whole = Square::one(tokens) + c.stretch;
  auto channels = std::make_shared<ChannelMove>();
  channels->factor = factor;
  channels->carried = (m.w * kept) * c.response;
  const Square apart = c.apart.empty() ? c.size - (1 / m.reads) * between(c.stretch, m.use.K) : c.apart;
  const double fresh = rate * rate * m.direct.norm2 / n * m.reads;
  WireChange y;
  y.response = channels->carried;
  Square told(tokens);  // by gradients: what of the change knows neither the output nor stays as it came
  if (rate != 0) {
    y.response += rate * (whole * m.direct.A);
    told += (rate * rate) * between(whole, m.direct.R);
  }
  if (rate_b != 0) {
    y.response += rate_b * m.of_bias.A;  // (1)
    told += (rate_b * rate_b) * m.of_bias.R;
  }
  told += (1 / n) * between(y.response, m.use.G);
  channels->left = (m.w * kept * kept + fresh) * apart;
  y.size = (m.w * kept * kept) * c.size + fresh * apart + told;            // (2)
  y.stretch = kept == 1 ? c.stretch : kept * whole - Square::one(tokens);  // (3)
  if (kept != 1) {                                                         // the weights' own loss, along the output
    y.size += m.w * (between(y.stretch, m.use.K) - (kept * kept) * between(c.stretch, m.use.K));
  }
  if (factor.told()) tell(m, c, rate, rate_b, kept, y);
  if (kept == 1) y.apart = channels->left + told;
  y.channels = std::move(channels);
  return y;
}

}  // namespace

WireChange scaled(WireChange x, double c) {
  x.response = (c * c) * x.response;
  x.size = (c * c) * x.size;
  x.direct *= c * c;
  x.carried *= c * c;
  x.channels = nullptr;
  x.apart = (c * c) * std::move(x.apart);
  return x;
}

Mover move(const Linear& op, const MoveDoor& p) {
  const DownWire& x = *p.x[0];
  auto m = std::make_shared<MatrixMove>();
  m->use = {.K = Square::of(x.K),
            .G = Square::of(p.G),
            .whole = p.whole.empty() ? Square() : p.whole[0],
            .n_in = static_cast<double>(op.in),
            .n_out = static_cast<double>(op.out),
            .whole_out = p.whole_out.empty() ? static_cast<double>(op.out) : p.whole_out[0],
            .noise = std::max(x.f.noise + x.f.mean_jitter(), 1 / static_cast<double>(op.in)),
            .noise_up = p.noise_up};
  m->tensor = p.tensor;
  m->weight = p.updates[0];
  if (p.drawn_from.has_value()) m->use.noise = *p.drawn_from + 1 / m->use.n_in;
  if (m->weight.rule == Update::Rule::sgd && p.drawn == nullptr) m->use.grams = drawn_grams(x, p.batch.length, p.place);
  if (op.bias) m->bias = p.updates[static_cast<std::size_t>(op.pieces)];
  m->root = root_of(m->use.K);
  m->w = m->use.n_in * p.theta[0].second_moment();
  if (p.drawn != nullptr && m->weight.rule == Update::Rule::sign) m->use.lean = lean_of(*p.drawn, m->use);
  m->direct = direct(m->weight, m->use);
  const double squares = m->use.n_in * inner(m->use.K, m->use.G);
  if (m->weight.rule == Update::Rule::sgd && !p.squares.empty() && p.squares[0] > 0 && squares > 0) {
    const double by = p.squares[0] / squares;
    m->direct.A = by * m->direct.A;
    m->direct.norm2 *= by;
    m->direct.decrease *= by;
  }
  m->of_bias = direct_bias(m->bias, m->use.G, m->use.n_out);
  const Direct& bias = m->of_bias;
  Mover out;
  const auto n_out = m->use.n_out;
  const double pieces = static_cast<double>(op.pieces);
  for (Index i = 0; i < op.pieces; ++i) {
    out.params.push_back({m->direct.norm2 / pieces, m->direct.decrease / pieces, mean_square(m->direct.size(m->use.G, n_out)),
                          share_below(m->direct, m->weight, squares, m->use.n_in * n_out)});
  }
  for (Index i = 0; op.bias && i < op.pieces; ++i) {
    double pull = 0;
    for (Index t = 0; t < p.G.tokens(); ++t) {
      for (Index s = 0; s < p.G.tokens(); ++s) pull += p.G(t, s);
    }
    out.params.push_back(
        {bias.norm2 / pieces, bias.decrease / pieces, mean_square(bias.size(m->use.G, n_out)), share_below(bias, m->bias, pull, n_out)});
  }
  run_by(m, out);
  return out;
}

void run_by(const std::shared_ptr<MatrixMove>& m, Mover& out) {
  out.matrix = m;
  out.run = [m](std::span<const WireChange* const> dx, const Factor& factor) {
    WireChange y = changed(*m, *dx[0], factor);
    y.channels->matrix = m;
    return y;
  };
}

}  // namespace stepzero
