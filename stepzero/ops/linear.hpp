#pragma once
// What       y_t = W x_t + b: every token through one matrix.
// Shapes     x (T, n); y (T, m); W stored (m, n), or (n, m) as in GPT-2's Conv1D; b (m).
// Forward    Y = X W' + 1 b'                                                (1)
// Backward   dX = dY W                                                      (2)
//            dW = dY' X                                                     (3)
//            db = dY' 1                                                     (4)
// Derived in docs/derivations/linear.md
#include "stepzero/kernels/gemm.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

enum class Storage : bool { out_in, in_out };

// db_c (+)= sum_t dy_tc, in the order of the tokens
template <class S>
void sum_tokens(View<const S> dy, const Into<S>& db) {
  if (!db.wanted()) return;
  parallel_ranges(dy.cols, 256, [&](Index c0, Index c1) {
    S* sum = db.d.row(0);
    if (!db.add) std::fill(sum + c0, sum + c1, S(0));
    for (Index t = 0; t < dy.rows; ++t) {
      const S* row = dy.row(t);
      for (Index c = c0; c < c1; ++c) sum[c] += row[c];
    }
  });
}

template <class S>
void add_bias(View<const S> bias, View<S> y) {
  parallel_ranges(y.rows, row_grain(y.cols), [&](Index t0, Index t1) {
    for (Index t = t0; t < t1; ++t) {
      S* row = y.row(t);
      const S* b = bias.row(0);
      for (Index c = 0; c < y.cols; ++c) row[c] += b[c];
    }
  });
}

struct Linear {
  static constexpr const char* kind = "linear";
  Index in = 0;
  Index out = 0;
  bool bias = false;
  Storage storage = Storage::out_in;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return out; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::vector<ParamShape> params() const {
    const bool rows_out = storage == Storage::out_in;
    std::vector<ParamShape> list = {{rows_out ? out : in, rows_out ? in : out, in, out}};
    if (bias) list.push_back({1, out, in, out});
    return list;
  }

  template <class S>
  void forward(const Down<S>& p) const {
    gemm(Trans::no, by_out(), S(1), p.x[0], p.theta[0], S(0), p.y);  // (1)
    if (bias) add_bias(p.theta[1], p.y);
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (const auto& dx = p.dx[0]; dx.wanted()) {
      gemm(Trans::no, by_in(), S(1), p.dy, p.theta[0], dx.beta(), dx.d);  // (2)
    }
    if (const auto& dw = p.dtheta[0]; dw.wanted()) {
      const bool rows_out = storage == Storage::out_in;
      gemm(Trans::yes, Trans::no, S(1), rows_out ? p.dy : p.x[0], rows_out ? p.x[0] : p.dy, dw.beta(), dw.d);  // (3)
    }
    if (bias) sum_tokens(p.dy, p.dtheta[1]);  // (4)
  }

 private:
  [[nodiscard]] Trans by_out() const { return storage == Storage::out_in ? Trans::yes : Trans::no; }
  [[nodiscard]] Trans by_in() const { return storage == Storage::out_in ? Trans::no : Trans::yes; }
};
static_assert(Op<Linear>);

}  // namespace stepzero
