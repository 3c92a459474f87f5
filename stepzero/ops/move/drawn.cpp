#include "stepzero/ops/move/drawn.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {

namespace {

double column_dot(const Tensor<double>& a, const Tensor<double>& b, Index c) {
  double sum = 0;
  for (Index t = 0; t < a.rows(); ++t) sum += a(t, c) * b(t, c);
  return sum;
}

}  // namespace

// A root of F F', (T, T).
Square square_root(const Tensor<float>& F) {
  Tensor<double> wide(F.rows(), F.cols());
  for (Index j = 0; j < F.size(); ++j) wide.data()[j] = static_cast<double>(F.data()[j]);
  if (F.rows() == F.cols()) return Square::from(F.rows(), [&](Index t, Index s) { return wide(t, s); });
  Square gram(F.rows());
  gemm<double>(Trans::no, Trans::yes, 1.0, wide.view(), wide.view(), 0.0, gram.view());
  return root_of(gram);
}

Tensor<double> normal_columns(std::uint64_t place, const char* name, Index draw, Index rows, Index columns, bool matched) {
  const Tensor<float> z = node_normals(place, name, draw, rows, columns);
  Tensor<double> out(rows, columns);
  for (Index i = 0; i < z.size(); ++i) out.data()[i] = static_cast<double>(z.data()[i]);
  if (!matched || columns < 2 * rows) return out;
  // L^-1 z with L L' their covariance, row by row
  const Square L = root_of(covariance(out.view(), out.view()));
  for (Index t = 0; t < rows; ++t) {
    double* const row = out.view().row(t);
    for (Index s = 0; s < t; ++s) {
      const double by = L(t, s);
      const double* const other = out.view().row(s);
      for (Index c = 0; c < columns; ++c) row[c] -= by * other[c];
    }
    for (Index c = 0; c < columns; ++c) row[c] /= L(t, t);
  }
  return out;
}

Tensor<double> times(const Square& m, const Tensor<double>& z) {
  Tensor<double> out(m.tokens(), z.cols());
  gemm<double>(Trans::no, Trans::no, 1.0, m.view(), z.view(), 0.0, out.view());
  return out;
}

Square covariance(View<const double> a, View<const double> b) {
  Square out(a.rows);
  gemm<double>(Trans::no, Trans::yes, 1 / static_cast<double>(a.cols), a, b, 0.0, out.view());
  return out;
}

void prepare(DrawnInput& in, const MatrixMove* m, const Square* drawn, const Square& polar, const Square& rest, double noise,
             std::uint64_t place, Index draw) {
  const Index tokens = in.d.rows(), n = in.d.cols();
  in.z = normal_columns(place, "left", draw, tokens, n, drawn == nullptr);
  in.bias.assign(static_cast<std::size_t>(n), 0.0);
  if (m == nullptr) return;
  const Square L = drawn == nullptr ? m->root : m->reads == 1 ? *drawn : std::sqrt(m->reads) * *drawn;
  const Tensor<double> seen = times(L.transposed(), in.d);  // L' d
  const double n_in = m->use.n_in;
  const Update& u = m->weight;
  for (Index c = 0; c < n; ++c) {
    const double square = column_dot(seen, seen, c);
    in.square += square;
  }
  if (u.moves() && u.rule == Update::Rule::sgd) {
    const Tensor<double> z = normal_columns(place, "sign", draw, tokens, n, false);
    Tensor<double> e(tokens, n);
    const double spare = std::sqrt(noise);
    for (Index c = 0; c < n; ++c) {
      const double size = std::sqrt(column_dot(seen, seen, c));
      const double along = size > 0 ? column_dot(z, seen, c) / size : 0;
      for (Index t = 0; t < tokens; ++t) {
        const double own = size > 0 ? seen(t, c) / size * along : 0;
        e(t, c) = seen(t, c) + spare * size * (z(t, c) + (std::numbers::sqrt2 - 1) * own);
      }
    }
    in.direct = times(u.times * n_in * L, e);
    in.pull = u.times * n_in * in.square;
  } else if (u.moves() && u.rule == Update::Rule::polar) {
    in.direct = times(polar, in.d);
    if (!rest.empty()) {
      const Tensor<double> more = times(rest, normal_columns(place, "sign", draw, tokens, n, false));
      for (Index i = 0; i < more.size(); ++i) in.direct.data()[i] += more.data()[i];
    }
    const Tensor<double> told = times(polar, in.d);
    for (Index c = 0; c < n; ++c) in.pull += column_dot(told, in.d, c);
  } else if (u.moves()) {
    // in the coordinates of L: n_in c1 e + what it leaves across e and along it, e = L' d / |L' d|   (2)
    Tensor<double> z = normal_columns(place, "sign", draw, tokens, n, false);
    for (Index c = 0; c < n; ++c) {
      const double size = std::sqrt(column_dot(seen, seen, c));
      if (!(size > 0)) {
        for (Index t = 0; t < tokens; ++t) z(t, c) = 0;
        continue;
      }
      const SignNumbers k = numbers_at(u.eps / size);
      double along = 0;
      for (Index t = 0; t < tokens; ++t) along += z(t, c) * seen(t, c) / size;
      const double mean = n_in * k.first, own_square = n_in * std::max(k.second - k.first * k.first, 0.0);
      const double shared = std::max(noise - 1 / n_in, 0.0);
      const double across = std::sqrt(own_square + mean * mean * noise), own = std::sqrt(own_square + mean * mean * shared / 2);
      for (Index t = 0; t < tokens; ++t) {
        const double e = seen(t, c) / size;
        z(t, c) = mean * (1 - shared / 4) * e + across * (z(t, c) - along * e) + own * along * e;
      }
      in.pull += mean * (1 - shared / 4) * size;
    }
    in.direct = times(L, z);
  }
  if (!m->bias.moves()) return;
  for (Index c = 0; c < n; ++c) {
    double sum = 0, size = 0;
    for (Index t = 0; t < tokens; ++t) sum += in.d(t, c), size += in.d(t, c) * in.d(t, c);
    const auto i = static_cast<std::size_t>(c);
    if (!(sum * sum > 1e-9 * size)) {  // that of keys has no gradient; Lion follows its rounding
      if (m->bias.rule == Update::Rule::sign && m->bias.eps == 0) in.bias[i] = c % 2 == 0 ? 1 : -1;
      continue;
    }
    in.bias[i] = m->bias.rule == Update::Rule::sgd ? m->bias.times * sum : sum / (std::abs(sum) + m->bias.eps);
  }
}

double mean_direct(const DrawnInput& in) {
  double sum = 0;
  for (Index i = 0; i < in.direct.size(); ++i) sum += in.direct.data()[i] * in.direct.data()[i];
  return in.direct.size() > 0 ? sum / static_cast<double>(in.direct.size()) : 0;
}

Moved moved(const DrawnInput& in, const WireChange& change, const Square& left) {
  const ChannelMove& how = *change.channels;
  const Index tokens = in.x.rows(), n = in.x.cols();
  const double rate = how.matrix != nullptr ? how.factor.of(how.matrix->weight) : 0;
  const double rate_b = how.matrix != nullptr ? how.factor.of(how.matrix->bias) : 0;
  const Square whole = Square::one(tokens) + change.stretch;
  Moved out{times(whole, in.x), times(left, in.z)};
  gemm<double>(Trans::no, Trans::no, -1.0, how.carried.view(), in.d.view(), 1.0, out.turned.view());
  if (in.direct.size() > 0 && rate != 0) gemm<double>(Trans::no, Trans::no, -rate, whole.view(), in.direct.view(), 1.0, out.turned.view());
  for (Index t = 0; rate_b != 0 && t < tokens; ++t) {
    for (Index c = 0; c < n; ++c) out.turned(t, c) -= rate_b * in.bias[static_cast<std::size_t>(c)];
  }
  return out;
}

Tensor<double> Moved::with(double sign) const {
  Tensor<double> out(kept.rows(), kept.cols());
  for (Index i = 0; i < out.size(); ++i) out.data()[i] = kept.data()[i] + sign * turned.data()[i];
  return out;
}

}  // namespace stepzero
