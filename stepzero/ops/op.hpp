#pragma once
// The contract of an op: the first file to read.
//
// An op is a plain struct that holds one piece of mathematics, which nothing else in the program has. It has four doors:
//
//                  values (tensors)                 moments (Gram kernels)
//     down     forward(x)    -> y               push(K)      -> K_y
//     up       backward(dy)  -> dx, dtheta      pull(K, G_y) -> G_x, E||dtheta||^2
//
// The value doors are templates over the scalar: float (shipped), double (reference), Dual (exact derivative).
// Law L1 holds for every op in all.hpp, checked by tests/laws/duality_test.cpp:
//
//     <dy, J v> = <backward(dy), v>       for random dy, and random v over the inputs and the parameters
//
// What others ask about an op, it answers itself: channel_law, and where the default does not fit
//     remake       Remake: what memory keeps of the kernel on the way down (if_long)
//     draw_cost    operations of one draw of its kernel, beyond those of a wire
//     samples      its moment doors draw heads, and need effort
//     note         what it tells the ops beside it on the way down (DownWire::note)
//     summary      numbers for the report from what forward keeps
//     row_wise     a row of the output is made of that row of the input, and is cheap
//     lazy_matrices, matrices_by_norm, looks_up    how a pass may do without its weights or their gradients
//     not_predicted   why its moment doors do not hold; null: they do
//
// To add an op: write its file, end it with static_assert(Op<...>), add one line to all.hpp, a page in
// docs/derivations/ and an example in tests/laws/examples.hpp. A missing door is a compile error on that line.
#include <algorithm>
#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stepzero/core/batch.hpp"
#include "stepzero/core/dual.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/view.hpp"
#include "stepzero/ops/moments.hpp"

namespace stepzero {

// Door down: read x and theta, write y; leave in `keep` what the door up will want.
template <class S>
struct Down {
  const Batch& batch;
  std::span<const View<const S>> x;      // inputs, each (tokens, channels)
  std::span<const View<const S>> theta;  // parameters, in the order of params()
  View<S> y;                             // output
  View<S> keep;                          // (tokens, keep()) of the op's own memory
  Index first = 0;                       // the row of the batch that row 0 is, where an op runs on some rows at a time
};

// Where a gradient goes: written, or added to what other uses of the same wire have left there. Empty: not wanted.
template <class S>
struct Into {
  View<S> d;
  bool add = false;

  [[nodiscard]] bool wanted() const { return !d.empty(); }
  [[nodiscard]] S beta() const { return add ? S(1) : S(0); }
};

// Door up: read dy (and x, theta, y, keep), write dx and dtheta.
template <class S>
struct Up {
  const Batch& batch;
  std::span<const View<const S>> x;
  std::span<const View<const S>> theta;
  View<const S> y;
  View<const S> keep;
  View<const S> dy;
  std::span<const Into<S>> dx;
  std::span<const Into<S>> dtheta;
  Index first = 0;
};

// The law of one channel of an op's output, for draws of kernels (theory/predict_drawn.hpp).
struct ChannelLaw {
  bool gaussian = false;    // Gaussian given the input: the kernel is the law of the channels
  bool as_input = false;    // Gaussian if the input's channels are
  bool wants_law = false;   // push reads the law of the input's channels, not the Gram matrix that one draw has
  bool of_its_own = false;  // not Gaussian: the Gram matrix is drawn at once
};

// Whether the kernel of the output is made again on the way up, where memory cannot hold all.
enum class Remake : std::uint8_t { never, if_long, always };

// A parameter as the op sees it: a matrix (rows, cols) with the fans that its use gives it.
struct ParamShape {
  Index rows = 0;
  Index cols = 0;
  Index fan_in = 0;
  Index fan_out = 0;
};

template <class T>
concept Op = requires(const T& op, const Down<float>& df, const Down<double>& dd, const Down<Dual>& de, const Up<float>& uf,
                      const Up<double>& ud, const PushDoor& push, const PullDoor& pull) {
  { T::kind } -> std::convertible_to<const char*>;  // "linear"
  { op.inputs() } -> std::same_as<int>;             // how many wires it reads
  { op.channels() } -> std::same_as<Index>;         // channels of its output
  { op.keep() } -> std::same_as<Index>;             // numbers a token kept from forward to backward
  { op.params() } -> std::same_as<std::vector<ParamShape>>;
  { op.forward(df) } -> std::same_as<void>;
  { op.forward(dd) } -> std::same_as<void>;
  { op.forward(de) } -> std::same_as<void>;
  { op.backward(uf) } -> std::same_as<void>;
  { op.backward(ud) } -> std::same_as<void>;
  { op.push(push) } -> std::convertible_to<DownWire>;
  { op.pull(pull) } -> std::same_as<Pulled>;
  { T::grade } -> std::convertible_to<Grade>;                       // of push and pull
  { op.channel_law() } -> std::same_as<std::optional<ChannelLaw>>;  // absent: models with this op have no draws of kernels
};

// Rows of an op's output: those of its first input, unless it moves over images or time and leaves some places of each.
template <class T>
Index rows_after(const T& op, const Batch& batch, Index before) {
  if constexpr (requires { op.places(); })
    return batch.sequences * op.places();
  else if constexpr (requires { op.steps_after(before); })
    return batch.sequences * op.steps_after(before / batch.sequences);
  else
    return before;
}

// Rows handed to one piece of parallel work: about 16 thousand numbers, whatever the number of threads.
inline Index row_grain(Index cols) { return std::max<Index>(1, 16384 / std::max<Index>(cols, 1)); }

template <class S>
void store(const Into<S>& into, Index r, Index c, S value) {
  into.d(r, c) = into.add ? into.d(r, c) + value : value;
}

template <class S>
void clear(View<S> x) {
  for (Index r = 0; r < x.rows; ++r) std::fill_n(x.row(r), x.cols, S(0));
}
// A gradient of 0, or the place that others are added to.
template <class S>
void clear(const Into<S>& into) {
  if (into.wanted() && !into.add) clear(into.d);
}

}  // namespace stepzero
