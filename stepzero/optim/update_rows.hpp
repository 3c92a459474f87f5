#pragma once
// The updates of a run of numbers: the plain templates are the reference and serve double; the float overloads are SIMD. Every
// operation rounds once and none are fused, so both have the same bits, on every SIMD level.
#include <cmath>

#include "stepzero/core/parallel.hpp"
#include "stepzero/optim/turn.hpp"

namespace stepzero {

template <class S>
struct SgdNumbers {
  S kept, size, shrink, momentum;
  bool nesterov;
};
template <class S>
struct AdamNumbers {
  S kept, size, shrink, beta1, fresh1, beta2, fresh2, unbias2, eps;
};
template <class S>
struct LionNumbers {
  S kept, size, shrink, beta1, fresh1, beta2, fresh2;
};

// `buffer` may be null: no momentum.
template <class S>
void sgd_row(S* w, const S* g, S* buffer, Index n, const SgdNumbers<S>& c) {
  for (Index i = 0; i < n; ++i) {
    const S d = c.shrink * g[i];
    S u = d;
    if (buffer != nullptr) {
      buffer[i] = c.momentum * buffer[i] + d;
      u = c.nesterov ? d + c.momentum * buffer[i] : buffer[i];
    }
    w[i] = c.kept * w[i] - c.size * u;
  }
}

template <class S>
void adam_row(S* w, const S* g, S* m, S* v, Index n, const AdamNumbers<S>& c) {
  for (Index i = 0; i < n; ++i) {
    const S d = c.shrink * g[i];
    m[i] = c.beta1 * m[i] + c.fresh1 * d;
    v[i] = c.beta2 * v[i] + c.fresh2 * (d * d);
    w[i] = c.kept * w[i] - c.size * (m[i] / (std::sqrt(v[i]) / c.unbias2 + c.eps));
  }
}

template <class S>
void lion_row(S* w, const S* g, S* m, Index n, const LionNumbers<S>& c) {
  for (Index i = 0; i < n; ++i) {
    const S d = c.shrink * g[i];
    const S u = c.beta1 * m[i] + c.fresh1 * d;
    const S sign = u > S(0) ? S(1) : u < S(0) ? S(-1) : S(0);
    w[i] = c.kept * w[i] - c.size * sign;
    m[i] = c.beta2 * m[i] + c.fresh2 * d;
  }
}

void sgd_row(float* w, const float* g, float* buffer, Index n, const SgdNumbers<float>& c);
void adam_row(float* w, const float* g, float* m, float* v, Index n, const AdamNumbers<float>& c);
void lion_row(float* w, const float* g, float* m, Index n, const LionNumbers<float>& c);

// Calls row(first, count) for pieces of the tensor, from all threads.
template <class S, class Row>
void by_pieces(const Turn<S>& t, const Row& row) {
  STEPZERO_CHECK(t.w.contiguous() && t.g.contiguous() && t.w.size() == t.g.size());
  constexpr Index piece = Index{1} << 16;
  parallel_ranges(t.w.size(), piece, [&](Index begin, Index end) { row(begin, end - begin); });
}

}  // namespace stepzero
