#pragma once
// What       Each head is a part of its own and a part that all heads share: the keys of latent attention.
// Shapes     a (T, heads * own); b (T, shared); y (T, heads * (own + shared)). d = own + shared.
// Forward    y_th = (a_th, b_t)                                             (1)
// Backward   da_th = the first `own` of dy_th                               (2)
//            db_t = sum_h the last `shared` of dy_th                        (3)
// Push       L_ts = (own Ka_ts + shared Kb_ts) / d                          (4)
// Pull       Ga = G - Gb,  Gb = G shared / d, or what the attention says of it                               (5)
// Assumes    gradients of heads independent, channels of dy alike where the attention does not tell them apart
// Derived in docs/derivations/join.md
#include <algorithm>

#include "stepzero/ops/heads.hpp"

namespace stepzero {

struct Join {
  static constexpr const char* kind = "join";
  static constexpr Grade grade = Grade::exact;
  Index heads = 1;
  Index own = 1;
  Index shared = 1;

  [[nodiscard]] int inputs() const { return 2; }
  [[nodiscard]] Index channels() const { return heads * (own + shared); }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    parallel_ranges(p.y.rows, row_grain(channels()), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        for (Index h = 0; h < heads; ++h) {
          S* y = p.y.row(t) + h * (own + shared);
          std::copy_n(p.x[0].row(t) + h * own, own, y);
          std::copy_n(p.x[1].row(t), shared, y + own);  // (1)
        }
      }
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    parallel_ranges(p.dy.rows, row_grain(channels()), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        const auto at = [&](Index h, Index c) { return p.dy(t, h * (own + shared) + c); };
        for (Index c = 0; p.dx[0].wanted() && c < heads * own; ++c) store(p.dx[0], t, c, at(c / own, c % own));  // (2)
        for (Index c = 0; p.dx[1].wanted() && c < shared; ++c) {
          S sum = S(0);
          for (Index h = 0; h < heads; ++h) sum += at(h, own + c);
          store(p.dx[1], t, c, sum);  // (3)
        }
      }
    });
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    const Moment &a = *p.x[0], &b = *p.x[1];
    const double tail = share();
    Moment y = a;
    y.K = Kernel::from(p.batch.tokens(), [&](Index t, Index s) { return (1 - tail) * a.K(t, s) + tail * b.K(t, s); });  // (4)
    y.mean.resize(static_cast<std::size_t>(p.batch.tokens()));
    for (Index t = 0; t < p.batch.tokens(); ++t) y.mean[static_cast<std::size_t>(t)] = (1 - tail) * a.mean_at(t) + tail * b.mean_at(t);
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const auto* known = note_of<TurnedBack>(p.dy);
    const Kernel Gb = known != nullptr && known->tail ? *known->tail : p.dy.G.scaled(share());
    const Kernel Ga = Kernel::from(p.batch.tokens(), [&](Index t, Index s) { return p.dy.G(t, s) - Gb(t, s); });  // (5)
    return {{UpWire(Ga), UpWire(Gb)}, {}};
  }

  [[nodiscard]] std::any note(const PushDoor& p) const {
    const DownWire& b = *p.x[1];
    return HeadNote{.before = push(p).K, .tail = HeadTail{shared, b.K, b.shared_noise(), b.f.swing}};
  }

 private:
  [[nodiscard]] double share() const { return static_cast<double>(shared) / static_cast<double>(own + shared); }
};
static_assert(Op<Join>);

}  // namespace stepzero
