#pragma once
// Kernels as single draws of a model show them: they differ from the mean kernel, like a sample covariance of as many
// channels as the wire's noise stands for.
#include <cstdint>
#include <vector>

#include "stepzero/core/view.hpp"
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/ops/moments.hpp"

namespace stepzero {

// Numbers of N(0, 1) from the stream of a node, which its place in the graph names.
Tensor<float> node_normals(std::uint64_t place, const char* name, Index draw, Index rows, Index columns);

// The same for draws that come two by two: those of 2 i + 1 are those of 2 i with opposite signs.
Tensor<float> opposite_normals(std::uint64_t place, const char* name, Index draw, Index rows, Index columns);

Tensor<float> product(Trans ta, Trans tb, const Tensor<float>& a, const Tensor<float>& b);

// The mean over the tokens of x, channel by channel.
std::vector<float> mean_token(View<const float> x);

class KernelDraw {
 public:
  // `noise`: the part of x.f.noise inherited from the wire's input, hence common to all its readers.
  KernelDraw(const DownWire& x, double noise, Index length, std::uint64_t place);

  // F, (T, rank), with F F' the kernel of draw i.
  [[nodiscard]] Tensor<float> root(Index i) const;
  // The same for a wire behind a product with a matrix and a norm, before which the draw had the root `stem`: `noise` is then what
  // they add.
  [[nodiscard]] Tensor<float> root(Index i, const Tensor<float>& stem) const;

 private:
  [[nodiscard]] Tensor<float> sample(Index i, Trans turned, const Tensor<float>& mean) const;
  void fix_sizes(Tensor<float>& root, double fixed) const;
  void swing(Tensor<float>& root, Index i) const;

  const DownWire& x_;
  Tensor<float> mean_root_;
  double channels_;  // 0: as many as it takes
  bool jitters_ = false;
  double fixed_ = 0;  // 1: tokens do not vary in size; 0: like a sample covariance's
  Index length_;
  std::uint64_t place_;
};

}  // namespace stepzero
