#pragma once
// Updates of vectors: y = x o (1 g') + 1 b'. A gain is a matrix law with one input for each output; a bias one with x = 1.
//
//     gain    x U has response A and rest R of the law with n_in = 1, over the kernel of what it multiplies; by SGD A = K        (1)
//     bias    SGD: A = 1 1', R = 0;  sign: A = sqrt(2 n / pi) 1 1' / sqrt(1' G 1), size 1 1'                               (2)
// Derived in docs/derivations/move.md
#include <cmath>
#include <numbers>

#include "stepzero/ops/move/direct.hpp"

namespace stepzero {

// (2), with the factors of the law with eps. Nothing pulls at a bias whose gradient is 0 (that of keys); Lion follows its rounding.
inline Direct direct_bias(const Update& u, const Square& G, double n) {
  const Index tokens = G.tokens();
  double pull = 0, size = G.trace();
  for (Index t = 0; t < tokens; ++t) {
    for (Index s = 0; s < tokens; ++s) pull += G(t, s);
  }
  Direct out{Square(tokens), Square(tokens), 0, 0, {}};
  const bool sign = u.rule == Update::Rule::sign;
  if (u.moves() && sign && u.eps == 0 && size > 0 && !(pull > 1e-9 * size)) {  // the signs of rounding
    out.R = Square::from(tokens, [](Index, Index) { return 1; });
    out.norm2 = n;
    return out;
  }
  if (!u.moves() || !(pull > 1e-9 * size)) return out;
  if (sign) out.numbers = sign_numbers(u.eps / std::sqrt(pull / n));
  const double a = sign ? out.numbers.first * std::sqrt(n / pull) : u.times;
  const double rest = sign ? out.numbers.second - out.numbers.first * out.numbers.first : 0;
  out.A = Square::from(tokens, [&](Index, Index) { return a; });
  out.R = Square::from(tokens, [&](Index, Index) { return rest; });
  out.norm2 = sign ? out.numbers.second * n : u.times * u.times * pull;
  out.decrease = a * pull;
  return out;
}

// (1)
inline Direct direct_gain(const Update& u, const Square& K, const Square& G, double n) {
  if (!u.moves()) return {Square(K.tokens()), Square(K.tokens()), 0, 0, {}};
  return direct(u, {.K = K, .G = G, .whole = {}, .n_in = 1, .n_out = n, .whole_out = 1, .noise = 1});
}

}  // namespace stepzero
