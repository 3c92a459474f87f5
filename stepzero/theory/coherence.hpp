#pragma once
// Sums whose wires share sources: U-net skips, embeddings that come back, hyper-connections, a wire added to itself.
//
// Expansion  x_t = sum_i c_i(t) u_i,t: sources u_i are what tables and fresh matrices make; they are uncorrelated, of kernels U_i. Sums,
//            scales, gains and norms change the numbers c_i of the tokens and nothing else.                              (1)
// Down       y = a x + b z:  K_y = a^2 K_x + b^2 K_z + 2 ab sym(C),  C_ts = E<x_t, z_s>/n = sum_i c_i(t) e_i(s) U_i(t, s)   (2)
// Up         gradients of one wire from its several readers expand over what fresh matrices send back (W' d), and over the loss; those
//            that came from one place along different sums add in amplitude, by the same rule                            (3)
// Scalar     y = g x, one learned number: dg = sum_t <d_t, x_t> hangs on what the gradient and x have in common (behind a norm of x it is
// 0),
//            of which an expansion over kernels knows nothing: no rule, its gradient is not told.
// What single draws differ by is carried as if the wires were uncorrelated.
// Derived in docs/derivations/residual.md
#include <map>
#include <span>
#include <vector>

#include "stepzero/core/kernel.hpp"
#include "stepzero/graph/sources.hpp"

namespace stepzero {

class Expansions {
 public:
  struct Part {
    std::vector<double> numbers;  // one for each token
  };
  using Expansion = std::map<std::size_t, Part>;  // by source

  explicit Expansions(std::size_t wires) : of_(wires) {}

  void clear() {
    for (Expansion& x : of_) x.clear();
    sources_.clear();
  }

  // A source of its own.
  Expansion fresh(const Kernel& K);
  [[nodiscard]] const Expansion& of(std::size_t wire) const { return of_[wire]; }

  // The wire times a number, or where it became another wire of other sizes times those of each token.
  [[nodiscard]] static Expansion times(const Expansion& x, const PassesOn& how, const Kernel& before, const Kernel& after);

  // Adds to what a wire holds.
  void add(std::size_t wire, const Expansion& x);
  // Makes what a wire is beyond its expansion (positions, dropout) a source.
  void complete(std::size_t wire, const Kernel& K);

  // E<x_t, y_s> + E<y_t, x_s>; empty: they share nothing.
  [[nodiscard]] Kernel cross(const Expansion& x, const Expansion& y) const;

 private:
  std::vector<Expansion> of_;
  std::vector<Kernel> sources_;
};

}  // namespace stepzero
