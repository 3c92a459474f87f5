#pragma once
// What       The images of the batch, a row for each pixel.
// Shapes     pixels (images, colours, side, side), with the batch; y (images side^2, colours).
// Forward    y_pc = the colour c of pixel p                                 (1)
// Backward   nothing: pixels are given
// Push       K_pq = sum_c y_pc y_qc / colours                               (2)
// Pull       nothing
// Assumes    nothing
// Derived in docs/derivations/pixels.md
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Pixels {
  static constexpr const char* kind = "pixels";
  static constexpr Grade grade = Grade::exact;
  Index side = 1;
  Index colours = 1;

  [[nodiscard]] int inputs() const { return 0; }
  [[nodiscard]] Index channels() const { return colours; }
  [[nodiscard]] Index places() const { return side * side; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    read(p.batch, p.y);
  }

  template <class S>
  void backward(const Up<S>&) const {}

  [[nodiscard]] DownWire push(const PushDoor& p) const {
    Tensor<double> x(p.batch.sequences * places(), colours);
    read(p.batch, x.view());
    Matrix K(x.rows(), x.rows());
    gemm(Trans::no, Trans::yes, 1 / static_cast<double>(colours), View<const double>(x), View<const double>(x), 0.0, K.view());  // (2)
    DownWire y;
    y.K = Kernel(std::move(K));
    for (Index t = 0; t < x.rows(); ++t) {
      double sum = 0;
      for (Index c = 0; c < colours; ++c) sum += x(t, c);
      y.mean.push_back(sum / static_cast<double>(colours));
    }
    y.f.noise = y.f.sampling = 0;  // no draw has other pixels
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor&) const { return {}; }

 private:
  template <class S>
  void read(const Batch& batch, View<S> y) const {
    for (Index t = 0; t < y.rows; ++t) {
      const Index image = t / places(), place = t % places();
      for (Index c = 0; c < colours; ++c) {
        y(t, c) = S(batch.pixels[static_cast<std::size_t>((image * colours + c) * places() + place)]);  // (1)
      }
    }
  }
};
static_assert(Op<Pixels>);

}  // namespace stepzero
