#include "stepzero/ops/move/sums.hpp"

#include "stepzero/ops/move/linear.hpp"
#include "stepzero/ops/move/vectors.hpp"

namespace stepzero {

Mover move(const Residual& op, const MoveDoor& p) {
  struct State {
    Square K, F, G, inverse;
    double a, b, n;
  };
  auto s =
      std::make_shared<const State>(State{Square::of(p.x[0]->K), Square::of(p.x[1]->K), Square::of(p.G), inverse_of(Square::of(p.y.K)),
                                          op.skip_scale * op.skip_scale, op.branch_scale * op.branch_scale, static_cast<double>(op.width)});
  Mover out;
  out.run = [s](std::span<const WireChange* const> dx, const Factor&) {
    const WireChange &x = *dx[0], &f = *dx[1];
    WireChange y;
    y.response = s->a * x.response + s->b * f.response;  // (1)
    Square cross(s->K.tokens());
    const Square left = x.response * s->G;
    gemm<double>(Trans::no, Trans::yes, 1 / s->n, left.view(), f.response.view(), 0.0, cross.view());
    y.size = s->a * x.size + s->b * f.size + (2 * s->a * s->b) * cross.symmetric();    // (2)
    y.stretch = (s->a * (x.stretch * s->K) + s->b * (f.stretch * s->F)) * s->inverse;  // (3)
    return y;
  };
  return out;
}

Mover move(const Scale& op, const MoveDoor&) {
  Mover out;
  out.run = [c = op.factor](std::span<const WireChange* const> dx, const Factor&) { return scaled(*dx[0], c); };
  return out;
}

Mover move(const Gain& op, const MoveDoor& p) {
  struct State {
    Square K, G;
    Direct d;
    Update u;
    double n, square;
  };
  const Square K = Square::of(p.x[0]->K), G = Square::of(p.G);
  const double n = static_cast<double>(op.width);
  Direct d = direct_gain(p.updates[0], K, G, n);
  if (op.one) {  // one number: all channels pull at it
    const double pull = inner(K, G);
    const bool sgd = p.updates[0].rule == Update::Rule::sgd;
    const double a = sgd ? p.updates[0].times : std::sqrt(2 / std::numbers::pi / (pull > 0 ? pull : 1));
    d.A = (sgd ? a / n : a / std::sqrt(n)) * K;
    d.R = (sgd ? a * a * pull : 1.0) * K;
    d.norm2 = sgd ? a * a * pull : 1;
    d.decrease = a * pull;
  }
  auto s = std::make_shared<const State>(State{K, G, d, p.updates[0], n, p.theta[0].second_moment()});
  const double tokens = static_cast<double>(K.tokens());
  const Square size = op.one ? d.R : d.size(G, n);
  Mover out;
  out.params = {{d.norm2, d.decrease, size.trace() / tokens, -1}};
  out.run = [s, size, tokens](std::span<const WireChange* const> dx, const Factor& factor) {
    const WireChange& c = *dx[0];
    const double rate = factor.of(s->u);
    const Square whole = Square::one(c.size.tokens()) + c.stretch;
    WireChange y;
    y.response = s->square * c.response + rate * s->d.A;
    y.size = s->square * c.size + (rate * rate) * (between(whole, size) + by_entry(Square::one(c.size.tokens()), Square(c.size.tokens())));
    y.stretch = c.stretch;
    y.direct = rate * rate * size.trace() / tokens;
    y.carried = s->square * c.size.trace() / tokens;
    return y;
  };
  return out;
}

Mover move(const Dropout& op, const MoveDoor&) {
  STEPZERO_CHECK(op.p == 0);  // else it is refused
  Mover out;
  out.run = [](std::span<const WireChange* const> dx, const Factor&) { return *dx[0]; };
  return out;
}

Mover move(const TokenPool& op, const MoveDoor& p) {
  struct State {
    Tensor<double> P;
    Square K, inverse;

    [[nodiscard]] Square pooled(const Square& x) const {
      Tensor<double> half(P.rows(), P.cols());
      gemm<double>(Trans::no, Trans::no, 1.0, P.view(), x.view(), 0.0, half.view());
      Square out(P.rows());
      gemm<double>(Trans::no, Trans::yes, 1.0, half.view(), P.view(), 0.0, out.view());
      return out;
    }
  };
  const Index rows = p.x[0]->K.tokens();
  const Square one = Square::one(rows);
  auto s = std::make_shared<State>(State{Tensor<double>(p.batch.sequences, rows), Square::of(p.x[0]->K), inverse_of(Square::of(p.y.K))});
  TokenPool of_one = op;  // of the unit vectors it makes P
  of_one.width = rows;
  const View<const double> x[] = {one.view()};
  of_one.forward(Down<double>{p.batch, x, {}, s->P.view(), {}});
  Mover out;
  out.run = [s](std::span<const WireChange* const> dx, const Factor&) {
    const WireChange& c = *dx[0];
    WireChange y{.response = s->pooled(c.response), .size = s->pooled(c.size), .stretch = s->pooled(c.stretch * s->K) * s->inverse};
    y.carried = y.size.trace() / static_cast<double>(y.size.tokens());
    return y;
  };
  return out;
}

}  // namespace stepzero
