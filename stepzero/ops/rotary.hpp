#pragma once
// What       Each pair of channels of a head turns by an angle that grows with the position.
// Shapes     x, y (T, heads * head_dim); `turned` channels of each head turn, from channel `first` on; the rest pass.
// Forward    (y_a, y_b) = f R(pos w_i) (x_a, x_b),  R(p) = [cos p, -sin p; sin p, cos p]       (1)
//            w_i = base^(-2i / turned); pair i is channels (i, i + turned/2), or (2i, 2i + 1) interleaved (GPT-J);
//            f = 1, or what a long-context rule multiplies the turned channels by (YaRN)
// Backward   (dx_a, dx_b) = f R(-pos w_i) (dy_a, dy_b): the transpose is the turn back            (2)
// Push       L_ts = r(pos_t - pos_s) K_ts,  r(p) = (2 f^2 sum_i cos(p w_i) + untouched channels) / head_dim         (3)
// Pull       H_ts = r(pos_t - pos_s) G_ts                                   (4)
// Assumes    channels of a head alike; the attention that samples heads turns them itself
// Derived in docs/derivations/rotary.md
#include <cmath>
#include <memory>

#include "stepzero/core/lock.hpp"
#include "stepzero/ops/heads.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Rotary {
  static constexpr const char* kind = "rotary";
  static constexpr Grade grade = Grade::large_width;
  static constexpr Remake remake = Remake::always;
  static constexpr bool turns_heads = true;
  Index heads = 1;
  Index head_dim = 2;
  Index turned = 2;  // even, at most head_dim
  Index first = 0;   // channel of the head; latent attention turns the last ones
  double base = 10000;
  bool interleaved = false;
  std::vector<double> frequencies = {};  // turned/2 of them where a scaling rule changes them; empty: the rule above
  double stretch = 1;                    // f

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return heads * head_dim; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.wants_law = true}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  [[nodiscard]] double frequency(Index i) const {
    if (!frequencies.empty()) return frequencies[static_cast<std::size_t>(i)];
    return std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(turned));
  }

  template <class S>
  void forward(const Down<S>& p) const {
    turn(p.batch, p.x[0], Into<S>{p.y}, 1);  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (p.dx[0].wanted()) turn(p.batch, p.dy, p.dx[0], -1);  // (2)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    Moment y = *p.x[0];
    const auto* before = note_of<HeadNote>(*p.x[0]);
    y.K = turned_kernel(p.batch, y.K, before != nullptr && before->tail ? before->tail->K : y.K);  // (3)
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const auto* known = note_of<TurnedBack>(p.dy);
    UpWire dx(known != nullptr ? known->G : turned_kernel(p.batch, p.dy.G, p.dy.G));  // (4)
    dx.note = p.dy.note;
    return {{std::move(dx)}, {}};
  }

  // That the heads have turned, for an attention that samples them.
  [[nodiscard]] std::any note(const PushDoor& p) const {
    HeadNote turned_heads = head_note(*p.x[0]);
    turned_heads.rotary = this;
    return turned_heads;
  }

  // y = x turned by direction * position
  template <class S>
  void turn(const Batch& batch, View<const S> x, const Into<S>& y, double direction) const {
    const std::shared_ptr<const Tensor<double>> table = angles(batch.length);
    parallel_ranges(x.rows, row_grain(channels()), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) turn_token(x, y, t, table->view().row(batch.position(t)), direction);
    });
  }

 private:
  // `tail` is the kernel of the channels that turn.
  [[nodiscard]] Kernel turned_kernel(const Batch& batch, const Kernel& K, const Kernel& tail) const {
    const std::shared_ptr<const Tensor<double>> table = angles(batch.length);
    std::vector<double> r(static_cast<std::size_t>(batch.length), -static_cast<double>(turned));  // what the turn changes
    for (Index d = 0; d < batch.length; ++d) {
      for (Index i = 0; i < turned / 2; ++i) r[static_cast<std::size_t>(d)] += 2 * stretch * stretch * (*table)(d, i);
    }
    return Kernel::from(K.tokens(), [&](Index t, Index s) {
      const Index distance = std::abs(batch.position(t) - batch.position(s));
      return K(t, s) + tail(t, s) * r[static_cast<std::size_t>(distance)] / static_cast<double>(head_dim);
    });
  }

  // cos of each pair, then sin, at each position. The last table made is kept: all layers of a model ask for the same one.
  [[nodiscard]] std::shared_ptr<const Tensor<double>> angles(Index length) const {
    std::vector<double> w;
    for (Index i = 0; i < turned / 2; ++i) w.push_back(frequency(i));
    static Lock lock;
    static std::vector<double> last;
    static std::shared_ptr<const Tensor<double>> kept;
    const Hold hold(lock);
    if (kept != nullptr && last == w && kept->rows() >= length) return kept;
    Tensor<double> table(length, turned);
    for (Index i = 0; i < turned / 2; ++i) {
      for (Index pos = 0; pos < length; ++pos) {
        const double angle = static_cast<double>(pos) * w[static_cast<std::size_t>(i)];
        table(pos, i) = std::cos(angle);
        table(pos, turned / 2 + i) = std::sin(angle);
      }
    }
    last = std::move(w);
    return kept = std::make_shared<const Tensor<double>>(std::move(table));
  }

  // The common case, in a form that compilers vectorise.
  template <class S>
  void turn_halves(const S* x, S* y, const double* table, double direction) const {
    const Index half = turned / 2;
    for (Index i = 0; i < half; ++i) {
      const S cos = S(stretch * table[i]);
      const S sin = S(stretch * direction * table[half + i]);
      y[i] = cos * x[i] - sin * x[half + i];
      y[half + i] = sin * x[i] + cos * x[half + i];
    }
    std::copy(x + turned, x + head_dim - first, y + turned);
  }

  template <class S>
  void turn_token(View<const S> x, const Into<S>& y, Index t, const double* table, double direction) const {
    const Index half = turned / 2;
    const Index step = interleaved ? 2 : 1;
    const Index other = interleaved ? 1 : half;
    for (Index h = 0; h < heads; ++h) {
      for (Index c = h * head_dim; c < h * head_dim + first; ++c) store(y, t, c, x(t, c));
      const Index start = h * head_dim + first;
      if (!y.add && !interleaved) {
        turn_halves(x.row(t) + start, y.d.row(t) + start, table, direction);
        continue;
      }
      for (Index i = 0; i < half; ++i) {
        const Index a = start + step * i;
        const Index b = a + other;
        const S cos = S(stretch * table[i]);
        const S sin = S(stretch * direction * table[half + i]);
        store(y, t, a, cos * x(t, a) - sin * x(t, b));
        store(y, t, b, sin * x(t, a) + cos * x(t, b));
      }
      for (Index c = start + turned; c < (h + 1) * head_dim; ++c) store(y, t, c, x(t, c));
    }
  }
};
static_assert(Op<Rotary>);

}  // namespace stepzero
