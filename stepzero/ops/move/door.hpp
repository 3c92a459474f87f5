#pragma once
// The fifth door: what an op does to a change of its input and its parameters.
//
//     move(op, door) -> Mover        prepared once; then for any factor on the rates: Mover.run(changes of the inputs, factor)
//
// An op without one is refused by name. Ops that have no closed form draw channels or heads and run their own forward and backward.
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stepzero/ops/move/change.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

// A table that the output holds rows of.
struct TableMove {
  Square eq;  // 1 where tokens share a row
  Update update;
  std::vector<double> scale, second, all;  // sign, of every token: c1 sqrt(n / all), c2, and the square of its row's gradient
};

struct MoveDoor {
  const Batch& batch;
  std::span<const DownWire* const> x;
  const DownWire& y;
  const Kernel& G;  // of the gradient of the output
  std::span<const Law> theta;
  std::span<const Update> updates;     // of each parameter
  std::span<const Square> whole = {};  // of matrices: Gram matrix of the gradient of all outputs of the tensor; empty: of G
  std::span<const double> whole_out = {};
  std::span<const double> squares =
      {};  // E ||dtheta||^2 of all that the node uses of its matrix, if known better than by the kernels; 0: not
  const Tensor<double>* drawn = nullptr;   // channels of the input as its maker has drawn them, (T, any number); null: they are normal
  std::span<const TableMove> tables = {};  // whose rows the input is the sum of
  std::optional<double> drawn_from = {};   // noise of what those channels were drawn from
  // tables that are used elsewhere too: for each token, what that adds to the square of its row's gradient, and which share of the row's
  // update is told of here
  std::span<const double> more = {}, told_here = {};
  double noise_up = 0;      // of the Gram matrix of the gradient
  int tensor = -1;          // of the checkpoint, which the first parameter is in
  std::uint64_t place = 0;  // of the node, for draws
  double effort = 1;
};

// Of one parameter, at rate 1.
struct ParameterMove {
  double norm2 = 0;     // squared norm of the update
  double decrease = 0;  // of the loss, to first order
  double direct = 0;    // mean square over tokens and channels of what it alone does to the output
  double below = -1;    // share of the gradient's entries below eps; -1: there is none
};

struct Mover {
  std::function<WireChange(std::span<const WireChange* const>, const Factor&)> run;
  std::vector<ParameterMove> params;
  std::shared_ptr<const Tensor<double>> drawn = nullptr;  // channels of the output, if it has drawn them
  std::optional<double> drawn_from = {};
  std::shared_ptr<const MatrixMove> matrix = nullptr;  // of a matrix
  std::vector<TableMove> tables = {};                  // whose rows are the output
};

// An input of ops that are drawn together.
struct DrawnFrom {
  const DownWire* wire;
  const Kernel* G;
  const MatrixMove* matrix;  // in front of it; null: none
  const DownWire* stem;      // what that reads; without one the wire itself
  std::uint64_t place;       // of the stem
};

// Of ops that are drawn together: changes of every node, and what the updates of the matrices in front take from the loss, at rate 1.
struct ChainMover {
  std::function<std::vector<WireChange>(std::span<const WireChange* const>, const Factor&)> run;
  std::vector<double> decreases;                   // of every input
  std::vector<double> directs;                     // what these updates alone do to the wire: mean square over tokens and channels
  std::vector<std::vector<ParameterMove>> params;  // of every node
  std::shared_ptr<const Tensor<double>> drawn;
};

// A change whose wire has no matrix in front, as channels move.
WireChange with_channels(WireChange x, const Kernel& K, const Kernel& G, double width);

}  // namespace stepzero
