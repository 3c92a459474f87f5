#pragma once
// What       The channels of one wire, then those of another.
// Shapes     a (T, n); b (T, m); y (T, n + m).
// Forward    y = [a b]                                                      (1)
// Backward   da = the first n channels of dy, db = the others               (2)
// Push       L = (n Ka + m Kb) / (n + m)                                    (3)
// Pull       Ga = n G / (n + m),  Gb = m G / (n + m)                        (4)
// Assumes    channels of dy alike
// Derived in docs/derivations/concat.md
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Concat {
  static constexpr const char* kind = "concat";
  static constexpr Grade grade = Grade::exact;
  Index n = 1;
  Index m = 1;

  [[nodiscard]] int inputs() const { return 2; }
  [[nodiscard]] Index channels() const { return n + m; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    for (Index t = 0; t < p.y.rows; ++t) {
      std::copy_n(p.x[0].row(t), n, p.y.row(t));
      std::copy_n(p.x[1].row(t), m, p.y.row(t) + n);  // (1)
    }
  }

  template <class S>
  void backward(const Up<S>& p) const {
    for (Index k = 0; k < 2; ++k) {
      for (Index t = 0; p.dx[k].wanted() && t < p.dy.rows; ++t) {
        for (Index c = 0; c < (k == 0 ? n : m); ++c) store(p.dx[k], t, c, p.dy(t, k * n + c));  // (2)
      }
    }
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    Moment y;
    const Index tokens = p.x[0]->K.tokens();
    y.K = Kernel::from(tokens, [&](Index t, Index s) { return share(n) * p.x[0]->K(t, s) + share(m) * p.x[1]->K(t, s); });  // (3)
    for (Index t = 0; t < tokens; ++t) y.mean.push_back(share(n) * p.x[0]->mean_at(t) + share(m) * p.x[1]->mean_at(t));
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    return {{UpWire(p.dy.G.scaled(share(n))), UpWire(p.dy.G.scaled(share(m)))}, {}};  // (4)
  }

 private:
  [[nodiscard]] double share(Index k) const { return static_cast<double>(k) / static_cast<double>(n + m); }
};
static_assert(Op<Concat>);

}  // namespace stepzero
