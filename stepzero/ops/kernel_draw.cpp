#include "stepzero/ops/kernel_draw.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "stepzero/core/random.hpp"
#include "stepzero/kernels/decompose.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/random_fill.hpp"
#include "stepzero/kernels/rows.hpp"
#include "stepzero/ops/function_kernel.hpp"
#include "stepzero/ops/single_draw.hpp"

namespace stepzero {

Tensor<float> node_normals(std::uint64_t place, const char* name, Index draw, Index rows, Index columns) {
  Tensor<float> z(rows, columns);
  fill(Distribution::normal(1),
       make_stream(static_cast<std::uint64_t>(draw), std::string("attention.") + name + "." + std::to_string(place)), 0,
       std::span<float>(z.data(), static_cast<std::size_t>(z.size())));
  return z;
}

Tensor<float> opposite_normals(std::uint64_t place, const char* name, Index draw, Index rows, Index columns) {
  Tensor<float> z = node_normals(place, name, draw / 2, rows, columns);
  for (Index j = 0; draw % 2 == 1 && j < z.size(); ++j) z.data()[j] = -z.data()[j];
  return z;
}

Tensor<float> product(Trans ta, Trans tb, const Tensor<float>& a, const Tensor<float>& b) {
  Tensor<float> out(ta == Trans::no ? a.rows() : a.cols(), tb == Trans::no ? b.cols() : b.rows());
  gemm(ta, tb, 1.0F, View<const float>(a), View<const float>(b), 0.0F, out.view());
  return out;
}

std::vector<float> mean_token(View<const float> x) {
  std::vector<float> mean(static_cast<std::size_t>(x.cols), 0.0F);
  for (Index t = 0; t < x.rows; ++t) {
    for (Index c = 0; c < x.cols; ++c) mean[c] += x(t, c);
  }
  for (float& m : mean) m /= static_cast<float>(x.rows);
  return mean;
}

KernelDraw::KernelDraw(const DownWire& x, double noise, Index length, std::uint64_t place)
    : x_(x), channels_(noise > 0 ? 1 / noise : 0), length_(length), place_(place) {
  jitters_ = x.f.mean_jitter() > 1e-3;  // below, its effect is below a per cent
  if (jitters_ && channels_ == 0) channels_ = 1e6;
  const auto drawn = [&](double jitter) { return 1 / channels_ + (jitters_ ? jitter : 0); };
  fixed_ = channels_ > 0 ? 1 - std::sqrt(std::min(x.f.token_drift / (2 * drawn(x.f.mean_jitter())), 1.0)) : 0;
  if (fixed_ == 0) {
    mean_root_ = kernels::root(x.K, 1);
    return;
  }
  // Putting tokens back to their sizes makes cosines smaller by rho (1 - rho^2) / (2 channels): they are drawn larger by as much.
  // That is no longer a Gram matrix where tokens are nearly equal: a root can tell no less than what was added.
  const Correlation cosine(x.K);
  const auto lost = [&](Index t, Index s) {
    const double rho = cosine(t, s);
    return fixed_ * (1 - rho * rho) / 2 * drawn(x.f.jitter_at(std::max(t, s)));
  };
  const Kernel K = Kernel::from(
      x.K.tokens(), [&](Index t, Index s) { return x.K(t, s) * std::min(1 + lost(t, s), 1 / std::max(std::abs(cosine(t, s)), 1e-9)); });
  double least = 1e-10;
  for (Index t = 0; t < x.K.tokens(); ++t) {
    for (Index s = 0; s < t; ++s) least = std::max(least, std::abs(cosine(t, s)) * lost(t, s));
  }
  mean_root_ = kernels::root(K, 1, least);
}

Tensor<float> KernelDraw::root(Index i) const {
  Tensor<float> out = sample(i, Trans::yes, mean_root_);
  fix_sizes(out, fixed_);
  swing(out, i);
  return out;
}

Tensor<float> KernelDraw::root(Index i, const Tensor<float>& stem) const {
  Tensor<float> out = sample(i, Trans::no, stem);
  fix_sizes(out, 1);
  return out;
}

// The root of a sample covariance of `channels_` channels, where `mean` or its transpose is the root of the mean.
Tensor<float> KernelDraw::sample(Index i, Trans turned, const Tensor<float>& mean) const {
  const Index rank = turned == Trans::yes ? mean.rows() : mean.cols();
  const double n = static_cast<double>(rank);
  const bool jitters = jitters_ && turned == Trans::yes;
  if ((channels_ == 0 || channels_ > 100 * n) && !jitters) {  // no noise to speak of
    Tensor<float> out(x_.K.tokens(), rank);
    for (Index t = 0; t < out.rows(); ++t) {
      for (Index s = 0; s < rank; ++s) out(t, s) = turned == Trans::yes ? mean(s, t) : mean(t, s);
    }
    return out;
  }
  const bool thin = channels_ < n + 1;
  const Index columns = thin ? std::max<Index>(1, static_cast<Index>(std::lround(channels_))) : rank;
  Tensor<float> b = opposite_normals(place_, "kernel", i, rank, columns);
  if (!thin) to_bartlett(b, channels_);
  for (Index t = 0; !thin && jitters && t < rank; ++t) {
    // the root is triangular: row t has the products of token t with the earlier ones
    const Index first = t / length_ * length_;
    const double earlier = static_cast<double>(t - first), own = 1 - static_cast<double>(t) / channels_;  // of the row's square
    const double jitter = std::min(x_.f.jitter_at(t), 0.9 * own / std::max(earlier, 1.0));
    const auto more = static_cast<float>(std::sqrt(1 + jitter * channels_));
    for (Index s = first; s < t; ++s) b(t, s) *= more;
    b(t, t) *= static_cast<float>(std::sqrt(1 - jitter * earlier / own));
  }
  Tensor<float> out = product(turned, Trans::no, mean, b);
  const auto norm = static_cast<float>(1 / std::sqrt(thin ? static_cast<double>(columns) : channels_));
  for (Index j = 0; j < out.size(); ++j) out.data()[j] *= norm;
  return out;
}

// The diagonal of a sample covariance varies by 2 / channels. That of a wire varies by token_drift, which is 0 behind a norm.
void KernelDraw::fix_sizes(Tensor<float>& root, double fixed) const {
  for (Index t = 0; fixed > 0 && t < root.rows(); ++t) {
    float* row = root.view().row(t);
    const double drawn = static_cast<double>(dot_row(row, row, root.cols())), mean = x_.K(t, t);
    const auto size = static_cast<float>(drawn > 0 && mean > 0 ? std::pow(mean / drawn, fixed / 2) : 1);
    for (Index c = 0; c < root.cols(); ++c) row[c] *= size;
  }
}

// The contrast of each sequence varies as a whole.
void KernelDraw::swing(Tensor<float>& root, Index i) const {
  if (x_.f.swing <= 1e-3) return;
  const double z = static_cast<double>(opposite_normals(place_, "swing", i, 1, 1)(0, 0));
  const auto size = static_cast<float>(std::exp(std::sqrt(x_.f.swing) * z / 2 - x_.f.swing / 4));
  for (Index t0 = 0; t0 < root.rows(); t0 += length_) {
    const View<float> x = root.view().slice(t0, length_);
    const std::vector<float> mean = mean_token(x);
    for (Index t = 0; t < x.rows; ++t) {
      for (Index c = 0; c < x.cols; ++c) x(t, c) = mean[c] + size * (x(t, c) - mean[c]);
    }
  }
}

}  // namespace stepzero
