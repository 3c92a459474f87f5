#pragma once
// What       y_t = E[id_t]: each token looks up its own row.
// Shapes     E (vocab, d); y (T, d). No input wire: the ids come with the batch.
// Forward    Y = S E,   S_tv = [id_t = v]                                   (1)
// Backward   dE = S' dY:  dE_v = sum over t with id_t = v of dy_t           (2)
//            A row kept for padding has no gradient; below, its tokens are left out of (4).
// Push       K_ts = E[e^2] [id_t = id_s]                                     (3)
// Pull       E||dE||^2 = sum_ts [id_t = id_s] G_ts                           (4)
// Assumes    entries of E independent, of zero mean
// Derived in docs/derivations/embedding.md
#include <algorithm>

#include "stepzero/ops/op.hpp"

namespace stepzero {

// Adds row t of dy to row index(t) of the table's gradient, for all t (negative: to none). Threads divide the columns, so that every
// element is summed in the order of the tokens.
template <class S, class IndexOf>
void scatter_rows(View<const S> dy, const Into<S>& table, const IndexOf& index) {
  if (!table.wanted()) return;
  if (!table.add) {
    parallel_ranges(table.d.rows, row_grain(table.d.cols), [&](Index r0, Index r1) {
      for (Index r = r0; r < r1; ++r) std::fill_n(table.d.row(r), table.d.cols, S(0));
    });
  }
  parallel_ranges(dy.cols, 64, [&](Index c0, Index c1) {
    for (Index t = 0; t < dy.rows; ++t) {
      const Index r = index(t);
      for (Index c = c0; r >= 0 && c < c1; ++c) table.d(r, c) += dy(t, c);
    }
  });
}

// sum of G_ts over pairs that meet in one row of a table
template <class Meet>
double sum_where(const Kernel& G, const Meet& meet) {
  double sum = 0;
  for (Index t = 0; t < G.tokens(); ++t) {
    for (Index s = 0; s < G.tokens(); ++s) sum += meet(t, s) ? G(t, s) : 0;
  }
  return sum;
}

struct TokenEmbedding {
  static constexpr const char* kind = "token_embedding";
  static constexpr Grade grade = Grade::exact;
  static constexpr bool looks_up = true;  // of its table only the rows of the ids that occur
  static constexpr Index none = -1;
  Index vocab = 0;
  Index width = 0;
  Index padding = none;  // the id whose row gets no gradient from here (nn.Embedding's padding_idx)
  bool encoder = false;  // reads the ids of the encoder

  [[nodiscard]] int inputs() const { return 0; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.gaussian = true}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {{vocab, width, vocab, width}}; }

  template <class S>
  void forward(const Down<S>& p) const {
    const auto& id = p.batch.ids_for(encoder);
    for (Index t = 0; t < p.y.rows; ++t) std::copy_n(p.theta[0].row(id[t]), width, p.y.row(t));  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    const auto& id = p.batch.ids_for(encoder);
    scatter_rows(p.dy, p.dtheta[0], [&](Index t) -> Index { return id[t] == padding ? none : id[t]; });  // (2)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    const double e = p.theta[0].second_moment();
    Moment y;
    const auto& id = p.batch.ids_for(encoder);
    y.K = Kernel::from(p.batch.tokens(), [&](Index t, Index s) { return id[t] == id[s] ? e : 0; });  // (3)
    if (!encoder) y.own.assign(static_cast<std::size_t>(p.batch.tokens()), 1.0);
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const auto& id = p.batch.ids_for(encoder);
    const auto meet = [&](Index t, Index s) { return id[t] == id[s] && id[t] != padding; };
    return {{}, {sum_where(p.dy.G, meet)}};  // (4)
  }
};
static_assert(Op<TokenEmbedding>);

}  // namespace stepzero
