#pragma once
// Draws of a wire's Gram matrix around its mean kernel: sample covariances of 1/noise channels.
#include <cstdint>
#include <vector>

#include "stepzero/core/view.hpp"
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/ops/moments.hpp"

namespace stepzero {

// Numbers of N(0, 1) from the stream of a node, which its place in the graph names.
Tensor<float> node_normals(std::uint64_t place, const char* name, Index draw, Index rows, Index columns);

// The same for draws in opposite pairs: the numbers of draw 2 i + 1 are those of 2 i with opposite signs.
Tensor<float> opposite_normals(std::uint64_t place, const char* name, Index draw, Index rows, Index columns);

Tensor<float> product(Trans ta, Trans tb, const Tensor<float>& a, const Tensor<float>& b);

// The mean over the tokens of x, channel by channel.
std::vector<float> mean_token(View<const float> x);

class KernelDraw {
 public:
  // `noise`: the part of x.f.noise inherited from the wire's input, hence common to all its readers.
  KernelDraw(const DownWire& x, double noise, Index length, std::uint64_t place);

  // F, (T, rank), with F F' the Gram matrix of draw i.
  [[nodiscard]] Tensor<float> root(Index i) const;
  // The same for a wire behind a matrix and a norm, where `stem` is the root that the draw has before them: `noise` is then what these
  // two add.
  [[nodiscard]] Tensor<float> root(Index i, const Tensor<float>& stem) const;

 private:
  [[nodiscard]] Tensor<float> sample(Index i, Trans turned, const Tensor<float>& mean) const;
  void fix_sizes(Tensor<float>& root, double fixed) const;
  void swing(Tensor<float>& root, Index i) const;

  const DownWire& x_;
  Tensor<float> mean_root_;
  double channels_;  // 0: no noise
  bool jitters_ = false;
  double fixed_ = 0;  // 1: sizes of tokens do not vary; 0: as in a sample covariance
  Index length_;
  std::uint64_t place_;
};

}  // namespace stepzero
