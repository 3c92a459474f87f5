#pragma once
// The statistics of every activation and gradient of a pass, in one reading of the memory.
//
// The bits depend on the numbers and the shape alone: not on threads, not on the SIMD level (core/streaming_moments.hpp says how).
// Accuracy of Moments and sum_squares: as there, double all along. Of token_cosine: unit rows are rounded to S, added
// four at a time in S and then in double; for float the error is below 4e-7 * (|cosine| + 1/length).
#include <memory>

#include "stepzero/core/streaming_moments.hpp"

namespace stepzero {

struct SignalStats {
  Moments moments;
  // Mean over pairs of different positions of one sequence of <x_t, x_s> / (|x_t| |x_s|), averaged over sequences.
  // A zero row has cosine 0 with everything. NaN when there is no pair, and when any value is NaN or Inf.
  double token_cosine = std::numeric_limits<double>::quiet_NaN();
};

// x: the tokens of `sequences` sequences of equal `length`, one sequence after the other. S: float (SIMD), double (plain).
// With one sequence, moments are bit for bit those of moments(x).
template <class S>
SignalStats signal_stats(View<const S> x, Index sequences, Index length);

// The same, to the bit, of a signal that comes in pieces: the rows in their order, several sequences whole or a part of one that
// begins at a multiple of 8 (of sequences of one token anything).
template <class S>
class SignalScan {
 public:
  SignalScan(Index sequences, Index length, Index cols);
  ~SignalScan();
  SignalScan(const SignalScan&) = delete;
  SignalScan& operator=(const SignalScan&) = delete;

  void add(View<const S> rows);
  [[nodiscard]] bool complete() const;
  [[nodiscard]] SignalStats finish() const;  // once complete

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// Sum of squares in double; NaN or Inf in x come out as NaN or Inf.
template <class S>
double sum_squares(View<const S> x);

// The same without SIMD: what the fast ones are compared with, bit for bit.
template <class S>
SignalStats signal_stats_reference(View<const S> x, Index sequences, Index length);
template <class S>
double sum_squares_reference(View<const S> x);

}  // namespace stepzero
