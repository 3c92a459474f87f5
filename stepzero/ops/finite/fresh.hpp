#pragma once
// Finite width of what gives every token numbers of its own: a mask (dropout), a row of a table (positions). The token's part that was
// there before keeps what it varies by; of the whole it is a share.
#include <cmath>

#include "stepzero/ops/dropout.hpp"
#include "stepzero/ops/finite/carry.hpp"
#include "stepzero/ops/position.hpp"

namespace stepzero {

namespace finite {

// Cosines rho become share * rho: in units of what the tokens now differ by, they vary less. The channels' own noise stays.
inline Fluctuation with_fresh(const DownWire& x, const Kernel& y) {
  const double share = y.trace() > 0 ? x.K.trace() / y.trace() : 1, r = x.K.mean_cosine(), z = y.mean_cosine();
  Fluctuation f = x.f;
  if (share == 1 || !(1 - z > 1e-9)) return f;
  const double pair = share * (1 - r * r) / (1 - z * z), apart = share * (1 - r) / (1 - z), shared = x.shared_noise();
  f.noise = pair * pair * shared + (x.f.noise - shared);
  f.take_jitter(x.f, pair * pair);
  f.swing *= apart * apart;
  return f;
}

// Rows are independent of the tokens: their sizes dilute what the tokens' sizes vary by.
template <class T>
DownWire push_position(const T& op, const PushDoor& p) {
  DownWire y{op.push(p)};
  y.f = with_fresh(*p.x[0], y.K);
  const double share = y.K.trace() > 0 ? p.x[0]->K.trace() / y.K.trace() : 1;
  for (double* size : {&y.f.drift, &y.f.token_drift, &y.f.lone}) *size *= share * share;
  return y;
}

}  // namespace finite

inline DownWire push_finite(const LearnedPosition& op, const PushDoor& p) { return finite::push_position(op, p); }
inline DownWire push_finite(const SinusoidalPosition& op, const PushDoor& p) { return finite::push_position(op, p); }

inline DownWire push_finite(const Dropout& op, const PushDoor& p) {
  DownWire y{op.push(p)};
  y.f = finite::with_fresh(*p.x[0], y.K);
  y.f.sampling = (1 + p.x[0]->f.sampling) / (1 - op.p) - 1;
  return y;
}

}  // namespace stepzero
