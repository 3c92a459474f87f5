#pragma once
// What       Sound as it is given: a row for each frame of each sequence, a channel for each band of frequencies.
// Shapes     features (sequences, n, frames), with the batch; y (sequences frames, n).
// Forward    y_tc = the band c of frame t                                   (1)
// Backward   nothing: features are given
// Push       K_ts = sum_c y_tc y_sc / n                                     (2)
// Pull       nothing
// Assumes    nothing
// Derived in docs/derivations/features.md
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Features {
  static constexpr const char* kind = "features";
  static constexpr Grade grade = Grade::exact;
  Index frames = 1;
  Index width = 1;

  [[nodiscard]] int inputs() const { return 0; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index places() const { return frames; }
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
    Tensor<double> x(p.batch.sequences * frames, width);
    read(p.batch, x.view());
    Matrix K(x.rows(), x.rows());
    gemm(Trans::no, Trans::yes, 1 / static_cast<double>(width), View<const double>(x), View<const double>(x), 0.0, K.view());  // (2)
    DownWire y;
    y.K = Kernel(std::move(K));
    y.f.noise = y.f.sampling = 0;  // no draw has others
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor&) const { return {}; }

 private:
  template <class S>
  void read(const Batch& batch, View<S> y) const {
    for (Index t = 0; t < y.rows; ++t) {
      const Index sequence = t / frames, frame = t % frames;
      for (Index c = 0; c < width; ++c) {
        y(t, c) = S(batch.features[static_cast<std::size_t>((sequence * width + c) * frames + frame)]);  // (1)
      }
    }
  }
};
static_assert(Op<Features>);

}  // namespace stepzero
