#include "stepzero/ops/move/lora.hpp"

#include <cmath>

#include "stepzero/ops/move/linear.hpp"
#include "stepzero/ops/move/vectors.hpp"

namespace stepzero {

Mover move(const LoraLinear& op, const MoveDoor& p) {
  const std::size_t first = op.first(), pieces = static_cast<std::size_t>(op.base.pieces);
  STEPZERO_CHECK(p.theta[first + 1].second_moment() == 0 && !p.updates[0].moves());  // else it is refused
  const DownWire& x = *p.x[0];
  auto m = std::make_shared<MatrixMove>();
  m->reads = op.scale * op.scale * static_cast<double>(op.base.in) * p.theta[first].second_moment();  // (1)
  const double rank = static_cast<double>(op.rank), noise = x.f.noise + x.f.mean_jitter() + 1 / rank;
  m->use = {.K = m->reads * Square::of(x.K),
            .G = Square::of(p.G),
            .whole = {},
            .n_in = rank,
            .n_out = static_cast<double>(op.base.out),
            .whole_out = static_cast<double>(op.base.out),
            .noise = noise,
            .noise_up = p.noise_up};
  m->tensor = p.tensor;
  m->param = first + 1;
  m->weight = p.updates[first + 1];
  m->weight.decay = 0;  // of nothing
  if (op.base.bias) m->bias = p.updates[pieces];
  m->root = root_of(m->use.K);
  m->w = static_cast<double>(op.base.in) * p.theta[0].second_moment();
  m->direct = direct(m->weight, m->use);
  m->of_bias = direct_bias(m->bias, m->use.G, m->use.n_out);
  Mover out;
  out.params.resize(pieces);
  const double tokens = static_cast<double>(x.K.tokens()), share = 1 / static_cast<double>(pieces);
  const auto told = [&](const Direct& d) {
    return ParameterMove{share * d.norm2, share * d.decrease, d.size(m->use.G, m->use.n_out).trace() / tokens, -1};
  };
  if (op.base.bias) out.params.resize(2 * pieces, told(m->of_bias));
  out.params.emplace_back();  // A
  out.params.resize(out.params.size() + pieces, told(m->direct));
  run_by(m, out);
  return out;
}

}  // namespace stepzero
