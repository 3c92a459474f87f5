#pragma once
// Experts whose matrices are never made: each is seen by its own tokens only, and conditions on them (ops/weightless.hpp).
#include <utility>

#include "stepzero/ops/experts.hpp"
#include "stepzero/ops/weightless.hpp"

namespace stepzero {

// The products with matrices that are not there, in the place of MadeProducts.
template <class S>
struct LazyProducts {
  const Batch& batch;
  const std::vector<WeightlessLinear>& matrices;
  std::vector<double>* squares = nullptr;

  void down(Index k, View<const S> x, View<S> y) const {
    matrices[static_cast<std::size_t>(k)].forward(Down<S>{batch, {&x, 1}, {}, y, {}}, row_space(x));
  }
  void up(Index k, View<const S> x, View<const S> dy, const Into<S>& dx) const {
    const Into<S> none;
    const Up<S> door{batch, {&x, 1}, {}, {}, {}, dy, {&dx, 1}, {&none, 1}};
    (*squares)[static_cast<std::size_t>(k)] = matrices[static_cast<std::size_t>(k)].backward(door, row_space(x))[0];
  }
  void nothing(Index) const {}
};

struct WeightlessExperts {
  Experts op;
  std::vector<WeightlessLinear> matrices = {};  // in the order of the op's parameters

  template <class S>
  void forward(const Down<S>& p, const RowSpace&) const {
    op.down(p, LazyProducts<S>{p.batch, matrices});
  }

  template <class S>
  std::vector<double> backward(const Up<S>& p, const RowSpace&) const {
    std::vector<double> squares(matrices.size(), 0.0);
    op.up(p, LazyProducts<S>{p.batch, matrices, &squares});
    return squares;
  }
};
static_assert(StandIn<WeightlessExperts>);

inline WeightlessExperts stand_in(const Experts& op, std::vector<WeightlessLinear> matrices) { return {op, std::move(matrices)}; }

}  // namespace stepzero
