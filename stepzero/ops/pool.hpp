#pragma once
// What       One row of each sequence: one of its tokens, or the mean over some.
// Shapes     x (sequences T, n); y (sequences, n). C_s are the tokens of sequence s that are taken: `count` of them from `first` on (0: all
//            that follow), or the last one, or the first whose id is `id`, or the one with the largest id.
// Forward    y_s = sum over t in C_s of x_t / |C_s|                         (1)
// Backward   dx_t = dy_s / |C_s| for t in C_s, 0 elsewhere                  (2)
// Push       L_rs = sum over t in C_r, u in C_s of K_tu / (|C_r| |C_s|)     (3)
// Pull       H_tu = G_rs / (|C_r| |C_s|) for t in C_r, u in C_s, 0 elsewhere                                (4)
// Assumes    nothing
// Derived in docs/derivations/pool.md
#include <algorithm>

#include "stepzero/ops/op.hpp"

namespace stepzero {

struct TokenPool {
  static constexpr const char* kind = "pool";
  static constexpr Grade grade = Grade::exact;
  Index width = 1;
  Index first = 0;
  Index count = 1;
  bool last = false;
  bool largest = false;
  Index id = -1;  // -1: none

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index places() const { return 1; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    for (Index s = 0; s < p.y.rows; ++s) {
      const Taken take = taken(p.batch, p.x[0].rows, s);
      std::fill_n(p.y.row(s), width, S(0));
      for (Index t = take.begin; t < take.end; ++t) {
        for (Index c = 0; c < width; ++c) p.y(s, c) += p.x[0](t, c) * S(take.share());  // (1)
      }
    }
  }

  template <class S>
  void backward(const Up<S>& p) const {
    clear(p.dx[0]);
    for (Index s = 0; p.dx[0].wanted() && s < p.dy.rows; ++s) {
      const Taken take = taken(p.batch, p.x[0].rows, s);
      for (Index t = take.begin; t < take.end; ++t) {
        for (Index c = 0; c < width; ++c) p.dx[0].d(t, c) += p.dy(s, c) * S(take.share());  // (2)
      }
    }
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const {
    const DownWire& x = *p.x[0];
    const Index rows = x.K.tokens();
    DownWire y;
    y.K = Kernel::from(p.batch.sequences, [&](Index r, Index s) {
      const Taken a = taken(p.batch, rows, r), b = taken(p.batch, rows, s);
      double sum = 0;
      for (Index t = a.begin; t < a.end; ++t) {
        for (Index u = b.begin; u < b.end; ++u) sum += x.K(t, u);
      }
      return sum * a.share() * b.share();  // (3)
    });
    for (Index s = 0; s < p.batch.sequences; ++s) {
      const Taken take = taken(p.batch, rows, s);
      double mean = 0;
      for (Index t = take.begin; t < take.end; ++t) mean += x.mean_at(t) * take.share();
      y.mean.push_back(mean);
    }
    y.f.noise = x.f.noise;
    y.f.drift = x.f.drift;
    y.f.sampling = x.f.sampling;
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const Index rows = p.x[0]->K.tokens(), length = rows / p.batch.sequences;
    std::vector<double> share(static_cast<std::size_t>(rows), 0.0);
    for (Index s = 0; s < p.batch.sequences; ++s) {
      const Taken take = taken(p.batch, rows, s);
      std::fill(share.begin() + take.begin, share.begin() + take.end, take.share());
    }
    const auto at = [&](Index t) { return share[static_cast<std::size_t>(t)]; };
    return {{UpWire(Kernel::from(rows, [&](Index t, Index u) { return at(t) * at(u) * p.dy.G(t / length, u / length); }))}, {}};  // (4)
  }

 private:
  struct Taken {
    Index begin, end;
    [[nodiscard]] double share() const { return 1 / static_cast<double>(end - begin); }
  };
  // C_s as rows of x
  [[nodiscard]] Taken taken(const Batch& batch, Index rows, Index s) const {
    const Index length = rows / batch.sequences, start = s * length;
    if (last) return {start + length - 1, start + length};
    if (largest || id >= 0) {
      const auto begin = batch.ids.begin() + start, end = begin + length;
      const auto found = largest ? std::max_element(begin, end) : std::find(begin, end, id);
      const Index t = found == end ? start : found - batch.ids.begin();  // as the classes do: without the id the first token
      return {t, t + 1};
    }
    return {start + first, start + (count > 0 ? first + count : length)};
  }
};
static_assert(Op<TokenPool>);

}  // namespace stepzero
