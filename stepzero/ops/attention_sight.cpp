#include "stepzero/ops/attention_sight.hpp"

#include <array>
#include <cmath>
#include <numeric>

#include "stepzero/kernels/gemm.hpp"

namespace stepzero {

namespace {

// Sums over rectangles of a matrix.
class IntegralImage {
 public:
  explicit IntegralImage(const Matrix& m) : sum_(m.rows() + 1, m.cols() + 1) {
    std::fill_n(sum_.view().row(0), sum_.cols(), 0.0);
    constexpr Index strip = 4;  // rows whose sums do not wait for each other
    Index r = 0;
    for (; r + strip <= m.rows(); r += strip) add_rows<strip>(r, m);
    for (; r < m.rows(); ++r) add_rows<1>(r, m);
  }
  // Rows `r` summed: entry c is the sum over the columns before c.
  [[nodiscard]] std::vector<double> band(Sight::Range r) const {
    const double *upper = sum_.view().row(r.begin), *lower = sum_.view().row(r.end);
    std::vector<double> out(lower, lower + sum_.cols());
    for (Index c = 0; c < sum_.cols(); ++c) out[c] -= upper[c];
    return out;
  }

 private:
  template <Index strip>
  void add_rows(Index r0, const Matrix& m) {
    double line[strip] = {};
    double* to[strip];
    const double* from[strip];
    for (Index i = 0; i < strip; ++i) to[i] = sum_.view().row(r0 + 1 + i), to[i][0] = 0, from[i] = m.view().row(r0 + i);
    for (Index c = 0; c < m.cols(); ++c) {
      for (Index i = 0; i < strip; ++i) to[i][c + 1] = line[i] += from[i][c];
    }
    for (Index i = 0; i < strip; ++i) {
      const double* above = to[i] - sum_.cols();
      for (Index c = 0; c < sum_.cols(); ++c) to[i][c] += above[c];
    }
  }

  Matrix sum_;
};

double within(const std::vector<double>& band, Sight::Range r) { return band[r.end] - band[r.begin]; }

Matrix product_with(Trans turned, const Matrix& a, const Matrix& r) {
  Matrix out(a.rows(), r.cols());
  gemm(turned, Trans::no, 1.0, View<const double>(a), View<const double>(r), 0.0, out.view());
  return out;
}

// r by distance, next to each other: (l, y) has f(y - l)
template <class F>
Matrix by_distance(Index rows, Index cols, const F& f) {
  Matrix out(rows, cols);
  for (Index l = 0; l < rows; ++l) {
    for (Index y = 0; y < cols; ++y) out(l, y) = f(y - l);
  }
  return out;
}

constexpr Index lanes = 4;  // waves at a time
using Lanes = std::array<double, lanes>;

// cos(w p) and sin(w p) of some waves, times the root of their weights, for |p| below the length of a sequence.
class Waves {
 public:
  Waves(const std::vector<Turn::Wave>& waves, Index first, Index length) : zero_(length - 1) {
    cos_.assign(static_cast<std::size_t>(2 * length - 1), Lanes{});
    sin_ = cos_;
    for (Index k = 0; k < std::min(lanes, std::ssize(waves) - first); ++k) {
      const Turn::Wave& wave = waves[static_cast<std::size_t>(first + k)];
      const double root = std::sqrt(wave.weight);
      for (Index p = 0; p < length; ++p) {
        cos_[zero_ + p][k] = cos_[zero_ - p][k] = root * std::cos(static_cast<double>(p) * wave.frequency);
        sin_[zero_ + p][k] = root * std::sin(static_cast<double>(p) * wave.frequency);
        sin_[zero_ - p][k] = -sin_[zero_ + p][k];
      }
    }
  }
  [[nodiscard]] const Lanes& cos(Index p) const { return cos_[static_cast<std::size_t>(zero_ + p)]; }
  [[nodiscard]] const Lanes& sin(Index p) const { return sin_[static_cast<std::size_t>(zero_ + p)]; }

 private:
  Index zero_;
  std::vector<Lanes> cos_, sin_;
};

}  // namespace

Sight::Sight(const Attention& op, const Batch& batch, const Turn* turn)
    : length_(batch.length), turn_(turn), back_(op.window > 0 ? std::min(op.window, length_) - 1 : length_ - 1), ahead_(op.causal ? 0 : back_) {
  for (Index t = 0; t < batch.tokens(); ++t) {
    const Range see = op.visible(place(t), length_);
    ranges_.push_back({t - place(t) + see.begin, t - place(t) + see.end});
  }
}

Sight Sight::reversed() const {
  Sight out = *this;
  std::swap(out.back_, out.ahead_);
  for (Index t = 0; t < std::ssize(ranges_); ++t) {
    const Index start = t - place(t);
    out.ranges_[t] = {start + std::max<Index>(place(t) - out.back_, 0), start + std::min(place(t) + out.ahead_ + 1, length_)};
  }
  return out;
}

Sight Sight::flat() const {
  Sight out = *this;
  out.turn_ = nullptr;
  return out;
}

Kernel Sight::both(const Matrix& B, int power) const {
  if (turn_ == nullptr) {
    const IntegralImage image(B);
    return Kernel::from_rows(B.rows(), [&](Index t, double* __restrict row) {
      const std::vector<double> band = image.band(range(t));
      for (Index s = 0; s <= t; ++s) row[s] = within(band, range(s));
    });
  }
  std::vector<double> r;
  for (Index p = 0; p < 2 * length_; ++p) r.push_back(std::pow(turn_->score(p), power));
  Matrix out(B.rows(), B.rows());
  for (Index b = 0; b < B.rows() / length_; ++b) {
    for (Index c = 0; c <= b; ++c) add_block(B, b, c, r, out);
  }
  return Kernel::from_rows(B.rows(), [&](Index t, double* __restrict row) { std::copy_n(out.view().row(t), t + 1, row); });
}

// Two sequences. Where a token sees further ahead than back, time runs the other way.
void Sight::add_block(const Matrix& B, Index first, Index second, const std::vector<double>& r, Matrix& out) const {
  const Index n = length_, ahead = std::min(ahead_, back_), width = ahead_ + back_, whole = n + ahead;
  const auto token = [&](Index sequence, Index i) { return sequence * n + (ahead_ > back_ ? n - 1 - i : i); };
  Matrix a(n, n);
  for (Index i = 0; i < n; ++i) {
    for (Index y = 0; y < n; ++y) a(i, y) = B(token(first, i), token(second, y));
  }
  // What row i of the matrix adds as the last that a token sees, with the columns up to y; and what it takes along as it leaves.
  const Matrix last = by_distance(n, whole, [&](Index d) { return d >= 0 && d <= width ? r[d] : 0.0; });
  const Matrix adds = product_with(Trans::no, a, last), adds_column = product_with(Trans::yes, a, last);
  const bool leaves = width + 1 < whole;
  const Matrix gone = leaves ? by_distance(n, whole, [&](Index d) { return d >= 1 && d <= width + 1 ? r[width + 1 - d] : 0.0; }) : Matrix();
  const Matrix takes = leaves ? product_with(Trans::no, a, gone) : Matrix();
  const Matrix takes_column = leaves ? product_with(Trans::yes, a, gone) : Matrix();
  std::vector<double> above(static_cast<std::size_t>(whole) + 1, 0.0), here(above);
  for (Index i = 0; i < whole; ++i) {
    for (Index y = 0; y < whole; ++y) {
      double sum = above[y];
      if (i < n) sum += adds(i, y);
      if (y < n) sum += adds_column(y, i);
      if (i < n && y < n) sum -= r[0] * a(i, y);
      const Index x = i - width - 1, z = y - width - 1;
      if (x >= 0) sum -= takes(x, y);
      if (z >= 0) sum -= takes_column(z, i);
      if (x >= 0 && z >= 0) sum += r[0] * a(x, z);
      here[y + 1] = sum;
      if (i >= ahead && y >= ahead) out(token(first, i - ahead), token(second, y - ahead)) = sum;
    }
    std::swap(above, here);
  }
}

Matrix Sight::cross(const Matrix& B, const Matrix& y) const {
  const Index n = B.rows();
  if (turn_ == nullptr) {
    Matrix out(n, n);
    const IntegralImage image(B);
    std::vector<double> line(static_cast<std::size_t>(n) + 1, 0.0);
    for (Index t = 0; t < n; ++t) {
      const std::vector<double> band = image.band(range(t));
      for (Index l = 0; l < n; ++l) line[l + 1] = line[l] + y(t, l) * (band[l + 1] - band[l]);
      for (Index s = 0; s < n; ++s) out(t, s) = within(line, range(s));
    }
    return out;
  }
  const Index groups = (std::ssize(turn_->waves()) + lanes - 1) / lanes, count = std::min<Index>(groups, 4);
  std::vector<Matrix> parts(static_cast<std::size_t>(count));
  parallel_for(count, [&](Index i) {
    Matrix& part = parts[static_cast<std::size_t>(i)] = Matrix(n, n);
    std::fill_n(part.data(), part.size(), 0.0);
    for (Index g = i; g < groups; g += count) add_waves(B, y, g * lanes, part);
  });
  for (Index i = 1; i < count; ++i) {
    for (Index e = 0; e < n * n; ++e) parts[0].data()[e] += parts[static_cast<std::size_t>(i)].data()[e];
  }
  return std::move(parts[0]);
}

// cos(w ((t - s) - (j - l))) = Re e^(iw(t - s)) e^(iw(l - j)): sums over j are carried from token to token, those over l along the row.
void Sight::add_waves(const Matrix& B, const Matrix& y, Index first, Matrix& out) const {
  const Index n = B.rows();
  const Waves turns(turn_->waves(), first, length_);
  std::vector<Lanes> re(static_cast<std::size_t>(n), Lanes{}), im(re), re_sum(static_cast<std::size_t>(n) + 1, Lanes{}), im_sum(re_sum);
  const auto add_row = [&](Index j, double sign) {
    const double* const row = B.view().row(j);
    const Lanes *c = &turns.cos(-place(j)), *s = &turns.sin(-place(j));
    for (Index l0 = 0; l0 < n; l0 += length_) {
      for (Index i = 0; i < length_; ++i) {
        const double b = sign * row[l0 + i];
        for (Index k = 0; k < lanes; ++k) re[l0 + i][k] += b * c[i][k], im[l0 + i][k] += b * s[i][k];
      }
    }
  };
  Range now{0, 0};
  for (Index t = 0; t < n; ++t) {
    const Range see = range(t);
    for (; now.end < see.end; ++now.end) add_row(now.end, 1);
    for (; now.begin < see.begin; ++now.begin) add_row(now.begin, -1);
    for (Index l = 0; l < n; ++l) {
      const double weight = y(t, l);
      for (Index k = 0; k < lanes; ++k) {
        re_sum[l + 1][k] = re_sum[l][k] + weight * re[l][k];
        im_sum[l + 1][k] = im_sum[l][k] + weight * im[l][k];
      }
    }
    double* const row = out.view().row(t);
    const Lanes *c = &turns.cos(place(t)), *d = &turns.sin(place(t));
    for (Index s = 0; s < n; ++s) {
      const Range by = range(s);
      const Index p = place(s);
      double sum[lanes];
      for (Index k = 0; k < lanes; ++k) {
        sum[k] = c[-p][k] * (re_sum[by.end][k] - re_sum[by.begin][k]) - d[-p][k] * (im_sum[by.end][k] - im_sum[by.begin][k]);
      }
      row[s] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
  }
}

Matrix Sight::means(const Kernel& K) const {
  const Index n = K.tokens();
  Matrix out(n, n);
  std::vector<double> prefix(static_cast<std::size_t>(n) + 1, 0.0);
  for (Index j = 0; j < n; ++j) {
    for (Index l = 0; l < n; ++l) prefix[l + 1] = prefix[l] + K(j, l);
    for (Index s = 0; s < n; ++s) out(s, j) = within(prefix, range(s)) / count(s);
  }
  return out;
}

Matrix Sight::places(const Matrix& h) const {
  const Index n = h.rows();
  if (turn_ == nullptr) {
    Matrix out(n, 1);
    for (Index t = 0; t < n; ++t) out(t, 0) = std::accumulate(h.view().row(t), h.view().row(t) + n, 0.0);
    return out;
  }
  const std::vector<Turn::Wave>& waves = turn_->waves();
  const Index count = std::ssize(waves);
  Matrix cosines(n, count), sines(n, count);
  for (Index t = 0; t < n; ++t) {
    for (Index k = 0; k < count; ++k) {
      const double angle = static_cast<double>(place(t)) * waves[static_cast<std::size_t>(k)].frequency;
      cosines(t, k) = std::cos(angle);
      sines(t, k) = std::sin(angle);
    }
  }
  const Matrix x = product_with(Trans::no, h, cosines), y = product_with(Trans::no, h, sines);
  Matrix out(n, 2 * count);
  for (Index t = 0; t < n; ++t) {
    for (Index k = 0; k < count; ++k) {  // e^(iwj) turned back by t
      const double root = std::sqrt(waves[static_cast<std::size_t>(k)].weight);
      out(t, k) = root * (cosines(t, k) * x(t, k) + sines(t, k) * y(t, k));
      out(t, count + k) = root * (cosines(t, k) * y(t, k) - sines(t, k) * x(t, k));
    }
  }
  return out;
}

}  // namespace stepzero
