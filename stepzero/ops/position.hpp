#pragma once
// What       y_t = x_t + P[row_t]: a vector for the place in the sequence, learned or sinusoidal.
// Shapes     x, y (T, d); P (offset + positions, d). row_t = offset + pos_t; `constant`: offset for every token (BERT's token
//            types); with a padding id: offset + the number of tokens before t that are not padding (RoBERTa).
// Forward    Y = X + S P,   S_tp = [row_t = p]                              (1)
//            sinusoidal: P_p,2i = sin(p w_i), P_p,2i+1 = cos(p w_i), w_i = base^(-2i/d)      (2)
// Backward   dX = dY                                                        (3)
//            dP = S' dY                                                     (4)
// Push       L_ts = K_ts + E[p^2] [row_t = row_s];  sinusoidal: L_ts = K_ts + <P_t, P_s>/d                  (5)
// Pull       G passes;  E||dP||^2 = sum_ts [row_t = row_s] G_ts             (6)
// Assumes    P independent of x, of zero mean; a sinusoid is a constant, and its channels are not alike
// Derived in docs/derivations/position.md
#include <cmath>

#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/ops/embedding.hpp"

namespace stepzero {

// dx (+)= a dy
template <class S>
void pass_through(View<const S> dy, const Into<S>& dx, S a = S(1)) {
  if (!dx.wanted()) return;
  parallel_ranges(dy.rows, row_grain(dy.cols), [&](Index t0, Index t1) {
    for (Index t = t0; t < t1; ++t) {
      const S* from = dy.row(t);
      S* to = dx.d.row(t);
      if (dx.add) {
        for (Index c = 0; c < dy.cols; ++c) to[c] += a * from[c];
      } else {
        for (Index c = 0; c < dy.cols; ++c) to[c] = a * from[c];
      }
    }
  });
}

struct LearnedPosition {
  static constexpr const char* kind = "learned_position";
  static constexpr Grade grade = Grade::exact;
  Index positions = 0;
  Index width = 0;
  Index offset = 0;  // rows before position 0 (OPT has 2)
  bool constant = false;
  Index padding = TokenEmbedding::none;  // an id that does not count: its tokens read the row of that number, which has no gradient

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.as_input = true, .wants_law = true}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {{positions + offset, width, positions, width}}; }

  template <class S>
  void forward(const Down<S>& p) const {
    const std::vector<Index> row = rows(p.batch, p.y.rows);
    for (Index t = 0; t < p.y.rows; ++t) {
      const S* position = p.theta[0].row(row[static_cast<std::size_t>(t)]);
      for (Index c = 0; c < width; ++c) p.y(t, c) = p.x[0](t, c) + position[c];  // (1)
    }
  }

  template <class S>
  void backward(const Up<S>& p) const {
    pass_through(p.dy, p.dx[0]);  // (3)
    const std::vector<Index> row = rows(p.batch, p.dy.rows);
    scatter_rows(p.dy, p.dtheta[0], [&](Index t) {
      return row[static_cast<std::size_t>(t)] == padding ? TokenEmbedding::none : row[static_cast<std::size_t>(t)];  // (4)
    });
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    Moment y = *p.x[0];
    const double e = p.theta[0].second_moment();
    const std::vector<Index> row = rows(p.batch, y.K.tokens());
    y.K = Kernel::from(y.K.tokens(), [&](Index t, Index s) {
      return p.x[0]->K(t, s) + (row[static_cast<std::size_t>(t)] == row[static_cast<std::size_t>(s)] ? e : 0);  // (5)
    });
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const std::vector<Index> row = rows(p.batch, p.dy.G.tokens());
    const auto meet = [&](Index t, Index s) {
      const Index r = row[static_cast<std::size_t>(t)];
      return r == row[static_cast<std::size_t>(s)] && (padding < 0 || r != padding);
    };
    return {{Adjoint(p.dy)}, {sum_where(p.dy.G, meet)}};  // (6)
  }

 private:
  // row_t of every row of a wire, which may have more of them than the batch has tokens
  [[nodiscard]] std::vector<Index> rows(const Batch& batch, Index all) const {
    std::vector<Index> row(static_cast<std::size_t>(all), offset);
    Index count = 0;
    for (Index t = 0; t < all && !constant; ++t) {
      if (t % (all / batch.sequences) == 0) count = 0;
      row[static_cast<std::size_t>(t)] = padding >= 0 && batch.ids[t] == padding ? padding : offset + count++;
    }
    return row;
  }
};
static_assert(Op<LearnedPosition>);

struct SinusoidalPosition {
  static constexpr const char* kind = "sinusoidal_position";
  static constexpr Grade grade = Grade::large_width;
  Index width = 0;
  double base = 10000;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.as_input = true, .wants_law = true}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  [[nodiscard]] double encoding(Index position, Index channel) const {
    const Index even = channel - channel % 2;
    const double w = std::pow(base, -static_cast<double>(even) / static_cast<double>(width));
    const double angle = static_cast<double>(position) * w;
    return channel % 2 == 0 ? std::sin(angle) : std::cos(angle);  // (2)
  }

  template <class S>
  void forward(const Down<S>& p) const {
    for (Index t = 0; t < p.y.rows; ++t) {
      for (Index c = 0; c < width; ++c) p.y(t, c) = p.x[0](t, c) + S(encoding(p.batch.position(t), c));  // (1)
    }
  }

  template <class S>
  void backward(const Up<S>& p) const {
    pass_through(p.dy, p.dx[0]);  // (3)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    Matrix table(p.batch.length, width);
    for (Index t = 0; t < p.batch.length; ++t) {
      for (Index c = 0; c < width; ++c) table(t, c) = encoding(t, c);
    }
    Matrix inner(p.batch.length, p.batch.length);
    gemm(Trans::no, Trans::yes, 1 / static_cast<double>(width), View<const double>(table), View<const double>(table), 0.0, inner.view());
    Moment y = *p.x[0];
    y.mean.resize(static_cast<std::size_t>(p.batch.tokens()));
    for (Index t = 0; t < p.batch.tokens(); ++t) {
      double mean = 0;
      for (Index c = 0; c < width; ++c) mean += table(p.batch.position(t), c) / static_cast<double>(width);
      y.mean[static_cast<std::size_t>(t)] = p.x[0]->mean_at(t) + mean;
    }
    y.K =
        Kernel::from(p.batch.tokens(), [&](Index t, Index s) { return p.x[0]->K(t, s) + inner(p.batch.position(t), p.batch.position(s)); });
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const { return {{Adjoint(p.dy)}, {}}; }
};
static_assert(Op<SinusoidalPosition>);

}  // namespace stepzero
