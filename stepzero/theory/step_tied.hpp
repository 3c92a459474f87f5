#pragma once
// A head that is the token table, in a step: its gradient pulls at the rows that the stream holds, and knows of them.
//
//     Y gets - response R / n - C K,  R_ts = (S_ts r_s - S_tt K_ts / (K_y,tt r_t)) / r_t,  C_tu = rate c_t D_z[u, id_t] / r_u
//
// with y = x / r the last norm, S what the gradient shares with the table, c_t the sign's factor. It is taken where a norm reads the stream
// that the last norm reads, or what that is a sum over; norms in between (post-norm) change the gradient.
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/ops/move/door.hpp"

namespace stepzero {

struct TiedStep {
  bool tied = false;
  std::vector<bool> stream;   // nodes that the wire in front of the last norm is a sum over: they hold the gradient of the head unchanged
  std::size_t head = 0;       // the node
  TableMove table;            // of the embedding
  std::vector<double> sizes;  // r: of the tokens before the norm in front of the head
  Matrix pulls;               // (t, u) E delta_u of the id of token t

  // R K^-1 / n where node i is a norm that reads a stream; else empty.
  [[nodiscard]] Square shared(const Graph& graph, const std::vector<DownWire>& down, const std::vector<UpWire>& up, std::size_t i) const;
  // The change that node i makes of x.
  [[nodiscard]] WireChange run(const Graph& graph, const DownWire& x, std::size_t i, const Mover& mover, const WireChange& before,
                               const Square& shared, const Factor& factor) const;
};

}  // namespace stepzero
