#pragma once
// What       y = a o b: the gate of a gated feed-forward (a = f(gate), b = up).
// Shapes     a, b, y (T, n).
// Forward    y = a o b                                                      (1)
// Backward   da = b o dy                                                    (2)
//            db = a o dy                                                    (3)
// Push       L_ts = Ka_ts Kb_ts                                             (4)
// Pull       Ga_ts = Kb_ts G_ts,  Gb_ts = Ka_ts G_ts                        (5)
// Assumes    a and b independent. What they have in common in one draw: finite/multiply.hpp
// Derived in docs/derivations/multiply.md
#include "stepzero/kernels/products.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Multiply {
  static constexpr const char* kind = "multiply";
  static constexpr Grade grade = Grade::large_width;
  Index width = 0;

  [[nodiscard]] int inputs() const { return 2; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.wants_law = true, .of_its_own = true}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    product(p.x[0], p.x[1], Into<S>{p.y});  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    product(p.x[1], p.dy, p.dx[0]);  // (2)
    product(p.x[0], p.dy, p.dx[1]);  // (3)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    const Moment &a = *p.x[0], &b = *p.x[1];
    Moment y{.K = Kernel::from(a.K.tokens(), [&](Index t, Index s) { return a.K(t, s) * b.K(t, s); })};  // (4)
    for (Index t = 0; t < a.K.tokens(); ++t) y.mean.push_back(a.mean_at(t) * b.mean_at(t));
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const auto through = [&](const Kernel& other) {
      return UpWire(Kernel::from(p.dy.G.tokens(), [&](Index t, Index s) { return other(t, s) * p.dy.G(t, s); }));  // (5)
    };
    return {{through(p.x[1]->K), through(p.x[0]->K)}, {}};
  }

 private:
  template <class S>
  static void product(View<const S> a, View<const S> b, const Into<S>& into) {
    if (into.wanted()) hadamard(a, b, into.d, into.add);
  }
};
static_assert(Op<Multiply>);

}  // namespace stepzero
