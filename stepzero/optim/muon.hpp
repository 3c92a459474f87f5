#pragma once
// Muon: Jordan et al. 2024. The momentum of a matrix, made orthogonal: its polar factor U V', every singular value 1.
//
//     b = m b + g,    w = (1 - rate decay) w - rate scale polar(u),    u = b, or g + m b (Nesterov)
#include "stepzero/optim/options.hpp"
#include "stepzero/optim/polar.hpp"
#include "stepzero/optim/turn.hpp"
#include "stepzero/optim/update_rows.hpp"

namespace stepzero {

double muon_scale(MuonScale scale, Index in, Index out);

// A matrix whose gradient has been taken in.
template <class S>
struct Waiting {
  View<S> w;
  Tensor<S> direction;  // empty: the momentum itself
  TensorRate rate;
};

struct Muon {
  static constexpr const char* name = "muon";
  double momentum = 0.95;
  bool nesterov = false;
  int newton_schulz = 0;  // 0: exact
  double scale = 1;

  [[nodiscard]] int memories() const { return 1; }

  // Takes the gradient in.
  template <class S>
  Waiting<S> take(const Turn<S>& t) const {
    View<S> b = t.memory[0].view();
    Waiting<S> waiting{t.w, nesterov ? Tensor<S>(b.rows, b.cols) : Tensor<S>(), t.rate};
    S* u = nesterov ? waiting.direction.data() : b.data;
    const S m = S(momentum), shrink = S(t.shrink);
    by_pieces(t, [&](Index first, Index count) {
      for (Index i = first; i < first + count; ++i) {
        const S d = shrink * t.g.data[i];
        b.data[i] = m * b.data[i] + d;
        u[i] = nesterov ? d + m * b.data[i] : b.data[i];
      }
    });
    return waiting;
  }

  // The update itself; leaves the momentum as it is.
  template <class S>
  void finish(const Waiting<S>& waiting, const Tensor<S>& buffer) const {
    const View<const S> u = nesterov ? waiting.direction.view() : buffer.view();
    const Tensor<S> q = newton_schulz > 0 ? newton_schulz_factor(u, newton_schulz) : polar_factor(u);
    const S kept = S(1 - waiting.rate.rate * waiting.rate.decay), size = S(waiting.rate.rate * scale);
    S* w = waiting.w.data;
    for (Index i = 0; i < waiting.w.size(); ++i) w[i] = kept * w[i] - size * q.data()[i];
  }
};

}  // namespace stepzero
