#include "stepzero/ops/attention_sight.hpp"

#include <cmath>
#include <numeric>

#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/wave_sums.hpp"

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
  [[nodiscard]] double within(Sight::Range rows, Sight::Range cols) const {
    return sum_(rows.end, cols.end) - sum_(rows.begin, cols.end) - sum_(rows.end, cols.begin) + sum_(rows.begin, cols.begin);
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

// A square matrix (or its transpose) times the matrix of f(y - l) for first <= y - l < first + f.size(), and 0 beyond: column y
// from a few of the rows.
class Distances {
 public:
  Distances(Index rows, Index cols, Index first, const std::vector<double>& f)
      : r_(rows, cols), first_(first), last_(first + std::ssize(f) - 1) {
    for (Index l = 0; l < rows; ++l) {
      std::fill_n(r_.view().row(l), cols, 0.0);
      const Index begin = std::clamp<Index>(l + first_, 0, cols), end = std::clamp<Index>(l + last_ + 1, 0, cols);
      std::copy_n(f.begin() + (begin - l - first_), std::max<Index>(end - begin, 0), r_.view().row(l) + begin);
    }
  }
  [[nodiscard]] Matrix after(const Matrix& a, Trans turned) const {
    const Alone alone;  // too small to share
    Matrix out(a.rows(), r_.cols());
    const Index step = std::max<Index>(16, (r_.cols() + 3) / 4);
    for (Index y = 0; y < r_.cols(); y += step) {
      const Index columns = std::min(step, r_.cols() - y);
      const Index begin = std::clamp<Index>(y - last_, 0, r_.rows()), end = std::clamp<Index>(y + columns - first_, begin, r_.rows());
      const View<const double> x = a.view(), r = r_.view();
      gemm(turned, Trans::no, 1.0, turned == Trans::no ? x.columns(begin, end - begin) : x.slice(begin, end - begin),
           r.slice(begin, end - begin).columns(y, columns), 0.0, out.view().columns(y, columns));
    }
    return out;
  }

 private:
  Matrix r_;
  Index first_, last_;
};

using kernels::Lanes;
constexpr Index lanes = kernels::waves_together;

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
    : length_(batch.length),
      turn_(turn),
      back_(op.window > 0 ? std::min(op.window, length_) - 1 : length_ - 1),
      ahead_(op.causal ? 0 : back_) {
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

std::vector<double> Sight::own(const Matrix& B) const {
  const IntegralImage image(B);
  std::vector<double> out;
  for (Index t = 0; t < B.rows(); ++t) out.push_back(image.within(range(t), range(t)));
  return out;
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
  const bool alike = first == second;  // a is symmetric
  const Distances reach(n, whole, 0, {r.begin(), r.begin() + width + 1});
  const Matrix adds = reach.after(a, Trans::no), other = alike ? Matrix() : reach.after(a, Trans::yes);
  const Matrix& adds_column = alike ? adds : other;
  Matrix takes, other_takes;
  if (width + 1 < whole) {
    const Distances gone(n, whole, 1, {r.rend() - (width + 1), r.rend()});
    takes = gone.after(a, Trans::no);
    if (!alike) other_takes = gone.after(a, Trans::yes);
  }
  const Matrix& takes_column = alike ? takes : other_takes;
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
  std::vector<Index> begins, ends;
  for (const Range& r : ranges_) begins.push_back(r.begin), ends.push_back(r.end);
  const auto add_row = [&](Index j, double sign) {
    for (Index l = 0; l < n; l += length_) {
      kernels::add_turned(&B(j, l), sign, &turns.cos(-place(j)), &turns.sin(-place(j)), &re[l], &im[l], static_cast<std::size_t>(length_));
    }
  };
  Range now{0, 0};
  for (Index t = 0; t < n; ++t) {
    const Range see = range(t);
    for (; now.end < see.end; ++now.end) add_row(now.end, 1);
    for (; now.begin < see.begin; ++now.begin) add_row(now.begin, -1);
    kernels::sum_along(y.view().row(t), re.data(), im.data(), re_sum.data(), im_sum.data(), static_cast<std::size_t>(n));
    for (Index s = 0; s < n; s += length_) {
      kernels::add_real_parts(&turns.cos(place(t)), &turns.sin(place(t)), re_sum.data(), im_sum.data(), &begins[s], &ends[s], &out(t, s),
                              static_cast<std::size_t>(length_));
    }
  }
}

Matrix Sight::means(const Kernel& K) const {
  const Index n = K.tokens();
  Matrix before(n + 1, n), out(n, n);  // row t: the sum of the rows before t
  std::fill_n(before.view().row(0), n, 0.0);
  for (Index t = 0; t < n; ++t) {
    const Kernel::Row k = K.row(t);
    const double* const above = before.view().row(t);
    double* const here = before.view().row(t + 1);
    for (Index j = 0; j < n; ++j) here[j] = above[j] + k[j];
  }
  for (Index s = 0; s < n; ++s) {
    const double *first = before.view().row(range(s).begin), *last = before.view().row(range(s).end);
    const double share = 1 / count(s);
    double* const row = out.view().row(s);
    for (Index j = 0; j < n; ++j) row[j] = (last[j] - first[j]) * share;
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
