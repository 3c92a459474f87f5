#pragma once
// What       An image becomes a sequence: a learned class token, then its patches, each through one matrix. A convolution
//            whose stride is its size. The token and the bias may be missing.
// Shapes     pixels (images, colours, side, side), with the batch; y (images (1 + P), n), P patches in rows from the top;
//            W (n, m) stored (n, colours, patch, patch), m = colours patch^2; b, c (n). x_t (m) is the patch of token t.
// Forward    y_t = W x_t + b                                                (1)
//            y_t = c for the first token of an image                        (2)
// Backward   dW = sum_t dy_t x_t',  db = sum_t dy_t, over patches           (3)
//            dc = sum of dy_t over class tokens                             (4)
// Push       K_ts = E[w^2] <x_t, x_s> + E[b^2] for patches, E[c^2] for class tokens, 0 between               (5)
// Pull       E||dW||^2 = sum_ts G_ts <x_t, x_s>,  E||db||^2 and E||dc||^2 = sum_ts G_ts over patches, over class tokens     (6)
// Assumes    entries of W, b, c independent, of zero mean
// Derived in docs/derivations/patch.md
#include <algorithm>

#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/ops/linear.hpp"

namespace stepzero {

struct PatchEmbedding {
  static constexpr const char* kind = "patch_embedding";
  static constexpr Grade grade = Grade::exact;
  Index side = 1;  // pixels; what a whole number of patches leaves over is not looked at
  Index patch = 1;
  Index colours = 1;
  Index width = 0;
  bool bias = true;
  bool class_token = true;

  [[nodiscard]] int inputs() const { return 0; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] Index size() const { return colours * patch * patch; }
  [[nodiscard]] Index tokens() const { return (side / patch) * (side / patch) + (class_token ? 1 : 0); }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const {
    std::vector<ParamShape> list = {{width * colours * patch, patch, size(), width}};
    if (bias) list.push_back({1, width, size(), width});
    if (class_token) list.push_back({1, width, 1, width});
    return list;
  }

  template <class S>
  void forward(const Down<S>& p) const {
    const Tensor<S> x = patches<S>(p.batch);
    const View<const S> w(p.theta[0].data, width, size());
    gemm(Trans::no, Trans::yes, S(1), x.view(), w, S(0), p.y);
    if (bias) add_bias(p.theta[1], p.y);                                                                                        // (1)
    for (Index t = 0; class_token && t < p.y.rows; t += p.batch.length) std::copy_n(p.theta.back().row(0), width, p.y.row(t));  // (2)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    const Tensor<S> x = patches<S>(p.batch);
    if (const auto& dw = p.dtheta[0]; dw.wanted()) {
      gemm(Trans::yes, Trans::no, S(1), p.dy, x.view(), dw.beta(), View<S>(dw.d.data, width, size()));  // (3)
    }
    if (bias) sum_some(p, p.dtheta[1], false);
    if (class_token) sum_some(p, p.dtheta.back(), true);  // (4)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    const Kernel X = inner_products(p.batch);
    const double w = p.theta[0].second_moment(), b = bias ? p.theta[1].second_moment() : 0;
    const double c = class_token ? p.theta.back().second_moment() : 0;
    Moment y;
    y.K = Kernel::from(p.batch.tokens(), [&](Index t, Index s) {
      const bool first = is_class(p.batch, t);
      if (first != is_class(p.batch, s)) return 0.0;
      return first ? c : w * X(t, s) + b;  // (5)
    });
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const Kernel X = inner_products(p.batch);
    double of_bias = 0, of_token = 0;
    for (Index t = 0; t < p.batch.tokens(); ++t) {
      for (Index s = 0; s < p.batch.tokens(); ++s) {
        const bool first = is_class(p.batch, t);
        if (first == is_class(p.batch, s)) (first ? of_token : of_bias) += p.dy.G(t, s);  // (6)
      }
    }
    std::vector<double> squares = {frobenius(p.dy.G, X)};
    if (bias) squares.push_back(of_bias);
    if (class_token) squares.push_back(of_token);
    return {{}, squares};
  }

 private:
  [[nodiscard]] bool is_class(const Batch& batch, Index t) const { return class_token && batch.position(t) == 0; }

  // One row a token, in the order of W's columns; the class token's is 0.
  template <class S>
  [[nodiscard]] Tensor<S> patches(const Batch& batch) const {
    Tensor<S> x(batch.tokens(), size());
    const Index across = side / patch;
    for (Index t = 0; t < x.rows(); ++t) {
      S* row = x.view().row(t);
      const Index place = batch.position(t) - (class_token ? 1 : 0);
      std::fill_n(row, size(), S(0));
      for (Index i = 0; place >= 0 && i < size(); ++i) {
        const Index colour = i / (patch * patch), r = place / across * patch + i / patch % patch, c = place % across * patch + i % patch;
        const Index image = t / batch.length;
        row[i] = S(batch.pixels[static_cast<std::size_t>(((image * colours + colour) * side + r) * side + c)]);
      }
    }
    return x;
  }

  [[nodiscard]] Kernel inner_products(const Batch& batch) const {
    const Tensor<double> x = patches<double>(batch);
    Matrix X(x.rows(), x.rows());
    gemm(Trans::no, Trans::yes, 1.0, x.view(), x.view(), 0.0, X.view());
    return Kernel(std::move(X));
  }

  // Over class tokens, or over all others.
  template <class S>
  void sum_some(const Up<S>& p, const Into<S>& into, bool first) const {
    for (Index c = 0; into.wanted() && c < width; ++c) {
      S sum = S(0);
      for (Index t = 0; t < p.dy.rows; ++t) {
        if (is_class(p.batch, t) == first) sum += p.dy(t, c);
      }
      store(into, 0, c, sum);
    }
  }
};
static_assert(Op<PatchEmbedding>);

}  // namespace stepzero
