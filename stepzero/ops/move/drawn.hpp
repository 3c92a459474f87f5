#pragma once
// Channels of one wire, drawn, and how they move: normal channels x, and once their gradients d are known, what the update of the matrix in
// front makes of each by the law of that channel alone.
//
//     o = - carried d - rate (I + stretch) f(d) - rate_b b(d) 1 + left z,   x' = (I + stretch) x +- o                        (1)
//     f(d): SGD n_in K d;  sign n_in c1 K d / sqrt(d' K d), with what they leave;  polar A d                        (2)
// Both signs are taken: the gradient may come with either.
#include <cstdint>

#include "stepzero/ops/move/change.hpp"

namespace stepzero {

// Independent normal columns, (rows, columns), with the identity as their own covariance where there are at least twice as many.
Tensor<double> normal_columns(std::uint64_t place, const char* name, Index draw, Index rows, Index columns, bool matched);
// A root of F F', (T, T).
Square square_root(const Tensor<float>& F);
// m z
Tensor<double> times(const Square& m, const Tensor<double>& z);
// a a' / columns, a b' / columns
Square covariance(View<const double> a, View<const double> b);

struct DrawnInput {
  Tensor<double> x, d;
  Tensor<double> direct;     // f(d), at rate 1
  std::vector<double> bias;  // b(d)
  Tensor<double> z;          // (T, columns)
  double pull = 0;           // sum over columns of |x . d| in the mean over normal x, or of its square by SGD: of this draw's kernel
  double square = 0;         // sum over columns of d' K d
};

// Fills in all but x and d. root: of this draw's kernel of the matrix's input; null: of the mean kernel. polar: A of a polar update, and a
// root of what it leaves (none: empty).
// noise: of the matrix's input beyond `root`.
void prepare(DrawnInput& in, const MatrixMove* m, const Square* root, const Square& polar, const Square& rest, double noise,
             std::uint64_t place, Index draw);

// Mean square of f(d).
double mean_direct(const DrawnInput& in);

// (1) for both signs: what does not turn with the gradient, and o.
struct Moved {
  Tensor<double> kept, turned;
  [[nodiscard]] Tensor<double> with(double sign) const;
};
// left: a root of the kernel of what is left.
Moved moved(const DrawnInput& in, const WireChange& change, const Square& left);

}  // namespace stepzero
