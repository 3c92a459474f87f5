#pragma once
// Sums over what two tokens see: over the keys of two queries, or over the queries of two keys.
//
//     both    S_ts = sum_jl B_jl r^p,                 j seen by t, l seen by s,  r = r((t - s) - (j - l)) of a rotation, or 1
//     cross   C_ts = sum_l y_tl sum_j B_jl r
//
// Without a rotation each is a prefix sum in two dimensions. With one, r stays as it is along a diagonal: S_ts - S_(t-1)(s-1) is what
// the two tokens see more, a row and a column of B times r, and for all of them together one product of matrices, B times the
// matrix of r. In `cross`, whose y changes with t, r is taken apart into its cosines, and each of them into factors for t, s, j, l.
#include <algorithm>
#include <vector>

#include "stepzero/core/kernel.hpp"
#include "stepzero/ops/attention.hpp"
#include "stepzero/ops/attention_turn.hpp"

namespace stepzero {

class Sight {
 public:
  using Range = Attention::Range;

  // The keys that each query sees. `turn`: none where heads are not turned; it outlives this.
  Sight(const Attention& op, const Batch& batch, const Turn* turn);
  // The queries that see each key.
  [[nodiscard]] Sight reversed() const;
  // The same where heads are not turned.
  [[nodiscard]] Sight flat() const;

  [[nodiscard]] Range range(Index t) const { return ranges_[static_cast<std::size_t>(t)]; }
  [[nodiscard]] double count(Index t) const { return static_cast<double>(range(t).end - range(t).begin); }

  // B is symmetric
  [[nodiscard]] Kernel both(const Matrix& B, int power = 1) const;
  // sum_jl B_jl over what t sees, without r
  [[nodiscard]] std::vector<double> own(const Matrix& B) const;
  [[nodiscard]] Matrix cross(const Matrix& B, const Matrix& y) const;
  // mean of row j of K over what s sees, for all (s, j); K is symmetric
  [[nodiscard]] Matrix means(const Kernel& K) const;
  // F with F_t F_s' = sum_jl h_tj h_sl r
  [[nodiscard]] Matrix places(const Matrix& h) const;

 private:
  [[nodiscard]] Index place(Index t) const { return t % length_; }
  void add_block(const Matrix& B, Index first, Index second, const std::vector<double>& r, Matrix& out) const;
  void add_waves(const Matrix& B, const Matrix& y, Index first, Matrix& out) const;

  Index length_;
  const Turn* turn_;
  Index back_, ahead_;         // how far a token sees within its sequence, which may end before
  std::vector<Range> ranges_;  // of all tokens
};

}  // namespace stepzero
